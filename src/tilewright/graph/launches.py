"""A step of a program: a kernel on buffers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.errors import Span
from tilewright.ir.buffer import Buffer, Size


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel (its number among those of the program) on these buffers, in the order of its
    parameters, and with these ``numbers``, in the order of its scalar ones. ``computes`` are what
    the graph calls what it does, ``span`` where that begins."""

    kernel: int
    buffers: tuple[Buffer, ...]
    computes: tuple[str, ...]
    span: Span | None = None
    numbers: tuple[Size, ...] = ()

    def on(self, buffers: tuple[Buffer, ...], numbers: tuple[Size, ...] | None = None) -> Launch:
        """The same on other buffers, and with other numbers."""
        return replace(self, buffers=buffers, numbers=self.numbers if numbers is None else numbers)

    def of(self, kernel: int) -> Launch:
        """The same of the kernel of another number."""
        return replace(self, kernel=kernel)
