"""The default config of a contraction in workgroups, from a model: no search.

What the model knows. A work-item's tile of R rows and V vectors does R*V multiply-adds for R + V
loads from shared memory; a workgroup's tile of M by N elements does M*N*K of them for (M + N)*K
elements from global memory. Both want to be square and large, as far as registers, shared memory
and the number of workgroups (at least one for each core) allow.
"""

from __future__ import annotations

import math
from dataclasses import astuple, replace

from tilewright.ir.buffer import Space
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Hierarchy, Machine
from tilewright.recipes.banks import spreads
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.joining import joined_dims
from tilewright.recipes.matrix_model import matrix_config
from tilewright.recipes.preparing import combined
from tilewright.recipes.reordering import run_of
from tilewright.recipes.roles import (
    MAIN,
    RESULT,
    Roles,
    extents,
    factor_type,
    find_compute,
    roles,
    strides,
)
from tilewright.recipes.storing import choose_through
from tilewright.recipes.workgroups import is_vector, tiles_of
from tilewright.schedule.unit import drop_unit_dims

# Registers that addresses and the vectors of A and B take.
_RESERVED = 12
# Work-items along each axis of a workgroup, at most.
_ITEMS = 16
# Elements of the reduction that are shared at a time.
_STEP = 16
# Tiles that are shared at a time, where copies run by themselves: one is computed with.
_STAGES = 3
# Registers of a work-item that the next tiles may take.
_HELD = 28
# Steps of the reduction that a slice of it has at least.
_STEPS_OF_SLICE = 8


def default_config(
    kernel: Kernel, machine: Machine, prepack: str | None = None
) -> WorkgroupConfig | None:
    """The config for the naive ``kernel``, a contraction, on a machine with workgroups; None where
    two work-items would not find enough to share. ``prepack`` names the argument that may be packed
    beforehand."""
    assert machine.hierarchy is not None
    naive, kernel = kernel, drop_unit_dims(kernel)
    near = _contiguous(kernel)
    joined = joined_dims(find_compute(kernel, MAIN), machine)
    kernel = combined(kernel, joined=joined)
    main = find_compute(kernel, MAIN)
    sizes, parts = extents(main), roles(main)
    if not parts.kept:
        return None
    lanes = _lanes(parts, sizes, near)
    found = matrix_config(main, machine, sizes, parts, lanes)
    if found is not None:
        slices = _slices(sizes, parts, dict(found.group), dict(found.step), machine)
        found = replace(found, joined=joined, slices=slices)
        tiles = tiles_of(naive, machine, found, prepack)
        return _at_the_ends(main, tiles, found, machine, _steps(sizes, parts, found))
    vector = machine.lanes(main.out.buffer.dtype)
    rows = next((d for d in (*parts.m, *parts.n) if d != lanes), "")
    item = _item(sizes, lanes, rows, vector, machine)
    group = _group(sizes, item, machine.hierarchy)
    if _items(sizes, item) < 2:
        return None
    step = _step(main, parts, sizes, machine.hierarchy, group)
    slices = _slices(sizes, parts, group, step, machine)
    config = WorkgroupConfig(
        instruction=_instruction(main, machine, lanes, vector),
        lanes=lanes,
        group=group,
        item=item,
        order=(*parts.batch, *parts.m, *parts.n),
        step=step,
        reduce_order=_reduce_order(main, parts),
        slices=slices,
        vector=_copied(main, machine),
    )
    if not machine.banked:
        return config
    tiles = tiles_of(naive, machine, config, prepack)
    apart = spreads(tiles, machine.hierarchy, lanes, vector, config.vector)
    config = replace(
        config,
        padding={name: each.padding for name, each in apart.items() if each.padding},
        swizzle={name: astuple(each.swizzle) for name, each in apart.items() if each.swizzle},
    )
    return _at_the_ends(main, tiles, config, machine, _steps(sizes, parts, config))


def _at_the_ends(
    main: Compute, tiles: Kernel, config: WorkgroupConfig, machine: Machine, steps: int
) -> WorkgroupConfig:
    """``config`` with ways for tiles to get into shared memory, and for the result to get out."""
    stages, fill = _ahead(main, tiles, config, machine, steps)
    config = replace(config, stages=stages, fill=fill)
    taken = stages * sum(_padded_bytes(copy, config) for copy in _copies(tiles))
    return choose_through(tiles, machine, config, taken)


