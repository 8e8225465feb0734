"""Code for one kernel, loaded, with what is needed to call it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime.pool import worker_pool
from tilewright.targets.registry import Target

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_ALIGNMENT = 64


class Code:
    """A loaded kernel: `run` calls it on pointers.

    Workspaces are kept between calls; each call takes one set, so that several Python threads may
    be in the kernel at once.
    """

    def __init__(
        self, target: Target, binary: bytes, entry: str, workspaces: tuple[int, ...], arguments: int
    ) -> None:
        self.binary = binary
        self.entry_name = entry
        self.workspaces = workspaces
        self._program = target.load(binary, entry)
        self._entry = _Entry(self._program.address(entry))
        self._pointers = ctypes.c_void_p * (arguments + len(workspaces))
        self._spare: list[tuple[list[NDArray[Any]], list[int]]] = []
        self._pool = worker_pool()

    def run(self, pointers: list[int], threads: int) -> None:
        """Calls the kernel on the arguments' pointers, in order."""
        pool = self._pool
        if not self.workspaces:
            self._entry(self._pointers(*pointers), pool.entry, pool.state, threads)
            return
        space = self._take()
        self._entry(self._pointers(*pointers, *space[1]), pool.entry, pool.state, threads)
        self._spare.append(space)

    def bound(self, pointers: list[int], threads: int) -> Any:
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
            arrays = [np.empty(size + _ALIGNMENT, np.uint8) for size in self.workspaces]
            return arrays, [-(-a.ctypes.data // _ALIGNMENT) * _ALIGNMENT for a in arrays]
