"""Memory of buffers that is used again: pages that were touched once cost nothing the next time."""

from __future__ import annotations

import math
import threading
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dtypes import DType, u8
from tilewright.runtime.remote import Space, fill_elements, new_remote, remote
from tilewright.runtime.results import ResultForm, aligned_memory
from tilewright.targets.registry import find_target

# Smaller memory is not worth it: the allocator keeps that itself.
_LEAST = 2**16
_MOST = 2**28


class Room:
    """Memory that nobody looks at any more, by its bytes: 256 MiB at most; of a device with a
    ``space`` of its own, else of the host."""

    def __init__(self, space: Space | None = None) -> None:
        self._space = space
        # Reentrant: what frees memory may run anywhere, in here, too.
        self._lock = threading.RLock()
        self._spare: dict[int, list[NDArray[Any]]] = {}
        self.bytes = 0

    def empty(self, count: int, dtype: DType) -> NDArray[Any]:
        """A flat array of ``count`` elements at a multiple of 64 bytes, with undefined contents.
        When the last array on its memory is gone, others get that."""
        size = count * dtype.bytes
        if size < _LEAST and self._space is None:
            return aligned_memory(count, dtype)
        with self._lock:
            spare = self._spare.get(size)
            memory = spare.pop() if spare else None
            if memory is not None:
                self.bytes -= size
        if memory is None:
            memory = self._new(size)
        return self.there(np.asarray(_Lent(self, memory)).view(dtype.numpy))

    def _new(self, size: int) -> NDArray[Any]:
        return aligned_memory(size, u8) if self._space is None else new_remote(self._space, size)

    def there(self, array: NDArray[Any]) -> NDArray[Any]:
        """``array``, whose address is one of this room's device."""
        return array if self._space is None else remote(self._space, array)

    def result(self, form: ResultForm) -> NDArray[Any]:
        """Memory for a result, in which gaps are 0."""
        dense = math.prod(form.shape) == form.extent
        if not dense and self._space is None:
            return form.empty()
        flat = self.empty(form.extent, form.dtype)
        if not dense:
            fill_elements(flat, np.zeros((), form.dtype.numpy))
        return self.there(form.view(flat))

    def take_back(self, memory: NDArray[Any]) -> None:
        """Keeps ``memory``, if there is room for it."""
        with self._lock:
            if self.bytes + memory.nbytes <= _MOST:
                self.bytes += memory.nbytes
                self._spare.setdefault(memory.nbytes, []).append(memory)

    def clear(self) -> None:
        """Frees what is kept."""
        with self._lock:
            self._spare.clear()
            self.bytes = 0


class _Lent:
    """What arrays on memory of a room hold, the last of which gives it back."""

    def __init__(self, room: Room, memory: NDArray[Any]) -> None:
        self._room, self._memory = room, memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._room.take_back(self._memory)


# That of all queues of the process on devices in the host's memory.
ROOM = Room()


@cache
def room_of(device: str) -> Room:
    """The room for buffers of queues of a device."""
    space = find_target(device).space
    return ROOM if space is None else Room(space)
