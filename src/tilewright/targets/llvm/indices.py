"""Indices (s64 in the IR) in the narrowest type that they fit in.

Registers of a GPU have 32 bits: an s64 takes two of them, its sum two instructions, its product
four, and its quotient dozens. Extents of loops and numbers of work-items bound most indices: these
are s32 where the dialect says so, if operands and result fit. Other indices are s64, and so are
offsets in bytes.

If a dividend is known not to be negative, floor division is an instruction.
"""

from __future__ import annotations

from tilewright.dtypes import DType, s32, s64
from tilewright.ir import intervals
from tilewright.ir.intervals import Interval
from tilewright.targets.llvm.types import lane_numbers, llvm_type
from tilewright.targets.llvm.values import LaneValues, Result, Value
from tilewright.targets.llvm.writer import Writer


def range_of(result: Result) -> Interval:
    """The least and the greatest value of an index."""
    if isinstance(result, Value):
        return result.range
    return (int(result), int(result))


def index_type(w: Writer, *ranges: Interval) -> DType:
    """The type for indices in ``ranges``."""
    return _fitting(w.dialect.index, *ranges)


def compared_type(w: Writer, lanes: int, *ranges: Interval) -> DType:
    """The type in which indices in ``ranges`` are compared. Vectors of them are s32 if they fit:
    that takes half as many registers, and is as wide as the elements that the flags mask."""
    return index_type(w, *ranges) if lanes == 1 else _fitting(s32, *ranges)


def _fitting(narrow: DType, *ranges: Interval) -> DType:
    """``narrow`` if all ``ranges`` fit in it, else s64."""
    limits = (int(narrow.lowest), int(narrow.highest))
    fits = narrow is s64 or all(intervals.is_within(range_, limits) for range_ in ranges)
    return narrow if fits else s64


def fitted(w: Writer, value: Value) -> Value:
    """An index in the narrowest type that it fits in."""
    return as_index(w, value, index_type(w, value.range))


def as_index(w: Writer, value: Value, dtype: DType) -> Value:
    """An index as ``dtype``: s64, or a type that it fits in."""
    if value.dtype is dtype:
        return value
    how = "trunc" if value.dtype is s64 else "zext" if is_natural(value.range) else "sext"
    text = w.assign(f"{how} {value.typed} to {llvm_type(dtype, value.lanes)}")
    return Value(text, dtype, value.lanes, value.range)


def is_natural(range_: Interval) -> bool:
    """Whether the range has no negative number."""
    return range_[0] is not None and range_[0] >= 0


def overflow_flags(*ranges: Interval) -> str:
    """LLVM's flags for an operation that does not overflow, given the ``ranges`` of its operands
    and result."""
    return "nuw nsw " if all(map(is_natural, ranges)) else "nsw "


def lane_indices(w: Writer, lanes: int) -> Value:
    """The indices 0, 1, 2, ..., one for each lane."""
    range_ = (0, lanes - 1)
    dtype = index_type(w, range_)
    numbers = LaneValues(lambda: tuple(range(lanes)))
    return Value(lane_numbers(lanes, dtype), dtype, lanes, range_, numbers)


def loop_range(extent: Result) -> Interval:
    """The range of the variable of a loop with ``extent`` iterations."""
    most = range_of(extent)[1]
    return (0, None if most is None else max(most - 1, 0))
