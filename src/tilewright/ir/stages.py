"""Stages of a kernel: what a schedule or a pass made of it, for people who look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tilewright.ir.stmt import Kernel


class Taken(Protocol):
    """A step of a schedule, whose text is Python: the kernel before it, and the one it gave."""

    @property
    def before(self) -> Kernel: ...
    @property
    def kernel(self) -> Kernel: ...


@dataclass(frozen=True)
class Stage:
    """A stage: the kernel at its end, whether it changed that, the seconds that it took, and the
    steps of a schedule in it."""

    name: str
    kernel: Kernel
    changed: bool
    seconds: float
    steps: tuple[Taken, ...] = ()
