"""What a kernel is compiled for, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.dtypes import DType
from tilewright.ir.stmt import Kernel
from tilewright.lang.identities import Shape
from tilewright.lang.messages import Message


@dataclass(frozen=True)
class Choice:
    """What a kernel is compiled for: its range, the types that calls decide, and constants."""

    shape: Shape
    types: tuple[tuple[str, DType], ...] = ()
    constants: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Made:
    """A kernel of the IR, and what its records say. ``captured`` are the values from outside of the
    function that it was made with. Of what a launch gives besides the arguments, the names:
    ``sizes`` of the range, ``offsets``, and the array of the records."""

    kernel: Kernel
    messages: tuple[Message, ...]
    captured: Mapping[str, Any]
    most_dim: int
    sizes: tuple[str, ...]
    offsets: tuple[str, ...]
    records: str | None
