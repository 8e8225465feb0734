"""The default config of a contraction in workgroups, from a model: no search.

What the model knows. A work-item's tile of R rows and V vectors does R*V multiply-adds for R + V
loads from shared memory; a workgroup's tile of M by N elements does M*N*K of them for (M + N)*K
elements from global memory. Both want to be square and large, as far as registers, shared memory
and the number of workgroups (at least one for each core) allow. Where the machine's peak figures
are known, predicted times choose among such tiles (`workgroup_cost`, `workgroup_candidates`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, replace

from tilewright.ir.buffer import Space
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Hierarchy, Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.legal import dot_of
from tilewright.recipes.matrix_model import (
    fused_dims,
    matrix_configs,
    outermost_first,
    reduced_dim,
    warpgroup_configs,
)
from tilewright.recipes.mma import mma_of
from tilewright.recipes.parts import Order, Product, Reduction, Staging, Tile
from tilewright.recipes.parts.product import neighbours
from tilewright.recipes.preparing import combined
from tilewright.recipes.prologues import are_made
from tilewright.recipes.reshaping import PHASE, by_phase
from tilewright.recipes.roles import Roles, extents, factor_type, find_compute, roles
from tilewright.recipes.shared_layout import Spread, spreads
from tilewright.recipes.storing import choose_epilogue_tile
from tilewright.recipes.transposed_tiles import run_of
from tilewright.recipes.workgroup_candidates import HELD, WorkgroupCandidate, ranked, slices_of
from tilewright.recipes.workgroup_cost import Prediction, predict, work_of
from tilewright.recipes.workgroups import schedule, until_staged
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule
from tilewright.schedule.staging.work_items import run_of_item

# Candidates that are shown, at most.
_SHOWN = 60
# Registers that addresses and the vectors of A and B take.
_RESERVED = 12
# Work-items along each axis of a workgroup, at most.
_ITEMS = (16, 8)
# Elements of the reduction that are shared at a time.
_STEP = 16


def predicts(machine: Machine) -> bool:
    """Whether times are predicted: the machine's peak figures are known."""
    return machine.rates is not None


def default_configs(
    kernel: Kernel, machine: Machine, prepack: str | None = None
) -> Iterator[WorkgroupConfig]:
    """Configs for the naive ``kernel``, a contraction, on a machine with workgroups: the best, and
    then, each for the case that the one before is refused, others; none where two work-items would
    not find enough to share. ``prepack`` names the argument that may be packed beforehand."""
    combined_so = _combined(kernel, machine)
    _, main, shapes = combined_so
    if predicts(machine):
        for ranking in _rankings(kernel, machine, combined_so, prepack):
            if not ranking:
                return
            yield _finished(kernel, main, machine, ranking[0].config, prepack)
            if not ranking[0].config.staging.by_unit:
                return
    elif shapes:
        first = shapes[0]
        slices = slices_of(extents(main), roles(main), first, machine)
        first = replace(first, reduction=replace(first.reduction, slices=slices))
        yield _finished(kernel, main, machine, first, prepack)


def candidates(
    kernel: Kernel, machine: Machine, prepack: str | None = None
) -> list[WorkgroupCandidate]:
    """What the model chooses from for the naive ``kernel``, a contraction, the best first; nothing
    where two work-items would not find enough to share. How tiles keep out of one bank, and how
    they are stored, is decided for the chosen one alone. ``prepack`` is as for `default_configs`.
    Raises `UnsupportedError` for a machine without rates."""
    for ranking in _rankings(kernel, machine, _combined(kernel, machine), prepack):
        first = next(
            (candidate.config for candidate in ranking if candidate.config.staging.by_unit), None
        )
        if first is None or _is_legal(kernel, machine, first, prepack):
            return ranking[:_SHOWN]
    return []


def _rankings(
    kernel: Kernel, machine: Machine, combined_so: _Combined, prepack: str | None
) -> Iterator[list[WorkgroupCandidate]]:
    """Candidates, the best first; and again, each time without those that ask of a unit what the
    first such does, or more: whether it takes these tiles, the schedule shows, where it is
    refused. The last ones ask nothing."""
    shapes = combined_so[2]
    apart = _ranked(combined_so, machine, shapes, prepack)
    ranking = sorted(
        [*_all_fused(kernel, machine, prepack), *apart],
        key=lambda candidate: candidate.prediction.seconds,
    )
    while asked := next((a for candidate in ranking if (a := _asked(candidate.config))), None):
        yield ranking
        ranking = [candidate for candidate in ranking if not _asked(candidate.config) >= asked]
    yield _ranked(combined_so, machine, [e for e in shapes if not e.staging.by_unit], prepack)


