"""What can be reduced in parts, and along what: structure that recipes for reductions ask for."""

from __future__ import annotations

from math import prod

from tilewright.ir.computes import mentioned
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Compute, Kernel, View
from tilewright.ir.visit import walk_stmts
from tilewright.recipes.config import ReductionConfig
from tilewright.recipes.sizes import bytes_of, sizes
from tilewright.schedule.divide_reduction import divide_reduction
from tilewright.schedule.place import fresh, taken_names
from tilewright.schedule.runs import strides

# Neighbours that are worth a tile of their own: a few cache lines.
NARROWEST = 64
# Work-items that combine what all of a workgroup have, before one does the rest; fewer neighbours
# are not worth one.
COMBINING = 16
# Points that are worth the parts of a reduction.
_WORTH = 1 << 16


def computes_in(kernel: Kernel) -> list[Compute]:
    """All computes, in order."""
    return [stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Compute)]


def divided(kernel: Kernel, compute: Compute, config: ReductionConfig) -> Kernel | None:
    """``compute`` in parts, where it has too few results for all workers, and much to reduce: along
    the outermost dim that has enough parts, or else the most."""
    if not reduces(compute):
        return None
    length, kept = sizes(compute), kept_dims(compute)
    results = prod(size for name, size in length.items() if name in kept)
    steps = strides(compute, most_read(compute))
    alone = config.items and reduced_run(compute, COMBINING) is None
    if alone or any(steps[name] == 1 for name in kept):
        # A work-item has a result, a thread some neighbours.
        results = -(-results // (config.items or NARROWEST))
    if results >= config.parts // 2 or prod(length.values()) < _WORTH:
        return None
    if not all(isinstance(dim.extent, Const) for dim in compute.dims):
        return None
    # Along neighbours, whole vectors of all partial results, as cache lines hold them.
    together = config.items or config.vector * config.copies
    multiple = {name: together if steps[name] == 1 else 1 for name in length if name not in kept}
    outward = sorted(multiple, key=lambda name: -(steps[name] or 0))
    wanted = -(-config.parts // results)
    along = max(outward, key=lambda name: min(wanted, length[name] // multiple[name]))
    most = length[along] // multiple[along]
    parts = min(wanted, most)
    if parts > 1:
        # As many as leave little behind them.
        parts = most // -(-most // parts)
    if parts < 2:
        return None
    name = fresh("piece", taken_names(kernel))
    return divide_reduction(kernel, compute.name, along, parts, name, multiple[along])


def reduces(compute: Compute) -> bool:
    """Whether all results are combined, of whatever is reduced, in any order."""
    if compute.is_ordered or any(result.combiner is None for result in compute.results):
        return False
    if any(view.mask is not None for view in compute.outputs) or not compute.operands:
        return False
    return any(dim.var.name not in kept_dims(compute) for dim in compute.dims)


def kept_dims(compute: Compute) -> set[str]:
    """The dims that some result has."""
    return {v.name for view in compute.outputs for v in mentioned(compute, view)}


def most_read(compute: Compute) -> View:
    """What the compute reads the most of."""
    return max((o.view for o in compute.operands), key=lambda view: bytes_of(view.buffer))


def contiguous(compute: Compute) -> str | None:
    """The dim of the results along which neighbours are neighbours in memory."""
    view = compute.outputs[0]
    steps = strides(compute, view)
    near = [d.var.name for d in compute.dims if steps[d.var.name] == 1 and not d.ordered]
    kept = [n for n in near if all(_keeps(compute, each, n) for each in compute.outputs)]
    return kept[0] if kept else None


def _keeps(compute: Compute, view: View, name: str) -> bool:
    return any(v.name == name for v in mentioned(compute, view))


def reduced_run(compute: Compute, lanes: int) -> str | None:
    """The dim that ``compute`` reduces along neighbours in memory, at least a vector of them."""
    if not reduces(compute):
        return None
    kept, length = kept_dims(compute), sizes(compute)
    steps = strides(compute, most_read(compute))
    for dim in compute.dims:
        name = dim.var.name
        if name not in kept and steps[name] == 1 and length[name] >= lanes:
            return name
    return None
