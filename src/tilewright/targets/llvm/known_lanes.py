"""What is known of each lane of a vector while text is written: conditions on the lane's number.

    x = src[l - 1 | 1 <= o and 1 <= l and l < 3]

Lanes 0 and 3, 4, ... are off, whatever ``o`` is. Loads need to know (see `masked`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.conversions import represented
from tilewright.dtypes import boolean
from tilewright.ir.expr import Binary, Unary
from tilewright.ir.operators import BINARY, UNARY
from tilewright.targets.llvm.values import Known, KnownLanes, Result, Value

# The operand that decides, whatever the other is.
_DECIDES = {"and": False, "or": True}


def known_lanes(expr: Binary | Unary, operands: Sequence[Result], lanes: int) -> KnownLanes | None:
    """The value of ``expr`` in each lane (None: not known); None where no lane's can be known."""
    open_ = [isinstance(each, Value) and each.known is None for each in operands]
    if all(open_) or (any(open_) and expr.op not in _DECIDES):
        return None

    def work() -> tuple[Known | None, ...]:
        rows = zip(*(_lanes_of(each, lanes) for each in operands), strict=True)
        return tuple(_lane(expr, row) for row in rows)

    return KnownLanes(work)


def both_hold(a: Value, b: Value) -> KnownLanes | None:
    """What is known of ``a and b``; a scalar is the same in all lanes."""
    if a.known is None and b.known is None:
        return None
    lanes = max(a.lanes, b.lanes)

    def work() -> tuple[Known | None, ...]:
        pairs = zip(_lanes_of(a, lanes), _lanes_of(b, lanes), strict=True)
        return tuple(_decided("and", pair) for pair in pairs)

    return KnownLanes(work)


def none_holds(value: Value) -> KnownLanes | None:
    """What is known of ``not value``, a condition."""
    known = value.known
    if known is None:
        return None
    return KnownLanes(lambda: tuple(None if each is None else not each for each in known.lanes))


def parts_on(mask: Value | None, active: int, count: int, size: int) -> Iterator[bool]:
    """Of each ``size`` of ``count`` lanes, whether one of the first ``active`` may be on."""
    known = (None,) * count if mask is None or mask.known is None else mask.known.lanes
    for start in range(0, count, size):
        yield any(each is None or each for each in known[start : min(start + size, active)])


def _lanes_of(result: Result, lanes: int) -> Sequence[Known | None]:
    if not isinstance(result, Value):
        return (result,) * lanes
    known = result.known
    return (None,) * lanes if known is None or result.lanes != lanes else known.lanes


def _lane(expr: Binary | Unary, operands: Sequence[Known | None]) -> Known | None:
    bits = (expr.a.type if isinstance(expr, Binary) else expr.type).bits
    if expr.type is boolean and expr.op in _DECIDES:
        return _decided(expr.op, operands)
    if any(each is None for each in operands):
        return None
    operate: Callable[..., Any] = (BINARY if isinstance(expr, Binary) else UNARY)[expr.op]
    found: Known = represented(operate(*operands, bits), expr.type)
    return found


def _decided(op: str, operands: Sequence[Known | None]) -> bool | None:
    decides = _DECIDES[op]
    if any(each is decides for each in operands):
        return decides
    return None if any(each is None for each in operands) else not decides