def _asked(config: WorkgroupConfig) -> frozenset[str]:
    """What is asked of a unit that copies tiles; nothing where none does."""
    staging, reduction = config.staging, config.reduction
    asked = {
        "tiles": staging.by_unit and not reduction.fused,
        "tiles of all reduced dims": staging.by_unit and bool(reduction.fused),
        "results": staging.by_unit and bool(config.storing.tile),
        "parts for a cluster": bool(config.order.cluster),
    }
    return frozenset(name for name, is_asked in asked.items() if is_asked)


def _ranked(
    combined_so: _Combined,
    machine: Machine,
    shapes: Sequence[WorkgroupConfig],
    prepack: str | None,
) -> list[WorkgroupCandidate]:
    """Those of the ``shapes`` for a kernel and its contraction, which were combined."""
    whole, main, _ = combined_so
    alone = not are_made(whole) and _alone(main, machine, any(shape.product.k for shape in shapes))
    return ranked(work_of(whole, machine, prepack), machine, shapes, alone)


def _all_fused(kernel: Kernel, machine: Machine, prepack: str | None) -> list[WorkgroupCandidate]:
    """Candidates with all reduced dims as one, of which a unit copies tiles: a unit finds the
    pixels of all images by itself, where work-items would divide for each."""
    if not machine.copies_tiles:
        return []
    fused = _combined(kernel, machine, outermost_first)
    shapes = [
        workgroup_config
        for workgroup_config in fused[2]
        if workgroup_config.staging.by_unit and workgroup_config.reduction.fused
    ]
    return _ranked(fused, machine, shapes, prepack)


def _begun(kernel: Kernel, machine: Machine, prepack: str | None) -> KernelSchedule:
    return KernelSchedule(kernel, machine, constant=() if prepack is None else (prepack,))


def _is_legal(
    kernel: Kernel, machine: Machine, config: WorkgroupConfig, prepack: str | None
) -> bool:
    trial = _begun(kernel, machine, prepack)
    return trial.attempt(lambda: schedule(trial, machine, config))


def prediction_of(
    kernel: Kernel, machine: Machine, config: WorkgroupConfig, prepack: str | None = None
) -> Prediction | None:
    """What ``config`` is predicted to take for the naive ``kernel``, a contraction; None where a
    core has no room for it. ``prepack`` is as for `default_configs`. Raises `UnsupportedError` for
    a machine without rates."""
    trial = KernelSchedule(kernel, machine)
    trial.drop_unit_dims()
    combined(trial, halo=config.staging.halo, fused=config.reduction.fused)
    return predict(work_of(trial.kernel, machine, prepack), machine, config)


_Combined = tuple[Kernel, Compute, list[WorkgroupConfig]]


def _combined(
    kernel: Kernel, machine: Machine, join: Callable[[Compute], tuple[str, ...]] | None = None
) -> _Combined:
    """The kernel with one dim for each role, its contraction, and configs of all sizes of tiles;
    with the reduced dims as one that it is best to ``join``."""
    trial = KernelSchedule(kernel, machine)
    trial.drop_unit_dims()
    by_phase(trial)
    plain = trial.kernel
    main = find_compute(plain, MAIN)
    fused = fused_dims(main, machine) if join is None else join(main)
    fused = fused if len(fused) > 1 else ()
    combined(trial, fused=fused)
    main = find_compute(trial.kernel, MAIN)
    shapes = _shapes(main, machine, _contiguous(plain))
    shapes = [replace(shape, reduction=replace(shape.reduction, fused=fused)) for shape in shapes]
    return trial.kernel, main, shapes


def _shapes(main: Compute, machine: Machine, near: str) -> list[WorkgroupConfig]:
    """Configs with tiles of all sizes, of one stage; the first is that of a machine of which no
    more is known. The result is contiguous along dims of the role ``near``."""
    sizes, parts = extents(main), roles(main)
    if not parts.kept:
        return []
    lanes = _lanes(parts, sizes, near)
    rows = next((d for d in (*parts.m, *parts.n) if d not in (lanes, PHASE)), "")
    workgroup_configs = matrix_configs(main, machine, sizes, parts, rows, lanes)
    workgroup_configs += warpgroup_configs(main, machine, sizes, parts, rows, lanes)
    if workgroup_configs:
        return workgroup_configs
    vector = machine.lanes(main.out.buffer.dtype)
    item = _item(sizes, lanes, rows, vector, machine)
    if _items(sizes, item) < 2:
        return []
    dot = dot_of(main, machine, lanes, vector) if parts.k else None
    for most in _ITEMS:
        group = _group(sizes, item, machine.hierarchy, most)
        config = WorkgroupConfig(
            Product(_instruction(main, machine, lanes, vector), lanes),
            Tile(group, item),
            Reduction(
                _step(main, parts, sizes, machine.hierarchy, group), _reduce_order(main, parts)
            ),
            Staging(vector=_copied(main, machine)),
            Order((*parts.batch, *parts.m, *parts.n)),
        )
        if dot is not None:
            workgroup_configs.append(_of_dots(main, machine, config, dot))
        workgroup_configs.append(config)
    return list(dict.fromkeys(workgroup_configs))