def _steps(sizes: dict[str, int], parts: Roles, config: WorkgroupConfig) -> int:
    """The steps that one workgroup goes through."""
    slices = dict(config.slices)
    return math.prod(-(-sizes[d] // (config.step.get(d, 1) * slices.get(d, 1))) for d in parts.k)


def _ahead(
    main: Compute, tiles: Kernel, config: WorkgroupConfig, machine: Machine, steps: int
) -> tuple[int, str]:
    """How many of the shared ``tiles`` there are, so that the next ones are under way while one is
    computed with, and how these get there.

    The machine copies by itself where it can, which takes no registers and goes two steps ahead.
    It does not convert; and then, as on other machines, the next tile waits in registers, if these
    have room.
    """
    assert machine.hierarchy is not None
    total = main.out.buffer.dtype
    kept = [factor_type(main, o) if config.k else total for o in main.operands[:2]]
    converted = any(o.var.type is not t for o, t in zip(main.operands, kept, strict=False))
    alone = "async_copy" in machine.features and not converted
    copies = _copies(tiles)
    room = machine.hierarchy.shared // max(1, sum(_padded_bytes(c, config) for c in copies))
    stages = min(_STAGES if alone else 2, steps, room)
    if stages < 2 or not (alone or sum(map(_registers, copies)) <= _HELD):
        return 1, "copy"
    return stages, "async" if alone else "registers"


def _copies(tiles: Kernel) -> list[Compute]:
    """The copies to shared memory."""
    return [
        s
        for s in walk_stmts(tiles.body)
        if isinstance(s, Compute) and s.out.buffer.space is Space.WORKGROUP
    ]


def _padded_bytes(copy: Compute, config: WorkgroupConfig) -> int:
    """Bytes of the tile that ``copy`` fills, with its rows as far apart as ``config`` has it."""
    tile = copy.out.buffer
    padding = config.padding.get(copy.operands[0].var.name, 0)
    return tile.bytes + tile.layout.blocks[0].size * padding * tile.dtype.bytes


def _registers(copy: Compute) -> int:
    """What a work-item's part of a copy takes of its registers from load to store: the elements,
    and for each access two that say where and whether."""
    sizes = [int(d.extent.value) for d in copy.dims if isinstance(d.extent, Const)]
    wide = sizes[-1] if sizes and is_vector(copy) else 1
    return math.prod(sizes) + 2 * math.prod(sizes) // wide


def _slices(
    sizes: dict[str, int],
    parts: Roles,
    group: dict[str, int],
    step: dict[str, int],
    machine: Machine,
) -> tuple[tuple[str, int], ...]:
    """Parts of the reduction, where tiles of the result alone would leave cores idle.

    Each part still has a few steps, or what is added up afterwards costs more than it gains.
    """
    groups = math.prod(-(-sizes[d] // group.get(d, 1)) for d in parts.kept)
    steps = math.prod(-(-sizes[d] // step.get(d, 1)) for d in parts.k)
    wanted = min(machine.cores // max(1, groups), steps // _STEPS_OF_SLICE)
    # Of most parts, those that pad the reduction least.
    best = (1.0, "", 1)
    for dim in parts.k:
        whole = -(-sizes[dim] // step.get(dim, 1))
        for count in range(2, min(wanted, whole) + 1):
            gain = count * whole / (-(-whole // count) * count)
            best = max(best, (gain, dim, count))
    return ((best[1], best[2]),) if best[1] else ()


def _contiguous(kernel: Kernel) -> str:
    """The role of the dim along which the result is contiguous: a field of `Roles`, or nothing."""
    main, out = find_compute(kernel, MAIN), find_compute(kernel, RESULT)
    run = run_of(out, out.out)
    parts = roles(main)
    found = [p for p in ("m", "n", "batch") if run is not None and run.dim in getattr(parts, p)]
    return found[0] if found else ""


def _lanes(parts: Roles, sizes: dict[str, int], near: str) -> str:
    """The dim across vectors: the one along which the result is contiguous, or the longest."""
    best: tuple[str, ...] = getattr(parts, near) if near else ()
    return best[0] if best else max(parts.kept, key=lambda d: (d in parts.n, sizes[d]))


def _item(
    sizes: dict[str, int], lanes: str, rows: str, vector: int, machine: Machine
) -> dict[str, int]:
    """A work-item's tile: as square as its registers allow, in vectors, and smaller where the
    problem is too small for a subgroup of such."""
    assert machine.hierarchy is not None
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


def _group(sizes: dict[str, int], item: dict[str, int], hierarchy: Hierarchy) -> dict[str, int]:
    """A workgroup's tile: work-items in a square, no more than the problem has."""
    most = min(_ITEMS, math.isqrt(hierarchy.workgroup))
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
