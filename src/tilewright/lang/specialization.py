"""Specializations: a kernel function for one range, one choice of types, and constants."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tilewright.dtypes import DType
from tilewright.ir.stmt import Kernel
from tilewright.lang.exact import exact
from tilewright.lang.identities import Shape
from tilewright.lang.messages import Message
from tilewright.lang.places import Places


@dataclass(frozen=True)
class Specialization:
    """The range, the types that calls decide, the constants, the values of tunables, and where
    arrays lie, that a kernel is compiled for. Those with the constants 2 and 2.0 are not equal."""

    shape: Shape
    types: tuple[tuple[str, DType], ...] = ()
    constants: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    tunables: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    places: Places = ()
    _values: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_values", exact((self.constants, self.tunables)))


class Decided(NamedTuple):
    """What a launch comes to: the sizes of its range, the first ids, and what is compiled."""

    sizes: tuple[int, ...]
    start: tuple[int, ...] | None
    choice: Specialization


@dataclass(frozen=True)
class Specialized:
    """A kernel of the IR, and the messages of its records. ``captured`` are the values from outside
    of the function that are part of it. The names of further arguments of a launch: ``sizes`` of
    the range, ``offsets``, the ``gaps`` of arrays (of which, of which dim, the name), and the
    array of ``records``."""

    kernel: Kernel
    messages: tuple[Message, ...]
    captured: Mapping[str, Any]
    most_dim: int
    sizes: tuple[str, ...]
    offsets: tuple[str, ...]
    gaps: Sequence[tuple[str, int, str]]
    records: str | None
