"""A lowered kernel to LLVM IR for x86-64."""

from __future__ import annotations

from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.targets.llvm.module import Module, lower_module


def lower(kernel: Kernel, machine: Machine) -> Module:
    """The LLVM module that runs ``kernel``; its instructions are those ``machine`` has."""
    return lower_module(kernel, {i.name: i for i in machine.instructions})
