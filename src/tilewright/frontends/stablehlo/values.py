"""What a value of a program is while it is translated: tensors of the graph, and what is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tilewright.frontends.stablehlo import types
from tilewright.frontends.stablehlo.types import Element
from tilewright.ir.expr import Expr
from tilewright.tensor.tensor import Tensor

# The parts of a number: one expression, or a real and an imaginary one.
Number = tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Array:
    """A tensor of the program: one tensor of the graph, or two for complex numbers.

    ``known`` has the contents where they may decide shapes: small integers that constants give.
    """

    element: Element
    parts: tuple[Tensor, ...]
    known: NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts[0].shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def type(self) -> types.Tensor:
        """The program's type of it."""
        return types.Tensor(self.shape, self.element)

    @property
    def number(self) -> Number:
        """Its elements, at the place that the graph's axes stand for."""
        return tuple(part.value for part in self.parts)


@dataclass(frozen=True)
class Token:
    """Orders side effects, of which there are none here."""


@dataclass(frozen=True, eq=False)
class Group:
    """A tuple."""

    parts: tuple[Value, ...]


Value = Array | Token | Group
