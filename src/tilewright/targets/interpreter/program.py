"""A kernel's text, run by the interpreter on memory of the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.interpret import run
from tilewright.ir.parser import parse_kernel


class InterpretedProgram:
    """A `targets.program.Program` of a kernel's text. What the kernel does wrong is an error."""

    def __init__(self, text: str) -> None:
        self._kernel = parse_kernel(text)

    def run(self, pointers: list[int], threads: int) -> None:
        """Runs the kernel on pointers to its parameters; iterations of all loops in order."""
        memory: dict[str, Any] = {}
        for param, pointer in zip(self._kernel.arrays, pointers, strict=True):
            raw = (ctypes.c_uint8 * param.buffer.bytes).from_address(pointer)
            memory[param.name] = np.ctypeslib.as_array(raw).view(param.dtype.numpy)
        run(self._kernel, memory)

    def bound(self, pointers: list[int], threads: int) -> Callable[[], None]:
        """A function of no arguments that does."""
        return lambda: self.run(pointers, threads)
