"""Code for one kernel, loaded, with what is needed to call it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime.pool import worker_pool
from tilewright.targets.registry import Target

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_ALIGNMENT = 64


class Code:
    """A kernel's code, loaded where this machine runs it: `run` calls it on pointers.

    Code for another machine can be exported; to run it raises `UnsupportedError`. Workspaces are
    kept between calls; each call takes one set, so that several Python threads may be in the kernel
    at once.
    """

    def __init__(
        self, target: Target, binary: bytes, entry: str, workspaces: tuple[int, ...], arguments: int
    ) -> None:
        self.binary = binary
        self.entry_name = entry
        self.workspaces = workspaces
        self._entry: Callable[..., None]
        if target.runs_here:
            self._program = target.load(binary, entry)
            self._entry = _Entry(self._program.address(entry))
        else:
            self._entry = partial(_refuse, target, binary, entry)
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


def _refuse(target: Target, binary: bytes, entry: str, *_: Any) -> None:
    """Stands for code that does not run here: loading it says why."""
    target.load(binary, entry)
