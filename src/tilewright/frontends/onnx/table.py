"""The table of ONNX's ops: which function builds an op's computes, and what it is told.

    @op("Relu")
    def relu(at: Place, x: Tensor) -> Tensor: ...

A function gets the node's inputs in order, None for one that is left out, and gives as many tensors
as there are results that it knows. What it cannot do it refuses by `refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from tilewright.errors import UnsupportedError
from tilewright.ir.expr import StandIn
from tilewright.tensor.tensor import Builder, Tensor

H = TypeVar("H", bound=Callable[..., Any])

TABLE: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Place:
    """A node: what builds, its attributes, what is known of its inputs, and its results' shapes
    where the model says them."""

    builder: Builder
    op: str
    version: int
    attributes: Mapping[str, Any]
    inputs: Sequence[str]
    known: Sequence[np.ndarray[Any, Any] | None]
    shapes: Sequence[tuple[int, ...] | None]

    def attribute(self, name: str, usual: Any = None) -> Any:
        """An attribute, or what it usually is."""
        return self.attributes.get(name, usual)

    def values(self, number: int) -> np.ndarray[Any, Any]:
        """The contents of an input on which shapes depend. Refuses where they are not known."""
        array = self.known[number] if number < len(self.known) else None
        if array is None:
            depends(self.inputs[number])
        return array

    def integers(self, number: int) -> list[int]:
        """The same as whole numbers, or sizes that calls pass."""
        values = self.values(number).reshape(-1)
        return [value if isinstance(value, StandIn) else int(value) for value in values]

    def said_shape(self, number: int) -> tuple[int, ...] | None:
        """The result's shape as the model says it, where it depends on the contents of an input
        that are not known; otherwise None."""
        return self.shapes[0] if self.known[number] is None else None

    def has(self, number: int) -> bool:
        """Whether an input is given."""
        return number < len(self.inputs) and bool(self.inputs[number])

    def whole(self, name: str, number: int, usual: Any = None) -> list[int] | None:
        """A list of whole numbers: an attribute of older versions, an input of newer ones."""
        if name in self.attributes:
            value = self.attributes[name]
            return [value] if isinstance(value, int) else [int(part) for part in value]
        if self.has(number):
            return self.integers(number)
        return list(usual) if usual is not None else None


def op(*names: str) -> Callable[[H], H]:
    """Lists a function under these names."""

    def listed(handler: H) -> H:
        for name in names:
            if name in TABLE:
                raise ValueError(f"{name} is in the table twice")
            TABLE[name] = handler
        return handler

    return listed


def refuse(why: str, cure: str | None = None) -> NoReturn:
    """The node is not one that is there, for this reason."""
    raise UnsupportedError(why, cure=cure)


def depends(name: str) -> NoReturn:
    """Refuses a node whose shapes depend on an input that is not known."""
    refuse(
        f"shapes depend on the contents of {name!r}",
        f"give them: from_onnx(model, known={{{name!r}: array}})",
    )


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < max(1, rank):
        refuse(f"axis {axis} of {rank} dims")
    return axis % max(1, rank)


def tensors(arguments: Sequence[Tensor | None]) -> list[Tensor]:
    """Those that are there."""
    return [tensor for tensor in arguments if tensor is not None]
