"""Stages of a kernel: what a schedule or a pass made of it, for people who look."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.stmt import Kernel


@dataclass(frozen=True)
class Stage:
    """A stage: the kernel at its end, whether it changed that, and the seconds that it took."""

    name: str
    kernel: Kernel
    changed: bool
    seconds: float
