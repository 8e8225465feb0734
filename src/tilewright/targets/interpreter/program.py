"""A kernel's text, run by the interpreter on memory of the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.interpret import run
from tilewright.ir.parser import parse_kernel
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import scalar_constants, substitute_buffer
from tilewright.newest import Newest
from tilewright.targets.program import Passed

# Kernels by their texts: errors give the places of statements, which a text does not have.
_originals: Newest[str, Kernel] = Newest(256)


def keep_places(text: str, kernel: Kernel) -> None:
    """Makes ``kernel`` the one that is run for ``text``, its printed form."""
    _originals[text] = kernel


class InterpretedProgram:
    """A `targets.program.Program` of a kernel's text. Faults of the kernel are errors."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._parsed = parse_kernel(text)

    @property
    def _kernel(self) -> Kernel:
        return _originals.get(self._text, self._parsed)

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs the kernel with its arguments (pointers, and numbers for scalar parameters), the
        iterations of all loops in order."""
        kernel = self._kernel
        names = [param.name for param in kernel.params]
        values: dict[str, Any] = dict(zip(names, arguments, strict=True))
        scalars = scalar_constants(kernel, values)
        for param in kernel.arrays:
            size = substitute_buffer(param.buffer, scalars).bytes
            raw = (ctypes.c_uint8 * size).from_address(values[param.name])
            values[param.name] = np.ctypeslib.as_array(raw).view(param.dtype.numpy)
        run(kernel, values)

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """The same as a function of no arguments."""
        return lambda: self.run(arguments, threads)
