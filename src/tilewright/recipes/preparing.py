"""Contractions before workgroups get their tiles: dims made one, and whole, and B packed."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import DType
from tilewright.ir.buffer import Space
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.lowering import lower_rest, parallelize
from tilewright.recipes.mma import mma_of, packed_order
from tilewright.recipes.prologues import computed_in_copies, packable
from tilewright.recipes.reshaping import PHASE, by_phase
from tilewright.recipes.roles import extents, factor_type, find_compute, named_after, roles
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule


def combined(
    s: KernelSchedule,
    *,
    halo: bool = False,
    fused: Sequence[str] = (),
    tensors: Sequence[str] = (),
) -> None:
    """``kernel`` with one dim per role of the result, ordered as the result lies in memory, and one
    for phases where only some taps of each count; with ``halo``, the dims of M stay as they are,
    along which neighbours read the same. The reduced dims ``fused`` are one, too, and so are the
    dims of ``tensors`` that are digits of one."""
    if not (halo):
        by_phase(s)
    if fused:
        s.fuse_dims(fused, named_after(*fused), digits=True, tensors=tensors)
    for part in ("batch", "n") if halo else ("batch", "m", "n"):
        main = find_compute(s.kernel, MAIN)
        dims: Sequence[str] = [d for d in getattr(roles(main), part) if d != PHASE]
        if len(dims) < 2:
            continue
        out = find_compute(s.kernel, RESULT)
        steps = strides(out, out.out)
        # A dim that blocks of the layout cut has no one step: it stays where it is.
        ordered = (
            sorted(dims, key=lambda d: -(steps[d] or 0)) if all(steps[d] for d in dims) else dims
        )
        s.fuse_dims(list(ordered), named_after(*ordered), digits=True, tensors=tensors)


def whole_tiles(s: KernelSchedule, config: WorkgroupConfig) -> None:
    """Dims padded to whole tiles, steps and slices."""
    main = find_compute(s.kernel, MAIN)
    sizes = extents(main)
    slices, item_slices = dict(config.reduction.slices), dict(config.reduction.item_slices)
    for dim in roles(main).k:
        whole = config.reduction.step.get(dim, 1) * slices.get(dim, 1) * item_slices.get(dim, 1)
        s.pad(MAIN, {dim: -(-sizes[dim] // whole) * whole})
    tiles: dict[str, int] = {}
    for dim, size in config.tile.group.items():
        whole = size * config.order.cluster.get(dim, 1)
        tiles[dim] = -(-sizes[dim] // whole) * whole
    s.pad(RESULT, tiles)


def packed(s: KernelSchedule, machine: Machine, config: WorkgroupConfig) -> None:
    """B, where it may be packed beforehand, in the order in which it is shared."""
    main = find_compute(s.kernel, MAIN)
    view = main.operands[1].view
    if not packable(s.kernel, s.prepacked):
        return
    parts = roles(main)
    used = {d for d, step in strides(main, view).items() if step != 0}
    reduced = (*config.reduction.loops, *(d for d in parts.k if d not in config.reduction.loops))
    layout = [d for d in (*parts.batch, *reduced, *parts.n, *parts.m) if d in used]
    mma = mma_of(s.kernel, machine, config)
    rounded = None
    if mma is not None:
        layout = packed_order(main, mma, layout)
        rounded = factor_type(main, main.operands[1])
    elif config.product.neighbours(machine) > 1:
        # Copies take what lies together along the dim that an instruction adds up.
        layout = [*(d for d in layout if d != config.product.k), config.product.k]
    pack_before(s, machine, layout, rounded)


def pack_before(
    s: KernelSchedule,
    machine: Machine,
    layout: Sequence[str],
    cast: DType | None = None,
) -> None:
    """B packed before the kernel runs, its dims as ``layout`` has them, outermost first; as it was
    where something else reads it, too."""
    factor = find_compute(s.kernel, MAIN).operands[1].view.buffer

    def hoist() -> None:
        staged = s.stage(MAIN, "b", shape="dims", space=Space.GLOBAL, layout=layout, cast=cast)
        computed_in_copies(s, factor)
        s.hoist_pack(staged["buffer"])

    if s.attempt(hoist):
        (pack,) = s.packs.values()
        lower_rest(pack)
        parallelize(pack, machine)
        s.mark("packed")
