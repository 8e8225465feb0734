"""How kernels on an OpenCL device get at arrays in the host's memory.

Where the device shares the host's memory, kernels get the pointers as they are. Elsewhere each call
copies its arrays to buffers on the device, and those that it writes back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.program import Abi

_ALIGNMENT = 64


class Memory(Protocol):
    """The arguments of the kernels of one queue, for one call at a time."""

    def give(self, pointers: Sequence[int]) -> None:
        """Gives the kernels the arrays at these pointers."""

    def take(self, pointers: Sequence[int]) -> None:
        """Behind the kernels: gives the arrays what they wrote."""


class SharedMemory:
    """The host's memory itself (shared virtual memory, fine-grained, of the system)."""

    def __init__(self, cl: Any, queue: Any, kernels: Sequence[Any], abi: Abi) -> None:
        self._svm = cl.SVM
        self._kernels = kernels
        self._types = [ctypes.c_char * max(each.bytes, 1) for each in abi.parameters]
        self._given = [0] * len(abi.parameters)
        self._spaces = [_aligned(size) for size in abi.workspaces]
        for position, space in enumerate(self._spaces, start=len(abi.parameters)):
            for kernel in kernels:
                kernel.set_arg(position, cl.SVM(space))

    def give(self, pointers: Sequence[int]) -> None:
        """Sets those arguments that the call before did not have."""
        for position, pointer in enumerate(pointers):
            if self._given[position] != pointer:
                memory = self._svm(self._types[position].from_address(pointer))
                for kernel in self._kernels:
                    kernel.set_arg(position, memory)
                self._given[position] = pointer

    def take(self, pointers: Sequence[int]) -> None:
        """Nothing: it is there."""


class CopiedMemory:
    """Buffers on the device, as large as the arrays, which are kept between calls."""

    def __init__(self, cl: Any, queue: Any, kernels: Sequence[Any], abi: Abi) -> None:
        self._copy = cl.enqueue_copy
        self._queue = queue
        self._parameters = abi.parameters
        self._types = [ctypes.c_char * each.bytes for each in abi.parameters]
        sizes = [*(each.bytes for each in abi.parameters), *abi.workspaces]
        flags = cl.mem_flags.READ_WRITE
        self._buffers = [cl.Buffer(queue.context, flags, max(size, 1)) for size in sizes]
        for kernel in kernels:
            kernel.set_args(*self._buffers)

    def give(self, pointers: Sequence[int]) -> None:
        """Copies all arrays: what kernels leave out of a result stays as it was."""
        for position, memory in self._arrays(pointers):
            self._copy(self._queue, self._buffers[position], memory, is_blocking=False)
        # The copies read memory of the caller, which may go if one fails.
        self._queue.finish()

    def take(self, pointers: Sequence[int]) -> None:
        """Copies back what kernels write."""
        for position, memory in self._arrays(pointers):
            if self._parameters[position].access != "in":
                self._copy(self._queue, memory, self._buffers[position])

    def _arrays(self, pointers: Sequence[int]) -> list[tuple[int, Any]]:
        return [
            (position, type_.from_address(pointers[position]))
            for position, type_ in enumerate(self._types)
            if self._parameters[position].bytes
        ]


def _aligned(size: int) -> NDArray[Any]:
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + max(size, 1)]
