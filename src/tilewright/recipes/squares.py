"""In which order a transposition goes through its squares.

A square's rows are seldom whole cache lines, on either side. What is left of a line is stored, or
read, with the next square along it; until then the line has to stay in the first cache, where rows
whose distance is a multiple of a large power of two share few sets. So blocks of squares have no
more rows than that cache keeps, and squares follow one another along the side that it keeps fewer
rows of. Larger arrays than the last cache holds have two more concerns: lines that are stored past
the caches have to be full soon, and pages that are opened should be used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from tilewright.ir.stmt import Compute, View
from tilewright.machines.machine import Machine
from tilewright.recipes.roles import find_compute
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.queries.usual import usual
from tilewright.schedule.schedule import KernelSchedule

# The dim along which the result is contiguous, and that of what is transposed.
Sides = tuple[str, str]

# Squares in a row of a block, if the cache keeps as many: as many rows go on as streams.
_SQUARES = 4
# Lines in a row of the blocks that use pages up: some hundred pages on each side, which is what a
# processor remembers.
_LINES = 16


def squares_of(s: KernelSchedule, root: str, sides: Sides, size: int, machine: Machine) -> None:
    """``root`` in squares of ``size``, in blocks of these, in an order that caches like; dims that
    are no side are outside."""
    for sizes, order in _levels(find_compute(s.kernel, root), sides, size, machine):
        s.tile(root, sizes, order)


def _levels(
    compute: Compute, sides: Sides, size: int, machine: Machine
) -> Iterator[tuple[dict[str, int], Sides]]:
    """Tiles, and how their loops nest, the outermost first."""
    across, along = sides
    line = max(size, machine.core.line // min(each.buffer.dtype.bytes for each in _views(compute)))
    if usual(compute.out.buffer.span_bytes) >= machine.caches[-1]:
        yield dict.fromkeys(sides, _LINES * line), sides
        block, order = dict.fromkeys(sides, line), sides
        inside = (along, across)
    else:
        sources = (o.view for o in compute.operands if strides(compute, o.view).get(along) == 1)
        read = _rows_kept(compute, sources, across, machine)
        stored = _rows_kept(compute, (compute.out,), along, machine)
        most = _SQUARES * size
        block = {across: max(line, min(most, read)), along: max(line, min(most, stored))}
        inside = order = (along, across) if stored < most and stored <= read else sides
    yield block, order
    if set(block.values()) != {size}:
        yield dict.fromkeys(sides, size), inside


def _views(compute: Compute) -> list[View]:
    return [compute.out, *(operand.view for operand in compute.operands)]


def _rows_kept(compute: Compute, views: Iterable[View], rows: str, machine: Machine) -> int:
    """How many of the ``rows`` of each view half of the first cache keeps a line of: the other half
    is for the other side."""
    distances = ((strides(compute, v).get(rows) or 1) * v.buffer.dtype.bytes for v in views)
    ways, way = machine.core.ways, machine.core.way
    return ways // 2 * (way // max((gcd(each, way) for each in distances), default=1))
