"""Where the lanes of a vector lie, where that is known while text is written: such as in blocks of
a layout.

    vector for c in 16:
      x = src[c // 4, c % 4]

Lanes 0 to 3 lie side by side, and so do 4 to 7 somewhere else: each such run is one access.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from tilewright.ir.expr import Expr, Var
from tilewright.ir.visit import reads_memory, variables
from tilewright.targets.llvm.expressions import Expressions
from tilewright.targets.llvm.plan import Address, Terms
from tilewright.targets.llvm.running import Lanes, differs
from tilewright.targets.llvm.values import Value


def lane_places(address: Address, lanes: Lanes, exprs: Expressions) -> list[int] | None:
    """The offset of each active lane's element, but for what is the same for all of them; None
    where lanes are told apart at run time only."""
    apart = told_apart(address, lanes, exprs)
    if not all(_is_known(atom, lanes, exprs) for atom, _ in apart):
        return None
    per_lane, places = address.lane_coefficient(lanes.var), []
    for lane in range(lanes.active):
        place = per_lane * lane
        with exprs.bound(lanes.var, lane):
            for atom, step in apart:
                number = exprs.evaluate(atom, {})
                assert not isinstance(number, Value)
                place += int(number) * step
        places.append(place)
    return places


def told_apart(address: Address, lanes: Lanes, exprs: Expressions) -> Terms:
    """The terms of an address that may differ by lane, beside the coefficient of lanes."""
    return tuple(term for term in address.loose if differs(term[0], lanes, exprs.variables))


def _is_known(atom: Expr, lanes: Lanes, exprs: Expressions) -> bool:
    """Whether ``atom`` is a number for each lane."""
    return not reads_memory(atom) and all(
        variable is lanes.var or isinstance(exprs.variables.get(variable), int)
        for variable in variables(atom)
        if isinstance(variable, Var)
    )


def runs_of(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first lane and the length of each run of lanes that lie side by side; lengths are powers
    of 2."""
    first = 0
    while first < len(places):
        length = 1
        while _is_run(places[first : first + 2 * length], 2 * length):
            length *= 2
        yield first, length
        first += length


def vectors_over(span: int, most: int) -> tuple[list[int], int]:
    """The first elements of vectors that cover ``span`` elements and none beyond, and the lanes of
    each: a power of 2, ``most`` at most. The last one overlaps the one before it."""
    width = min(most, 1 << (span.bit_length() - 1))
    return [min(start, span - width) for start in range(0, span, width)], width


def parts_of(places: Sequence[int], starts: Sequence[int]) -> list[dict[int, int]]:
    """For each vector, by its first element: the lanes whose elements it holds, and where."""
    parts: list[dict[int, int]] = [{} for _ in starts]
    for lane, place in enumerate(places):
        number = bisect_right(starts, place) - 1
        parts[number][lane] = place - starts[number]
    return parts


def _is_run(places: Sequence[int], length: int) -> bool:
    return list(places) == [places[0] + lane for lane in range(length)]
