"""A contraction's tiles on instructions that multiply matrices in shared memory.

Like `matrices`, but A and B stay where they were copied to, as whole tiles, by a subgroup of its
own: the others hold nothing but their sums.
"""

from __future__ import annotations

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Swizzle
from tilewright.ir.stmt import Compute, Kernel
from tilewright.layout.rows import Rows
from tilewright.machines.tensor_map import MOST_BOX
from tilewright.machines.warpgroups import TILE_LOAD
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.mapping import ordered
from tilewright.recipes.matrices import Matrices, rows_along
from tilewright.recipes.registers import division
from tilewright.recipes.roles import MAIN, find_compute, strides
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.schedule.collapse import fuse_tensor_dims
from tilewright.schedule.fragments import hold
from tilewright.schedule.place import holds_loop
from tilewright.schedule.share_tiles import share_tiles
from tilewright.schedule.specialize import specialize
from tilewright.schedule.storage import BlockList
from tilewright.schedule.tensorize import tensorize


def boxed(kernel: Kernel) -> Kernel:
    """``kernel`` with operands of one dim where they have several that are digits of one of the
    compute's: of those, tiles are boxes."""
    for position in range(2):
        kernel = fuse_tensor_dims(
            kernel, find_compute(kernel, MAIN).operands[position].view.buffer.name
        )
    return kernel


def specialized(
    result: ScheduledKernel, found: Matrices, config: WorkgroupConfig, steps: str
) -> None:
    """What the loop ``steps`` reads is copied whole, and then by a subgroup of its own, through all
    the tiles that a workgroup takes."""
    kernel = result.kernel
    if not holds_loop(kernel.body, steps):
        raise ScheduleError(
            "all of the reduction is one step",
            where=f"config {config!r}",
            why="what is copied ahead are further steps",
            cure="make `step` smaller, or choose another fill",
        )
    main = find_compute(kernel, MAIN)
    layout: dict[str, BlockList] = {}
    swizzle: dict[str, Swizzle] = {}
    boxes: dict[str, dict[str, int]] = {}
    for position, operand in enumerate(main.operands[:2]):
        name = operand.var.name
        rows = _rows(main, found, config, position)
        along, across = found.dims[rows.along], found.dims[rows.across]
        layout[name] = [(along, None), (across, None), (along, rows.length)]
        swizzle[name] = rows.swizzle
        size = _tile(config, found, across)
        most = max(n for n in range(1, min(size, MOST_BOX) + 1) if size % n == 0)
        boxes[name] = {along: rows.length, across: most}
    kernel = share_tiles(
        kernel, MAIN, list(layout), steps, layout=layout, swizzle=swizzle, boxes=boxes
    )
    result.stage("shared", kernel)
    result.stage("ordered", ordered(kernel, config))
    divided = division(found.machine, config, found.instruction.out.dtype.bytes)
    registers = (divided.copying, divided.multiplying) if divided is not None else None
    result.stage(
        "specialized", specialize(result.kernel, steps, config.stages, TILE_LOAD, registers)
    )


def shared_rows(
    main: Compute, found: Matrices, config: WorkgroupConfig, position: int, items: list[str]
) -> tuple[BlockList, Swizzle]:
    """How work-items lay an operand out in shared memory for instructions that read it there: in
    rows, and those of the ``items`` (loops around, that it depends on) one behind the other."""
    rows = _rows(main, found, config, position)
    along, across = found.dims[rows.along], found.dims[rows.across]
    outer: list[tuple[str, int | None]] = [(item, None) for item in items]
    if rows.along == "k":
        return [(along, None), *outer, (across, None), (along, rows.length)], rows.swizzle
    return [*outer, (along, None), (across, None), (along, rows.length)], rows.swizzle


def _tile(config: WorkgroupConfig, found: Matrices, dim: str) -> int:
    """How much of ``dim`` a workgroup shares at a time."""
    return config.step.get(dim, 1) if dim == found.dims["k"] else config.group.get(dim, 1)


def _rows(main: Compute, found: Matrices, config: WorkgroupConfig, position: int) -> Rows:
    """How an operand lies in shared memory: in the longest rows that its tile has, along the dim
    that its own memory has innermost."""
    operand = main.operands[position]
    steps = strides(main, operand.view)
    used = {own for own, dim in found.dims.items() if steps.get(dim, 0) != 0}
    along = rows_along(main, found, position)
    size = _tile(config, found, along)
    fitting = [
        rows
        for role in found.instruction.operands
        for rows in role.rows
        if {rows.along, rows.across} == used
        and found.dims[rows.along] == along
        and size % rows.length == 0
    ]
    if not fitting:
        raise ScheduleError(
            f"{found.instruction.name} takes no tile of '{operand.var.name}'",
            where=f"config {config!r}",
            why=f"its rows are along {along!r}, of which a tile has {size}",
            cure="choose a step (or a group) of whole rows of 32 bytes",
        )
    return max(fitting, key=lambda rows: rows.length)


def in_rows(kernel: Kernel, found: Matrices) -> Kernel:
    """The products of one step on what is shared, and sums in the registers of lanes."""
    out, fragment = find_compute(kernel, MAIN).out.buffer.name, found.instruction.out.fragment
    assert fragment is not None
    kernel = hold(kernel, MAIN, out, fragment, {d: found.dims[d] for d in fragment.dims})
    return tensorize(kernel, MAIN, found.instruction, found.dims)
