"""Access of kernels on an OpenCL device to arrays in the host's memory.

If the device shares the host's memory, kernels get the pointers. Otherwise each call copies its
arrays to buffers on the device, and results back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.targets.calling import Calling, Sizes
from tilewright.targets.program import Abi

_ALIGNMENT = 64


class ArgumentMemory(Protocol):
    """The arguments of the kernels of one queue, for one call at a time."""

    def give(self, arguments: Sequence[Any], sizes: Sizes) -> None:
        """Passes the arrays among ``arguments``, and workspaces, to the kernels."""

    def take(self, arguments: Sequence[Any]) -> None:
        """After the kernels: brings their results to the arrays."""

    def read(self, workspace: int, size: int) -> bytes:
        """The first bytes of a workspace, after the kernels."""


class SharedMemory:
    """The host's memory itself (shared virtual memory, fine-grained, of the system)."""

    def __init__(
        self, cl: Any, queue: Any, kernels: Sequence[Any], abi: Abi, calling: Calling
    ) -> None:
        self._svm = cl.SVM
        self._queue = queue
        self._kernels = kernels
        self._positions = calling.array_positions
        self._workspaces_at = len(abi.parameters)
        self._passed = [(0, 0)] * len(self._positions)
        self._spaces: list[NDArray[Any]] = [np.empty(0, np.uint8)] * len(abi.workspaces)

    def give(self, arguments: Sequence[Any], sizes: Sizes) -> None:
        """Sets the arguments that differ from the previous call's."""
        if self._spaces:
            self._fit(sizes.workspaces)
        for number, position in enumerate(self._positions):
            array = (arguments[position], sizes.arrays[number])
            if self._passed[number] != array:
                type_ = ctypes.c_char * max(array[1], 1)
                self._set(position, type_.from_address(array[0]))
                self._passed[number] = array

    def _fit(self, sizes: Sequence[int]) -> None:
        """Makes workspaces at least so large."""
        for number, size in enumerate(sizes):
            if self._spaces[number].nbytes < max(size, 1):
                self._spaces[number] = _aligned(size)
                self._set(self._workspaces_at + number, self._spaces[number])

    def _set(self, position: int, memory: Any) -> None:
        for kernel in self._kernels:
            kernel.set_arg(position, self._svm(memory))

    def take(self, arguments: Sequence[Any]) -> None:
        """Nothing to do: results are in place."""

    def read(self, workspace: int, size: int) -> bytes:
        """Waits for the queue."""
        self._queue.finish()
        return self._spaces[workspace][:size].tobytes()


class CopiedMemory:
    """Buffers on the device of the arrays' sizes, kept between calls."""

    def __init__(
        self, cl: Any, queue: Any, kernels: Sequence[Any], abi: Abi, calling: Calling
    ) -> None:
        self._cl = cl
        self._queue = queue
        self._kernels = kernels
        self._parameters = abi.arrays
        workspaces = range(len(abi.parameters), len(abi.parameters) + len(abi.workspaces))
        self._positions = [*calling.array_positions, *workspaces]
        self._buffers: list[Any] = [None] * len(self._positions)
        self._sizes: list[int] = []

    def _fit(self, sizes: Sizes) -> None:
        """Makes buffers at least as large as arrays and workspaces."""
        self._sizes = sizes.arrays
        for number, size in enumerate([*sizes.arrays, *sizes.workspaces]):
            buffer = self._buffers[number]
            if buffer is None or buffer.size < size:
                flags = self._cl.mem_flags.READ_WRITE
                buffer = self._cl.Buffer(self._queue.context, flags, max(size, 1))
                self._buffers[number] = buffer
                for kernel in self._kernels:
                    kernel.set_arg(self._positions[number], buffer)

    def give(self, arguments: Sequence[Any], sizes: Sizes) -> None:
        """Copies all arrays, also results, because kernels may leave parts of them unwritten."""
        self._fit(sizes)
        for number, memory in self._arrays(arguments):
            self._cl.enqueue_copy(self._queue, self._buffers[number], memory, is_blocking=False)
        # The copies read the caller's memory, which may be freed after an error.
        self._queue.finish()

    def take(self, arguments: Sequence[Any]) -> None:
        """Copies results back."""
        for number, memory in self._arrays(arguments):
            if self._parameters[number].access != "in":
                self._cl.enqueue_copy(self._queue, memory, self._buffers[number])

    def read(self, workspace: int, size: int) -> bytes:
        """Copies the bytes to the host."""
        data = np.empty(size, np.uint8)
        self._cl.enqueue_copy(self._queue, data, self._buffers[len(self._parameters) + workspace])
        return data.tobytes()

    def _arrays(self, arguments: Sequence[Any]) -> list[tuple[int, Any]]:
        return [
            (number, (ctypes.c_char * size).from_address(arguments[self._positions[number]]))
            for number, size in enumerate(self._sizes)
            if size
        ]


def _aligned(size: int) -> NDArray[Any]:
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + max(size, 1)]
