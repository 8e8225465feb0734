"""An x86 kernel that can be called: its code, its workspaces, and the worker pool."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.program import Abi
from tilewright.targets.x86.driver import Program
from tilewright.targets.x86.pool import worker_pool

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_ALIGNMENT = 64


class KernelProgram:
    """A `targets.program.Program` of object code.

    Workspaces are kept between calls; each call takes one set, so that several Python threads may
    be in the kernel at once.
    """

    def __init__(self, binary: bytes, abi: Abi) -> None:
        """Raises `CompilationError` if it cannot be loaded."""
        self._program = Program(binary, [abi.entry])
        self._entry = _Entry(self._program.address(abi.entry))
        self._workspaces = abi.workspaces
        self._pointers = ctypes.c_void_p * (len(abi.parameters) + len(abi.workspaces))
        self._spare: list[tuple[list[NDArray[Any]], list[int]]] = []
        self._pool = worker_pool()

    def run(self, pointers: list[int], threads: int) -> None:
        """Calls the kernel on the arguments' pointers, in order."""
        pool = self._pool
        if not self._workspaces:
            self._entry(self._pointers(*pointers), pool.entry, pool.state, threads)
            return
        space = self._take()
        self._entry(self._pointers(*pointers, *space[1]), pool.entry, pool.state, threads)
        self._spare.append(space)

    def bound(self, pointers: list[int], threads: int) -> Callable[[], None]:
        """A call of no arguments on these pointers, with workspaces of its own."""
        space = self._take()
        args = self._pointers(*pointers, *space[1])
        entry, pool = self._entry, self._pool

        def call(_keep: Any = (space, self)) -> None:
            entry(args, pool.entry, pool.state, threads)

        return call

    def _take(self) -> tuple[list[NDArray[Any]], list[int]]:
        try:
            return self._spare.pop()
        except IndexError:
            arrays = [np.empty(size + _ALIGNMENT, np.uint8) for size in self._workspaces]
            return arrays, [-(-a.ctypes.data // _ALIGNMENT) * _ALIGNMENT for a in arrays]
