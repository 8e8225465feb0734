"""What an expression evaluates to while text is written: a number known now, or an LLVM value."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import gcd
from typing import NamedTuple

from tilewright.dtypes import DType
from tilewright.facts.intervals import EVERYTHING, Interval
from tilewright.targets.llvm.types import llvm_type

Known = bool | int | float


class KnownLanes:
    """What is known of each lane (None: nothing), worked out when asked for: few ask."""

    def __init__(self, work: Callable[[], tuple[Known | None, ...]]) -> None:
        self._work = work

    @cached_property
    def lanes(self) -> tuple[Known | None, ...]:
        return self._work()


class Value(NamedTuple):
    """An LLVM value: its text (a name or a constant), element type and number of lanes.

    ``range`` is the least and the greatest that an index can be. One that is known to fit may have
    the type s32, whatever its expression says (see `indices`). ``known`` is what is known of each
    lane (see `known_lanes`).
    """

    text: str
    dtype: DType
    lanes: int = 1
    range: Interval = EVERYTHING
    known: KnownLanes | None = None

    @property
    def type(self) -> str:
        return llvm_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


class Pointer(NamedTuple):
    """A pointer, in the address space ``space``; ``base`` points to the start of its memory.

    It is known to be a multiple of ``align`` bytes (1: nothing is known but its element's).
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
        """Another place in the same memory, a multiple of ``step`` bytes away; with 0, one that is
        aligned as this one is."""
        return self._replace(text=text, align=gcd(self.align, step))


Result = Known | Value
