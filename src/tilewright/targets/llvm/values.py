"""The result of an expression while text is written: a number, or an LLVM value."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import gcd
from typing import NamedTuple

from tilewright.dtypes import DType
from tilewright.ir.intervals import EVERYTHING, Interval
from tilewright.targets.llvm.types import llvm_type

Number = bool | int | float


class LaneValues:
    """The number in each lane (None: not known), computed at first use: few are used."""

    def __init__(self, work: Callable[[], tuple[Number | None, ...]]) -> None:
        self._work = work

    @cached_property
    def lanes(self) -> tuple[Number | None, ...]:
        return self._work()


class Value(NamedTuple):
    """An LLVM value: its text (a name or a constant), element type and number of lanes.

    ``range`` are the least and the greatest value of an index. An index whose range fits may have
    the type s32, whatever its expression says (see `indices`). ``lane_values`` are the numbers in
    its lanes, where they are known (see `lane_values`).
    """

    text: str
    dtype: DType
    lanes: int = 1
    range: Interval = EVERYTHING
    lane_values: LaneValues | None = None

    @property
    def type(self) -> str:
        return llvm_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


class Pointer(NamedTuple):
    """A pointer, in the address space ``space``; ``base`` points to the start of its memory. Its
    address is a multiple of ``align`` bytes (1: only of its elements' alignment).
    """

    text: str
    base: str
    space: int = 0
    align: int = 1

    @property
    def type(self) -> str:
        return f"ptr addrspace({self.space})" if self.space else "ptr"

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"

    def moved(self, text: str, step: int = 0) -> Pointer:
        """Another place in the same memory, a multiple of ``step`` bytes away (0: of ``align``)."""
        return self._replace(text=text, align=gcd(self.align, step))


Result = Number | Value
