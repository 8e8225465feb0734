"""The values of a vector's lanes as far as they are known while text is written.

    x = src[l - 1 | 1 <= o and 1 <= l and l < 3]

Lanes 0 and 3, 4, ... are off, whatever ``o`` is: conditions on the lane's number decide. Masked
loads need to know (see `masked`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.conversions import represented
from tilewright.dtypes import boolean
from tilewright.ir.expr import Binary, Unary
from tilewright.ir.operators import BINARY, UNARY
from tilewright.targets.llvm.values import LaneValues, Number, Result, Value

# The operand that decides the result, whatever the other is.
_DECIDES = {"and": False, "or": True}


def lane_values_of(
    expr: Binary | Unary, operands: Sequence[Result], lanes: int
) -> LaneValues | None:
    """The value of ``expr`` in each lane; None if no lane's is known."""
    unknown = [isinstance(operand, Value) and operand.lane_values is None for operand in operands]
    if all(unknown) or (any(unknown) and expr.op not in _DECIDES):
        return None

    def work() -> tuple[Number | None, ...]:
        rows = zip(*(_lanes_of(operand, lanes) for operand in operands), strict=True)
        return tuple(_lane(expr, row) for row in rows)

    return LaneValues(work)


def both_hold(a: Value, b: Value) -> LaneValues | None:
    """The lane values of ``a and b``; a scalar is the same in all lanes."""
    if a.lane_values is None and b.lane_values is None:
        return None
    lanes = max(a.lanes, b.lanes)

    def work() -> tuple[Number | None, ...]:
        pairs = zip(_lanes_of(a, lanes), _lanes_of(b, lanes), strict=True)
        return tuple(_decided("and", pair) for pair in pairs)

    return LaneValues(work)


def none_holds(value: Value) -> LaneValues | None:
    """The lane values of ``not value``, a condition."""
    values = value.lane_values
    if values is None:
        return None
    return LaneValues(lambda: tuple(None if flag is None else not flag for flag in values.lanes))


def parts_on(mask: Value | None, active: int, count: int, size: int) -> Iterator[bool]:
    """For each ``size`` of ``count`` lanes, whether one of them is active and may be on."""
    flags: Sequence[Number | None] = (None,) * count
    if mask is not None and mask.lane_values is not None:
        flags = mask.lane_values.lanes
    for start in range(0, count, size):
        yield any(flag is None or flag for flag in flags[start : min(start + size, active)])


def _lanes_of(result: Result, lanes: int) -> Sequence[Number | None]:
    if not isinstance(result, Value):
        return (result,) * lanes
    values = result.lane_values
    return (None,) * lanes if values is None or result.lanes != lanes else values.lanes


def _lane(expr: Binary | Unary, operands: Sequence[Number | None]) -> Number | None:
    bits = (expr.a.type if isinstance(expr, Binary) else expr.type).bits
    if expr.type is boolean and expr.op in _DECIDES:
        return _decided(expr.op, operands)
    if any(operand is None for operand in operands):
        return None
    operate: Callable[..., Any] = (BINARY if isinstance(expr, Binary) else UNARY)[expr.op]
    number: Number = represented(operate(*operands, bits), expr.type)
    return number


def _decided(op: str, operands: Sequence[Number | None]) -> bool | None:
    decides = _DECIDES[op]
    if any(operand is decides for operand in operands):
        return decides
    return None if any(operand is None for operand in operands) else not decides
