"""A contraction's tiles on instructions that multiply matrices in shared memory.

Like `matrices`, but A and B stay where they were copied to, as whole tiles, by a subgroup of its
own: the others hold nothing but their sums. All start with the same number of registers for a
lane; the subgroup that copies gives most of its own away, and those that multiply take them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.errors import ScheduleError
from tilewright.facts.affine import is_linear
from tilewright.ir.buffer import Swizzle
from tilewright.ir.expr import conjuncts, var
from tilewright.ir.stmt import Compute, Kernel, View
from tilewright.ir.uses import view_variables
from tilewright.layout.roles import MAIN, RESULT
from tilewright.layout.rows import Rows
from tilewright.machines.machine import Machine
from tilewright.machines.tile_unit import TileUnit
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.mapping import Stores, cluster_loops, ordered
from tilewright.recipes.mma import Mma, finished, held_sums, rows_along
from tilewright.recipes.roles import extents, find_compute
from tilewright.recipes.shared_layout import item_loops
from tilewright.recipes.storing import in_pieces
from tilewright.schedule.queries.place import holds_loop
from tilewright.schedule.queries.runs import steps, strides
from tilewright.schedule.queries.storage import BlockList
from tilewright.schedule.schedule import KernelSchedule
from tilewright.schedule.staging.copiers import CopyUnit
from tilewright.schedule.staging.staging import Shape


def boxed(kernel: Kernel, result: bool = False) -> list[str]:
    """The operands that get one dim where they have several that are digits of one of the
    compute's: of those, tiles are boxes. What a mask hides by a digit is no longer outside of such
    a tensor: those stay, and their tiles are columns of pixels. With ``result``, that, too."""
    views = [operand.view for operand in find_compute(kernel, MAIN).operands[:2]]
    names = [view.buffer.name for view in views if not conjuncts(view.mask)]
    return [*names, find_compute(kernel, RESULT).out.buffer.name] if result else names


def warp_specialized(
    s: KernelSchedule, mma: Mma, config: WorkgroupConfig, stores: Stores, steps: str
) -> list[str]:
    """What the loop ``steps`` reads is copied whole, and then by a subgroup of its own, through all
    the tiles that a workgroup takes; what comes of it, the unit may store, too. Gives the compute
    that finishes what it stores."""
    if not holds_loop(s.kernel.body, steps):
        raise ScheduleError(
            "all of the reduction is one step",
            where=f"config {config!r}",
            why="what is copied ahead are further steps",
            cure="make `step` smaller, or choose another fill",
        )
    unit = mma.machine.tile_unit
    assert unit is not None
    main = find_compute(s.kernel, MAIN)
    for position, operand in enumerate(main.operands[:2]):
        name = operand.var.name
        rows = _rows(main, mma, config, position)
        along, across = mma.dims[rows.along], mma.dims[rows.across]
        shape, outer = _tiled_by(s.kernel, operand.view)
        size = _tile(config, mma, across)
        if shape == "dims":
            # Each subgroup's part is a tile of its own.
            size = extents(main)[across]
        s.stage(
            MAIN,
            name,
            steps,
            by=CopyUnit({along: rows.length, across: _box(size, unit)}),
            shape=shape,
            layout=_in_tiles(rows, (along, across), outer),
            swizzle=rows.swizzle,
        )
    s.mark("staged")
    ordered(s, config)
    s.mark("ordered")
    finishing: list[str] = []
    if config.storing.tile:
        finishing = _stored(s, config, stores.group, mma, unit)
        s.mark("stored")
    divided = division(mma.machine, config, mma.instruction.out.dtype.bytes)
    registers = (divided.copying, divided.multiplying) if divided is not None else None
    s.specialize_warps(steps, config.staging.stages, unit.load, registers)
    s.mark("warp-specialized")
    for loop in cluster_loops(s.kernel):
        s.multicast(loop, unit.load)
        s.mark("multicast")
    return finishing


def _stored(
    s: KernelSchedule, config: WorkgroupConfig, root: str, mma: Mma, unit: TileUnit
) -> list[str]:
    """Tiles of the result, which ``root`` stores, in pieces of ``config.storing.tile``, which a
    unit stores as boxes: each in the longest swizzled rows along the tensor's innermost dim. Gives
    the compute that finishes them."""
    in_pieces(s, root, config.storing.tile)
    finishing = finished(s, root, mma)
    store = find_compute(s.kernel, root)
    apart, sizes = steps(store.dims, store.out), extents(store)
    outer = sorted(sizes, key=lambda name: -apart[var(name)])
    along = min(sizes, key=lambda name: (apart[var(name)] != 1, apart[var(name)]))
    outer.remove(along)
    width = store.out.buffer.dtype.bytes
    row = next((n for n in unit.rows if sizes[along] * width % n == 0), sizes[along] * width)
    length = row // width
    s.stage_result(
        root,
        by=CopyUnit(
            {along: length, **{name: _box(sizes[name], unit) for name in outer}},
            unit.store,
        ),
        layout=[(along, None), *((name, None) for name in outer), (along, length)],
        swizzle=unit.swizzle(row, width) if row in unit.rows else None,
    )
    return finishing


def _box(size: int, unit: TileUnit) -> int:
    """The most of ``size`` that boxes have along a dim, all of them alike."""
    return max(n for n in range(1, min(size, unit.most) + 1) if size % n == 0)


def _tiled_by(kernel: Kernel, view: View) -> tuple[Shape, list[str]]:
    """Whether what is read through ``view`` is a box of its tensor; otherwise, the loops over
    subgroups that it depends on."""
    main = find_compute(kernel, MAIN)
    items = dict.fromkeys(loop.var for loop in item_loops(kernel, MAIN))
    inner = {d.var for d in main.dims} | set(items)
    if all(is_linear(index, inner) for index in view.index):
        return "box", []
    used = view_variables(view)
    return "dims", [item.name for item in items if item in used]


def shared_rows(
    main: Compute, mma: Mma, config: WorkgroupConfig, position: int, items: list[str]
) -> tuple[BlockList, Swizzle]:
    """How work-items lay an operand out in shared memory for instructions that read it there: in
    rows, and those of the ``items`` (loops around, that it depends on) one behind the other."""
    rows = _rows(main, mma, config, position)
    along, across = mma.dims[rows.along], mma.dims[rows.across]
    return _in_tiles(rows, (along, across), items), rows.swizzle


def _in_tiles(rows: Rows, dims: tuple[str, str], items: Sequence[str]) -> BlockList:
    """The layout of an operand with ``rows`` along the first of the ``dims`` and across the second,
    those of the ``items`` one behind the other."""
    along, across = dims
    outer: list[tuple[str, int | None]] = [(item, None) for item in items]
    blocks: list[tuple[str, int | None]] = [(across, None), (along, rows.length)]
    if rows.along == "k":
        return [(along, None), *outer, *blocks]
    return [*outer, (along, None), *blocks]


def _tile(config: WorkgroupConfig, mma: Mma, dim: str) -> int:
    """How much of ``dim`` a workgroup shares at a time."""
    sizes = config.reduction.step if dim == mma.dims["k"] else config.tile.group
    return sizes.get(dim, 1)


def _rows(main: Compute, mma: Mma, config: WorkgroupConfig, position: int) -> Rows:
    """How an operand lies in shared memory: in the longest rows that its tile has, along the dim
    that its own memory has innermost."""
    operand = main.operands[position]
    steps = strides(main, operand.view)
    used = {name for name, dim in mma.dims.items() if steps.get(dim, 0) != 0}
    along = rows_along(main, mma, position)
    size = _tile(config, mma, along)
    fitting = [
        rows
        for role in mma.instruction.operands
        for rows in role.rows
        if {rows.along, rows.across} == used
        and mma.dims[rows.along] == along
        and size % rows.length == 0
    ]
    if not fitting:
        raise ScheduleError(
            f"{mma.instruction.name} takes no tile of '{operand.var.name}'",
            where=f"config {config!r}",
            why=f"its rows are along {along!r}, of which a tile has {size}",
            cure="choose a step (or a group) of whole rows of 32 bytes",
        )
    return max(fitting, key=lambda rows: rows.length)


def in_rows(s: KernelSchedule, mma: Mma, *others: str) -> None:
    """The products of one step on what is shared, and sums in the registers of lanes, to which
    ``others`` add, too."""
    held_sums(s, mma, MAIN, *others)
    s.tensorize(MAIN, mma.instruction, mma.dims)


# Registers of a work-item that addresses, counters and masks take, and the most that it has.
_ADDRESSES, MOST_REGISTERS = 40, 255
# Registers are given out in such numbers.
_REGISTERS = 8
# What a lane keeps at least of those that only have tiles copied: the least that there is, which
# was enough for places, phases and corners in all that was assembled.
_COPYING = 24
# What a lane that multiplies needs besides, for each of two tensors that the epilogue reads (of
# more, some are read later). An estimate: 192 sums and a bias did not fit 240, 160 did; 160 sums, a
# bias and a residual did not, 128 did.
_READ, _TOGETHER = 24, 2


@dataclass(frozen=True)
class Division:
    """Registers of a lane: when the workgroup starts (``launch``), and then of the subgroup that
    copies and of the others."""

    launch: int
    copying: int
    multiplying: int


def division(machine: Machine, config: WorkgroupConfig, total: int) -> Division | None:
    """How the subgroups of a workgroup divide registers; None where they keep what they start with:
    where none runs other code, or where a core has room for a second such workgroup. ``total``:
    bytes of an element of the sum."""
    if not config.staging.by_unit:
        return None
    lanes, multiplying = config.product.together(machine), config.items
    subgroups, held = multiplying + 1, machine.peak_rates.registers
    if 2 * needed(machine, config, total, 0.0) * subgroups * lanes <= held:
        return None
    # Of what the core has: then one workgroup is all that it holds, and all are its own.
    launch = _whole(min(MOST_REGISTERS, held // (subgroups * lanes)))
    most = _whole(min(MOST_REGISTERS, (launch * subgroups - _COPYING) // multiplying))
    if most <= launch:
        return None
    return Division(launch, launch * subgroups - most * multiplying, most)


def registers_of(
    machine: Machine, config: WorkgroupConfig, total: int, copied: float, *, read: int
) -> int:
    """Registers of a work-item when its workgroup starts; where those that multiply need more than
    they can take, so many. ``copied``: bytes that it copies in a step; ``read``: how
    many tensors the epilogue reads."""
    need = needed(machine, config, total, copied)
    divided = division(machine, config, total)
    if divided is None:
        return need
    need += _READ * min(read, _TOGETHER)
    return divided.launch if need <= divided.multiplying else need


def needed(machine: Machine, config: WorkgroupConfig, total: int, copied: float) -> int:
    """Registers of a work-item: what it accumulates, what it multiplies, and what it copies."""
    product, item = config.product, config.tile.item
    instruction, lanes = product.found(machine), product.together(machine)
    words = math.prod(item.values()) * total / lanes
    if instruction is None or lanes == 1:
        words += sum(item.values()) * total
    else:
        ahead = config.staging.loads_ahead(machine, product, config.reduction.step)
        for role in instruction.operands:
            # Those that an instruction reads from shared memory take none.
            if role.fragment is not None:
                dim = next(d for d in role.fragment.dims if d != "k")
                size = item.get(product.lanes, 1) if dim == "n" else _rows_of(config)
                words += (1 + ahead) * size * instruction.sizes["k"] * role.dtype.bytes / lanes
    if config.staging.fill == "registers":
        words += copied
    return _whole(_ADDRESSES + math.ceil(words / 4) + _REGISTERS - 1)


def _rows_of(config: WorkgroupConfig) -> int:
    return math.prod(size for d, size in config.tile.item.items() if d != config.product.lanes)


def _whole(count: int) -> int:
    """The most registers that are given out, of so many."""
    return count // _REGISTERS * _REGISTERS
