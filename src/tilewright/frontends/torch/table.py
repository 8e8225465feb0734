"""The table of ATen ops: which function builds an op's computes, and what it is told.

    @aten("relu.default")
    def relu(at: Place, x: Tensor) -> Tensor: ...

A function gets the op's arguments as PyTorch's schema orders them, tensors as the builder's, and
gives as many tensors as the op has results. What it cannot do it refuses by `refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import torch
from torch.fx import Node

from tilewright.dtypes import DType, dtype
from tilewright.errors import UnsupportedError
from tilewright.frontends.torch.checks import Checks
from tilewright.frontends.torch.open_sizes import shape_of
from tilewright.tensor.tensor import Builder, Tensor

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)

TABLE: dict[str, Handler] = {}
"""By the op's name with its overload, as ``"add.Tensor"``."""

COMPLEX: dict[str, Handler] = {}
"""The same where an argument or a result is complex."""


@dataclass(frozen=True)
class Place:
    """Where an op stands: what builds, and what PyTorch says of the op's results."""

    builder: Builder
    op: str
    """The op's name, as ``"add.Tensor"``."""
    results: tuple[Any, ...]
    """A fake tensor for each result, None for one that is not there."""
    used: frozenset[int]
    """Which results something asks for: what others hold does not matter."""
    node: Node | None = None
    checks: Checks | None = None
    """Where what has to hold of data goes; None: nothing is checked."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The first result's."""
        return shape_of(self.results[0])

    @property
    def type(self) -> torch.dtype:
        """The first result's, as PyTorch calls it."""
        torch_dtype: torch.dtype = self.results[0].dtype
        return torch_dtype

    @property
    def dtype(self) -> DType:
        """The first result's."""
        return dtype(self.type)

    def check_places(self, index: Tensor, dim: int, size: int, wraps: bool = False) -> None:
        """``index`` has to be a place along ``dim`` of ``size`` elements, where that is checked;
        with ``wraps``, negative ones count from the end."""
        if self.checks is not None and self.node is not None:
            self.checks.places(self.node, index, dim, size, wraps)

    def check_divisor(self, divisor: Tensor) -> None:
        """No integer of ``divisor`` may be 0, where that is checked."""
        if self.checks is not None and self.node is not None:
            self.checks.divisor(self.node, divisor)


def aten(*names: str) -> Callable[[H], H]:
    """Lists a function under these names of overloads."""
    return _listed(TABLE, names)


def aten_complex(*names: str) -> Callable[[H], H]:
    """Lists a function under these names, for complex arguments or results."""
    return _listed(COMPLEX, names)


def _listed(table: dict[str, Handler], names: Sequence[str]) -> Callable[[H], H]:
    def listed(handler: H) -> H:
        for name in names:
            if name in table:
                raise ValueError(f"aten.{name} is in the table twice")
            table[name] = handler
        return handler

    return listed


def name_of(target: Any) -> str:
    """The name of an op in the table; ``""`` for what is no op."""
    if isinstance(target, torch._ops.HigherOrderOperator):
        return str(target)
    if not isinstance(target, torch._ops.OpOverload):
        return ""
    packet = target._schema.name.removeprefix("aten::").replace("::", ".")
    return f"{packet}.{target._overloadname}"


def handler_of(target: Any, of_complex: bool = False) -> Handler | None:
    """What builds a call of ``target``, if anything does."""
    return (COMPLEX if of_complex else TABLE).get(name_of(target))


def refuse(why: str) -> NoReturn:
    """The op stays with PyTorch, for this reason."""
    raise UnsupportedError(why)


def for_dims(numbers: Sequence[int], count: int) -> tuple[int, ...]:
    """A number for each of ``count`` dims; a list of one, which PyTorch takes, too, is for all."""
    return tuple(map(int, numbers)) * (count if len(numbers) == 1 else 1)


def dims_of(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Dims counted from the front; all for None, and for none."""
    if dims is None:
        return tuple(range(rank))
    numbers = (dims,) if isinstance(dims, int) else tuple(dims)
    if not numbers:
        return tuple(range(rank))
    return tuple(dict.fromkeys(dim % rank if rank else 0 for dim in numbers)) if rank else ()
