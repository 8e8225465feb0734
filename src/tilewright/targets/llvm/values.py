"""What an expression evaluates to while text is written: a number known now, or an LLVM value."""

from __future__ import annotations

from dataclasses import dataclass

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


Known = bool | int | float
Result = Known | Value
