"""Variables: names that are assigned more than once, and the inference of their types.

A variable has the common type of all values that are assigned to it, which depends on the types of
other variables. So a kernel is translated until the types are those that the translation began
with.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.errors import Span
from tilewright.ir.buffer import Buffer

# The calls that lead to a function, by their places, and a name.
Key = tuple[tuple[int, ...], str]


@dataclass
class Variable:
    """``memory`` holds it: None before the first assignment. ``weak``: only literals were assigned,
    so that it takes the type of the other operand. A vector has a variable for each element."""

    key: Key
    name: str
    memory: Buffer | None
    weak: bool
    parts: tuple[Variable, ...] | None = None


@dataclass
class Types:
    """The types of variables: ``initial``, those that a translation begins with, and ``settling``,
    those that it finds; and the places of the assignments that first gave a variable a type."""

    initial: dict[Key, tuple[DType, bool]]
    settling: dict[Key, tuple[DType, bool]]
    places: dict[tuple[Key, DType], Span]

    @property
    def settled(self) -> bool:
        """Whether the translation found the types that it began with."""
        return self.initial == self.settling
