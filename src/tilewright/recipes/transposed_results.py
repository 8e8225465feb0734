"""Results of a contraction whose neighbours in memory are not those of the lanes: a block of them
at a time lies in a cache as the lanes make it, and is transposed in registers on its way to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, gcd, prod

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.stmt import Kernel
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.model import Shape
from tilewright.recipes.roles import find_compute
from tilewright.recipes.transposed_tiles import Transposition, transposition
from tilewright.schedule.schedule import KernelSchedule

# The share of the first cache that a block has, and of the squares that its results fill.
_SHARE, _FILLED = 1 / 8, 0.85
# Products that make a result, up to which how it is stored takes time that can be told.
_DEEPEST = 512


def run_across(shape: Shape, lanes: str) -> str | None:
    """The dim along which results are neighbours in memory, where that is not ``lanes``."""
    if shape.c.get(lanes) == 1:
        return None
    return next((d for d in shape.roles.kept if shape.c.get(d) == 1 and shape.sizes[d] > 1), None)


def turned(
    config: ContractionConfig, shape: Shape, total: DType, machine: Machine
) -> ContractionConfig | None:
    """``config`` with results that are transposed, block by block, as wide as a register tile; None
    where this is no faster, or cannot be."""
    across, squares = run_across(shape, config.lanes), machine.transposes(total)
    depth = prod(shape.sizes[dim] for dim in shape.roles.k)
    if across is None or not squares or config.block or depth > _DEEPEST:
        return None
    if config.order[-1] != config.lanes and not _evicts(config, shape, machine):
        return None
    length, side = shape.sizes[across], squares[0].sizes["n"]
    width, columns = config.tile[config.lanes], shape.sizes[config.lanes]
    # Blocks are as large as one another: what they hand over is.
    width = width if columns % width == 0 else columns
    most = int(_SHARE * machine.caches[0]) // (width * total.bytes)
    fitting = [n for n in range(1, min(length, most) + 1) if length % n == 0]
    full = [n for n in fitting if n >= _FILLED * ceil(n / side) * side]
    if not full:
        return None
    sizes = {across: full[-1], config.lanes: width}
    return replace(config, transpose=True, block={dim: sizes.get(dim, 1) for dim in config.order})


def _evicts(config: ContractionConfig, shape: Shape, machine: Machine) -> bool:
    """Whether the lines that a register tile stores to share sets of a cache that are too small for
    them. Otherwise its neighbours, if they come next, complete them there."""
    apart = (shape.c.get(config.lanes) or 0) * shape.element_c
    way = machine.core.way
    return config.tile[config.lanes] * gcd(apart, way) >= machine.core.ways * way


def handed_over(s: KernelSchedule, order: Sequence[str]) -> str:
    """Has the result read a copy of the block's sums, in the ``order`` of its dims, and gives the
    compute that fills it."""
    sums = find_compute(s.kernel, MAIN).out.buffer
    operands = find_compute(s.kernel, RESULT).operands
    name = next(each.var.name for each in operands if each.view.buffer is sums)
    layout = [(dim, None) for dim in order]
    made = s.stage(RESULT, name, at=RESULT, shape="dims", space=Space.WORKGROUP, layout=layout)
    copy: str = made["copy"]
    return copy


def planned(kernel: Kernel, machine: Machine, config: object) -> Transposition:
    """How the result is transposed. Raises `ScheduleError` where that makes no difference."""
    plan = transposition(kernel, RESULT, machine, own=True)
    if plan is None:
        raise ScheduleError(
            "transpose=True: the result has its neighbours along the lanes, or the machine does "
            "not transpose its type",
            where=f"config {config!r}",
            cure="leave transpose out",
        )
    return plan
