"""Indices (s64 in the IR) in the type that they fit in.

Registers of a GPU have 32 bits: an s64 takes two of them, its sum two instructions, its product
four, and its quotient dozens. Loops and work-items have extents, so that the least and the greatest
of most indices are known while they are written: these are s32 where the dialect has such, as long
as operands and result fit. Other indices are s64, and so are offsets in bytes.

Where a dividend is known not to be negative, floor division is an instruction.
"""

from __future__ import annotations

from tilewright.dtypes import DType, s32, s64
from tilewright.facts import intervals
from tilewright.facts.intervals import Interval
from tilewright.targets.llvm.types import lane_numbers, llvm_type
from tilewright.targets.llvm.values import KnownLanes, Result, Value
from tilewright.targets.llvm.writer import Writer


def range_of(result: Result) -> Interval:
    """The least and the greatest value of an index."""
    if isinstance(result, Value):
        return result.range
    return (int(result), int(result))


def index_type(w: Writer, *ranges: Interval) -> DType:
    """The type for indices that lie in ``ranges``."""
    return _fitting(w.dialect.index, *ranges)


def compared_type(w: Writer, lanes: int, *ranges: Interval) -> DType:
    """The type in which indices are compared that lie in ``ranges``: of vectors, s32 where they
    fit, which are half as many registers, and as wide as the elements that their flags mask."""
    return index_type(w, *ranges) if lanes == 1 else _fitting(s32, *ranges)


def _fitting(narrow: DType, *ranges: Interval) -> DType:
    """``narrow``, if what lies in ``ranges`` fits, or s64."""
    limits = (int(narrow.lowest), int(narrow.highest))
    fits = narrow is s64 or all(intervals.is_within(each, limits) for each in ranges)
    return narrow if fits else s64


def fitted(w: Writer, value: Value) -> Value:
    """An index in the type that it fits in."""
    return as_index(w, value, index_type(w, value.range))


def as_index(w: Writer, value: Value, dtype: DType) -> Value:
    """An index as ``dtype``, s64 or one that it fits in."""
    if value.dtype is dtype:
        return value
    how = "trunc" if value.dtype is s64 else "zext" if is_natural(value.range) else "sext"
    text = w.assign(f"{how} {value.typed} to {llvm_type(dtype, value.lanes)}")
    return Value(text, dtype, value.lanes, value.range)


def is_natural(range_: Interval) -> bool:
    """Whether it holds no negative number."""
    return range_[0] is not None and range_[0] >= 0


def overflow_flags(*ranges: Interval) -> str:
    """What LLVM may take for granted of an operation whose operands and result, which fit, lie in
    ``ranges``."""
    return "nuw nsw " if all(map(is_natural, ranges)) else "nsw "


def lane_indices(w: Writer, lanes: int) -> Value:
    """The indices 0, 1, 2, ..., one for each lane."""
    range_ = (0, lanes - 1)
    dtype = index_type(w, range_)
    known = KnownLanes(lambda: tuple(range(lanes)))
    return Value(lane_numbers(lanes, dtype), dtype, lanes, range_, known)


def loop_range(extent: Result) -> Interval:
    """What the variable of a loop can be, which runs ``extent`` times."""
    most = range_of(extent)[1]
    return (0, None if most is None else max(most - 1, 0))
