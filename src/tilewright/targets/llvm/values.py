"""What an expression evaluates to while text is written: a number known now, or an LLVM value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.dtypes import DType
from tilewright.targets.llvm.types import llvm_type


@dataclass(frozen=True, slots=True)
class Value:
    """An LLVM value: its text (a name or a constant), element type and number of lanes."""

    text: str
    dtype: DType
    lanes: int = 1

    @property
    def type(self) -> str:
        return llvm_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


class Pointer(NamedTuple):
    """A pointer, in the address space ``space``; ``base`` points to the start of its memory."""

    text: str
    base: str
    space: int = 0

    @property
    def type(self) -> str:
        return f"ptr addrspace({self.space})" if self.space else "ptr"

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"

    def moved(self, text: str) -> Pointer:
        """Another place in the same memory."""
        return self._replace(text=text)


Known = bool | int | float
Result = Known | Value
