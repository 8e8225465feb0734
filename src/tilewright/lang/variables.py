"""Variables: names that are assigned more than once, and the types that they turn out to have.

A variable has the common type of all that is assigned to it, which depends on the types of other
variables. So a kernel is translated until the types are those that the translation began with.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.errors import Span
from tilewright.ir.buffer import Buffer

# Who calls whom at which places, and a name.
Key = tuple[tuple[int, ...], str]


@dataclass
class Variable:
    """``memory`` holds it: None where nothing was assigned yet. ``weak``: known numbers only were,
    so that it takes the type of what it meets. One of vectors has a variable for each element."""

    key: Key
    name: str
    memory: Buffer | None
    weak: bool
    parts: tuple[Variable, ...] | None = None


@dataclass
class Types:
    """The types of variables: those that a translation begins with, and those that it finds; and
    the places of the assignments that first made one of a type."""

    known: dict[Key, tuple[DType, bool]]
    found: dict[Key, tuple[DType, bool]]
    places: dict[tuple[Key, DType], Span]

    @property
    def settled(self) -> bool:
        """Whether the translation found what it began with."""
        return self.known == self.found
