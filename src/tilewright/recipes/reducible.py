"""What can be reduced in parts, and along what: structure that recipes for reductions ask for."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Space
from tilewright.ir.computes import mentioned
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.open_sizes import plain_sum
from tilewright.ir.sizes import Polynomial, polynomial
from tilewright.ir.stmt import Allocate, Compute, Dim, Kernel, View
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ReductionConfig
from tilewright.recipes.roles import bytes_of, extents, find_compute, known_sizes, steps_of
from tilewright.schedule.queries.place import fresh, taken_names
from tilewright.schedule.schedule import KernelSchedule

# Neighbours that are worth a tile of their own: a few cache lines.
NARROWEST = 64
# Work-items that combine what all of a workgroup have, before one does the rest; fewer neighbours
# are not worth one.
COMBINING = 16
# Points that are worth the parts of a reduction, and those of a part where a call says how many
# there are.
_WORTH = 1 << 16
_PART = 1 << 15
# Lanes of a vector that are more than single elements.
_SHORTEST = 4


def computes_in(kernel: Kernel) -> list[Compute]:
    """All computes, in order."""
    return [stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Compute)]


def in_memory(s: KernelSchedule, machine: Machine) -> None:
    """``kernel`` with what its computes hand on in memory that all workers see."""
    common = machine.workers.common
    held = [stmt.buffer for stmt in walk_stmts(s.kernel.body) if isinstance(stmt, Allocate)]
    for buffer in held:
        if buffer.space is Space.PRIVATE and common is not Space.PRIVATE:
            s.lay_out(buffer.name, space=common)


def divided(s: KernelSchedule, compute: Compute, config: ReductionConfig) -> None:
    """``compute`` in parts, where it has too few results for all workers, and much to reduce: along
    the outermost dim that has enough parts, or else the most."""
    if not reduces(compute):
        return
    length, kept = extents(compute), kept_dims(compute)
    results = prod(size for name, size in length.items() if name in kept)
    steps = steps_of(compute, most_read(compute))
    alone = config.items and reduced_run(compute, COMBINING) is None
    if alone or any(steps.get(name) == 1 for name in kept):
        # A work-item has a result, a thread a long run of neighbours.
        results = -(-results // (config.items or config.columns))
    passed = [d.var.name for d in compute.dims if not isinstance(d.extent, Const)]
    if results >= config.parts // 2 or not kept.isdisjoint(passed):
        return
    if prod(_greatest(s.kernel, dim) for dim in compute.dims) < _WORTH:
        return
    # Along neighbours, whole vectors of all partial results, as cache lines hold them.
    together = config.items or config.vector * config.copies
    multiple = {name: together if steps[name] == 1 else 1 for name in length if name not in kept}
    outward = sorted(multiple, key=lambda name: -(steps[name] or 0))
    wanted = -(-config.parts // results)
    name = fresh("piece", taken_names(s.kernel))
    if passed:
        along = next(dim for dim in outward if dim in passed)
        together = multiple[along]
        least = max(together, _PART * length[along] // prod(length.values()))
        s.rfactor(compute.name, along, wanted, name, multiple=together, least=least)
        s.mark(f"divided {compute.name}")
        return
    along = max(outward, key=lambda name: min(wanted, length[name] // multiple[name]))
    most = length[along] // multiple[along]
    parts = min(wanted, most)
    if parts > 1:
        # As many as leave little behind them.
        parts = most // -(-most // parts)
    if parts > 1:
        s.rfactor(compute.name, along, parts, name, multiple=multiple[along])
        s.mark(f"divided {compute.name}")
        # Too few parts still, where the dim is shorter than that.
        if parts < wanted:
            divided(s, find_compute(s.kernel, compute.name), config)


def _greatest(kernel: Kernel, dim: Dim) -> int:
    """How long ``dim`` may be, where that is less than makes a difference."""
    most = Facts.of(kernel).bounds(dim.extent)[1]
    return _WORTH if most is None else min(most, _WORTH)


def whole_dims(kernel: Kernel) -> bool:
    """Whether something is reduced, and whatever is, along all of what it reads."""
    computes = [compute for compute in computes_in(kernel) if reduces(compute)]
    lengths = [
        n
        for compute in computes
        for name, n in extents(compute).items()
        if name not in kept_dims(compute)
    ]
    views = [
        (operand.view, {dim.var: dim.extent for dim in compute.dims})
        for compute in computes
        for operand in compute.operands
    ]
    plain = all(counts(index, sizes) for view, sizes in views for index in view.index)
    return plain and max(lengths, default=1) > 1 and all(view.mask is None for view, _ in views)


def counts(index: Expr, sizes: Mapping[Var, Expr]) -> bool:
    """Whether ``index`` is a dim, or counts through several, as those of heads in groups do."""
    if isinstance(index, Var | Const):
        return True
    if not index.type.is_integer:
        return False
    steps: dict[Var, Polynomial] = {}
    for factors, times in polynomial(index).items():
        at = [n for n, factor in enumerate(factors) if factor in sizes]
        if len(at) != 1:
            return False
        dim = factors[at[0]]
        assert isinstance(dim, Var)
        steps.setdefault(dim, {})[factors[: at[0]] + factors[at[0] + 1 :]] = times
    step: Polynomial = {(): 1}
    while steps:
        inner = next((dim for dim, its in steps.items() if its == step), None)
        if inner is None:
            return False
        del steps[inner]
        step = polynomial(plain_sum(step) * sizes[inner])
    return True


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


def contiguous_dim(compute: Compute) -> str | None:
    """The dim of the results along which neighbours are neighbours in memory."""
    view = compute.outputs[0]
    steps = steps_of(compute, view)
    near = [d.var.name for d in compute.dims if steps[d.var.name] == 1 and not d.ordered]
    kept = [n for n in near if all(_keeps(compute, output, n) for output in compute.outputs)]
    return kept[0] if kept else None


def _keeps(compute: Compute, view: View, name: str) -> bool:
    return any(v.name == name for v in mentioned(compute, view))


def reduced_run(compute: Compute, lanes: int) -> str | None:
    """The dim that ``compute`` reduces along neighbours in memory, at least a vector of them."""
    if not reduces(compute):
        return None
    kept, length = kept_dims(compute), extents(compute)
    steps = steps_of(compute, most_read(compute))
    for dim in compute.dims:
        name = dim.var.name
        if name not in kept and steps[name] == 1 and length[name] >= lanes:
            return name
    return None


def shorter(kernel: Kernel, lanes: int) -> list[int]:
    """Vectors of fewer than so many ``lanes``, the longer one first, for a kernel that reduces
    something along so few neighbours, or to so few, that no vector of ``lanes`` is full. Empty
    where they would have less than `_SHORTEST`."""
    runs = [run for compute in computes_in(kernel) if (run := _run_of(compute)) is not None]
    longest = max(runs, default=lanes)
    if not 0 < longest < lanes:
        return []
    full = 1 << longest.bit_length() - 1
    return [size for size in (full, full // 2) if size >= _SHORTEST]


def _run_of(compute: Compute) -> int | None:
    """How many neighbours in memory ``compute`` reduces, or reduces others to; None where it
    reduces nothing, or a call says how many."""
    if not reduces(compute):
        return None
    along = reduced_run(compute, 1) or contiguous_dim(compute)
    return known_sizes(compute).get(along or "")
