"""An x86 kernel that can be called: its code, its workspaces, and the worker pool."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.calling import Calling
from tilewright.targets.program import Abi, Passed
from tilewright.targets.x86.driver import Program
from tilewright.targets.x86.pool import worker_pool

_Entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_ALIGNMENT = 64


class _Workspaces:
    """The workspaces of one call, which grow on demand."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._arrays: list[NDArray[Any]] = [np.empty(0, np.uint8)] * len(sizes)
        self.pointers = [0] * len(sizes)
        self.fit(sizes)

    def fit(self, sizes: Sequence[int]) -> None:
        """Makes each workspace at least so many bytes."""
        for position, size in enumerate(sizes):
            if self._arrays[position].nbytes < size + _ALIGNMENT:
                array = self._arrays[position] = np.empty(size + _ALIGNMENT, np.uint8)
                self.pointers[position] = -(-array.ctypes.data // _ALIGNMENT) * _ALIGNMENT


class KernelProgram:
    """A `targets.program.Program` of object code.

    Workspaces are kept between calls; each call takes one set, so that several Python threads may
    be in the kernel at once. ``address`` is that of the entry (see `targets.llvm.entry`).
    """

    def __init__(self, binary: bytes, abi: Abi) -> None:
        """Raises `CompilationError` if it cannot be loaded."""
        self._program = Program(binary, [abi.entry])
        self.address = self._program.address(abi.entry)
        self._entry = _Entry(self.address)
        self._calling = Calling(abi)
        self._sizes = self._calling.workspace_bytes({}) if self._calling.fixed else []
        self._has_workspaces = bool(abi.workspaces)
        self._slots = ctypes.c_void_p * (len(abi.parameters) + len(abi.workspaces))
        self._spare: list[_Workspaces] = []
        self._pool = worker_pool()

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Calls the kernel with these arguments, in order."""
        pool = self._pool
        slots: Sequence[Any] = arguments
        if not self._calling.fixed:
            slots = self._calling.slots(arguments)
        if not self._has_workspaces:
            self._entry(self._slots(*slots), pool.entry, pool.state, threads)
            return
        space = self._take(arguments)
        self._entry(self._slots(*slots, *space.pointers), pool.entry, pool.state, threads)
        self._spare.append(space)

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """The same as a function of no arguments, with its own workspaces."""
        space = self._take(arguments)
        args = self._slots(*self._calling.slots(arguments), *space.pointers)
        entry, pool = self._entry, self._pool

        def call(_keep: Any = (space, self)) -> None:
            entry(args, pool.entry, pool.state, threads)

        return call

    def _take(self, arguments: Sequence[Passed]) -> _Workspaces:
        calling, sizes = self._calling, self._sizes
        if not calling.fixed:
            sizes = calling.sizes_of(arguments).workspaces
        try:
            space = self._spare.pop()
        except IndexError:
            return _Workspaces(sizes)
        if not calling.fixed:
            space.fit(sizes)
        return space
