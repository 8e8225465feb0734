"""The targets, by name: the only place that knows which there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tilewright.errors import UnsupportedError
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.targets.llvm.module import Module
from tilewright.targets.x86.target import x86_target


class Program(Protocol):
    """Code that is loaded and can be called."""

    def address(self, name: str) -> int: ...


class Target(Protocol):
    """From a lowered kernel to code for one kind of machine."""

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str:
        """What code depends on: two targets of one identity make the same code."""

    @property
    def machine(self) -> Machine: ...
    @property
    def runs_here(self) -> bool: ...
    def lower(self, kernel: Kernel) -> Module: ...
    def assemble(self, module: Module) -> bytes: ...
    def assembly(self, module: Module) -> str: ...
    def load(self, binary: bytes, entry: str) -> Program: ...


TARGETS: dict[str, Callable[[str], Target]] = {"x86": x86_target}


def find_target(name: str) -> Target:
    """The target called ``name``: a family, or ``family:variant`` (``x86``, ``x86:avx2``)."""
    family, _, variant = name.partition(":")
    if family not in TARGETS:
        raise UnsupportedError(
            f"there is no target {name!r}", cure="choose one of " + ", ".join(sorted(TARGETS))
        )
    return TARGETS[family](variant)