def _of_dots(
    main: Compute, machine: Machine, config: WorkgroupConfig, dot: Instruction
) -> WorkgroupConfig:
    """``config`` with products of neighbours added up by ``dot``: steps of as many bytes, which are
    not converted, along the dim that pads least."""
    sizes, parts, whole = extents(main), roles(main), neighbours(dot)
    k = reduced_dim(main, parts, sizes, dot)
    most = min(config.reduction.step.values(), default=1)
    step = whole * min(most, -(-sizes[k] // whole))
    return replace(
        config,
        product=replace(config.product, instruction=dot.name, k=k),
        reduction=replace(
            config.reduction, step={k: step}, loops=(*(d for d in parts.k if d != k), k)
        ),
        staging=replace(config.staging, vector=math.gcd(config.staging.vector, step)),
    )


def _finished(
    kernel: Kernel, main: Compute, machine: Machine, config: WorkgroupConfig, prepack: str | None
) -> WorkgroupConfig:
    """``config`` with what takes a look at its tiles: how they keep out of one bank, how many there
    are, and how those of the result are stored."""
    if not machine.hierarchy.banks or config.staging.by_unit:
        return config
    ahead = config.staging.stages
    config = replace(config, staging=replace(config.staging, stages=1, fill="copy"))
    trial = _begun(kernel, machine, prepack)
    stores, tiles = until_staged(trial, machine, config), trial.kernel
    mma, vector = mma_of(tiles, machine, config), machine.lanes(main.out.buffer.dtype)
    apart: dict[str, Spread] = {}
    if mma is None or not mma.instruction.asynchronous:
        product, copied = config.product, config.staging.vector
        together = (product.k, product.neighbours(machine))
        apart = spreads(tiles, machine.hierarchy, product.lanes, vector, copied, mma, together)
    staging = replace(
        config.staging,
        padding={name: value.padding for name, value in apart.items() if value.padding},
        swizzle={name: astuple(value.swizzle) for name, value in apart.items() if value.swizzle},
    )
    needed = 0
    for copy in _copies(tiles):
        tile, spread = copy.out.buffer, apart.get(copy.operands[0].var.name, Spread())
        needed += spread.layout(tile.layout).extent * tile.dtype.bytes
    config = replace(config, staging=staging)
    steps = config.reduction.steps(extents(main), roles(main).k)
    stages, fill = _ahead(main, tiles, config, machine, (steps, needed, ahead))
    config = replace(config, staging=replace(staging, stages=stages, fill=fill))
    if mma is not None and mma.instruction.asynchronous:
        return config
    return choose_epilogue_tile(tiles, machine, config, str(stores.group), stages * needed)


def _alone(main: Compute, machine: Machine, matrices: bool) -> bool:
    """Whether the machine copies tiles by itself: it does not convert, as ``matrices`` need not."""
    total = main.out.buffer.dtype
    kept = [factor_type(main, o) if matrices else total for o in main.operands[:2]]
    converted = any(o.var.type is not t for o, t in zip(main.operands, kept, strict=False))
    return machine.copies_ahead and not converted


def _ahead(
    main: Compute,
    tiles: Kernel,
    config: WorkgroupConfig,
    machine: Machine,
    size: tuple[int, int, int],
) -> tuple[int, str]:
    """How many of the shared ``tiles`` there are, so that the next ones are under way while one is
    computed with, and how these get there. ``size`` says how many steps a workgroup goes through,
    how many bytes each shares, and how many tiles are wanted.

    The machine copies by itself where it can, which takes no registers, into as many as are wanted.
    It does not convert, nor compute; and then, as on other machines, the next tile waits in
    registers, if these have room.
    """
    alone = not are_made(tiles) and _alone(main, machine, bool(config.product.k))
    copies, (steps, needed, ahead) = _copies(tiles), size
    room = machine.hierarchy.shared // max(1, needed)
    stages = min(ahead if alone else 2, steps, room)
    group = config.product.neighbours(machine)
    if stages < 2 or not (alone or sum(_registers(copy, group) for copy in copies) <= HELD):
        return 1, "copy"
    return stages, "async" if alone else "registers"


def _copies(tiles: Kernel) -> list[Compute]:
    """The copies to shared memory."""
    return [
        s
        for s in walk_stmts(tiles.body)
        if isinstance(s, Compute) and s.out.buffer.space is Space.WORKGROUP
    ]


def _registers(copy: Compute, group: int) -> int:
    """What a work-item's part of a copy takes of its registers from load to store: the elements,
    of which a dot product's ``group`` is in one, and for each access two that say where and
    whether."""
    sizes = [int(d.extent.value) for d in copy.dims if isinstance(d.extent, Const)]
    wide = sizes[-1] if run_of_item(copy) else 1
    return math.prod(sizes) // (group if wide > 1 else 1) + 2 * math.prod(sizes) // wide


def _contiguous(kernel: Kernel) -> str:
    """The role of the dim along which the result is contiguous: a field of `Roles`, or nothing."""
    main, out = find_compute(kernel, MAIN), find_compute(kernel, RESULT)
    run = run_of(out, out.out)
    parts = roles(main)
    contiguous = [
        p for p in ("m", "n", "batch") if run is not None and run.dim in getattr(parts, p)
    ]
    return contiguous[0] if contiguous else ""


def _lanes(parts: Roles, sizes: dict[str, int], near: str) -> str:
    """The dim across vectors: the one along which the result is contiguous, or the longest."""
    best: tuple[str, ...] = getattr(parts, near) if near else ()
    return best[0] if best else max(parts.kept, key=lambda d: (d in parts.n, sizes[d]))


def _item(
    sizes: dict[str, int], lanes: str, rows: str, vector: int, machine: Machine
) -> dict[str, int]:
    """A work-item's tile: as square as its registers allow, in vectors, and smaller where the
    problem is too small for a subgroup of such."""
    room = max(1, machine.vector_registers - _RESERVED)
    vectors = min(2, -(-sizes[lanes] // vector))
    item = {lanes: vectors * vector}
    if rows:
        item[rows] = min(_power_of_two(sizes[rows]), 8, max(1, room // vectors))
    while rows and item[rows] > 1 and _items(sizes, item) < machine.hierarchy.subgroup:
        item[rows] //= 2
    if _items(sizes, item) < machine.hierarchy.subgroup:
        item[lanes] = vector
    return item


def _power_of_two(size: int) -> int:
    """The least power of two that is no less than ``size``."""
    return 1 << (size - 1).bit_length()


def _items(sizes: dict[str, int], item: dict[str, int]) -> int:
    """How many work-items' tiles the result has."""
    return math.prod(-(-sizes[dim] // size) for dim, size in item.items())


def _group(
    sizes: dict[str, int], item: dict[str, int], hierarchy: Hierarchy, most: int
) -> dict[str, int]:
    """A workgroup's tile: work-items in a square, ``most`` along each side, and no more than the
    problem has."""
    most = min(most, math.isqrt(hierarchy.workgroup))
    return {
        dim: size * min(most, _power_of_two(-(-sizes[dim] // size))) for dim, size in item.items()
    }


def _step(
    main: Compute,
    parts: Roles,
    sizes: dict[str, int],
    hierarchy: Hierarchy,
    group: dict[str, int],
) -> dict[str, int]:
    """How much of the reduction is shared at a time: along the longest reduced dim."""
    if not parts.k:
        return {}
    dim = max(parts.k, key=lambda d: sizes[d])
    elements = sum(math.prod(group.get(d, 1) for d in _dims(main, position)) for position in (0, 1))
    room = max(1, hierarchy.shared // (2 * elements * main.out.buffer.dtype.bytes))
    most = min(_STEP, 1 << (room.bit_length() - 1))
    return {dim: min(most, sizes[dim])}


def _reduce_order(main: Compute, parts: Roles) -> tuple[str, ...]:
    """Loops over the reduction, the one along which A is contiguous innermost."""
    steps = strides(main, main.operands[0].view)
    return tuple(sorted(parts.k, key=lambda d: -(steps[d] or 0)))


def _instruction(main: Compute, machine: Machine, lanes: str, vector: int) -> str:
    """The multiply-add on vectors of the result's type; none where the machine has none."""
    total = main.out.buffer.dtype
    both = all(lanes in _dims(main, position) for position in (0, 1))
    form = "fma_lanes" if both else "fma"
    name = f"{form}_{total}x{vector}"
    return name if any(i.name == name for i in machine.instructions) else ""


def _dims(main: Compute, operand: int) -> set[str]:
    """The dims that one operand depends on."""
    steps = strides(main, main.operands[operand].view)
    return {dim for dim, step in steps.items() if step != 0}


def _copied(main: Compute, machine: Machine) -> int:
    """Elements that a work-item copies at a time: a vector of the narrower operand."""
    return max(1, min(machine.lanes(o.var.type) for o in main.operands[:2]))
