"""Memory and streams on the device: allocation in the order of a stream, and waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from tilewright.errors import DeviceError
from tilewright.targets.nvidia.device import Device, ask, check_process, load_cuda
from tilewright.targets.program import Placement

# Freed bytes that the pool keeps for this process: allocating them anew takes longer than most
# kernels.
_KEPT = 1 << 30


@cache
def _pool(device: Device) -> Any:
    """A pool of this package on a device; the default pool's settings are left to others."""
    cuda = load_cuda()
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.handleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device.number
    pool = ask("cuMemPoolCreate", properties)
    threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    ask("cuMemPoolSetAttribute", pool, threshold, cuda.cuuint64_t(_KEPT))
    return pool


def allocate(device: Device, size: int, stream: int) -> int:
    """``size`` bytes for later work on ``stream``, until `release`."""
    if not device.pools:
        return int(ask("cuMemAlloc", max(size, 1)))
    return int(ask("cuMemAllocFromPoolAsync", max(size, 1), _pool(device), stream))


def release(device: Device, pointer: int, stream: int) -> None:
    """Frees memory after the work that ``stream`` has now."""
    if device.pools:
        ask("cuMemFreeAsync", pointer, stream)
    else:
        # This waits for the whole device.
        ask("cuMemFree", pointer)


def follow(stream: int, other: int) -> None:
    """Later work on ``stream`` waits for the work that ``other`` has now."""
    if stream == other:
        return
    event = ask("cuEventCreate", load_cuda().CUevent_flags.CU_EVENT_DISABLE_TIMING)
    try:
        ask("cuEventRecord", event, other)
        ask("cuStreamWaitEvent", stream, event, 0)
    finally:
        # The driver keeps it until it has occurred.
        ask("cuEventDestroy", event)


def copies(placement: Placement) -> tuple[str, str]:
    """The driver's functions that copy arrays of a call to the device, and back."""
    if placement.moves:
        return "cuMemcpyAsync", "cuMemcpyAsync"
    return "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"


def synchronize(stream: int) -> None:
    """Waits for the work that ``stream`` has now."""
    ask("cuStreamSynchronize", stream)


def finish(placement: Placement, stream: int) -> None:
    """Makes the results of a call on ``stream`` visible to the caller."""
    if placement.stream is None or not all(placement.resident):
        synchronize(stream)
        return
    for other in placement.beside:
        follow(other, stream)


class CallMemory:
    """The stream of one call, and memory allocated in its order."""

    def __init__(self, device: Device, stream: int) -> None:
        self._device = device
        self.stream = stream
        self._pointers: list[int] = []

    def take(self, size: int) -> int:
        """``size`` bytes, until the end of the call."""
        self._pointers.append(allocate(self._device, size, self.stream))
        return self._pointers[-1]

    def release(self) -> None:
        """Frees all of it after the work that the stream has now."""
        while self._pointers:
            release(self._device, self._pointers.pop(), self.stream)

    def abandon(self) -> None:
        """Frees what it can after an error, and waits: copies may still use the caller's memory,
        which may be freed now."""
        for pointer in self._pointers:
            with suppress(DeviceError):
                release(self._device, pointer, self.stream)
        with suppress(DeviceError):
            synchronize(self.stream)


class Calls:
    """The calls of one program, which may run at the same time, each on a stream."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._spare: list[OwnStream] = []

    @contextmanager
    def call(self, placement: Placement) -> Iterator[CallMemory]:
        """A call, on the stream of ``placement`` or on its own; at the end results are visible and
        memory is freed, also after an error of the device."""
        own_stream = self._own_stream() if placement.stream is None else None
        stream = own_stream.handle if own_stream else placement.stream
        assert stream is not None
        memory = CallMemory(self._device, stream)
        try:
            yield memory
            memory.release()
            finish(placement, stream)
        except DeviceError:
            memory.abandon()
            raise
        # The stream of a failed call is not used again.
        if own_stream:
            self._spare.append(own_stream)

    def _own_stream(self) -> OwnStream:
        try:
            return self._spare.pop()
        except IndexError:
            return OwnStream(self._device)


class OwnStream:
    """A stream of this package, which waits for others only on request."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.handle = 0
        flag = load_cuda().CUstream_flags.CU_STREAM_NON_BLOCKING
        self.handle = int(ask("cuStreamCreate", flag))

    def __del__(self) -> None:
        # At the end of the process, or after a fault, the stream is gone already.
        with suppress(Exception):
            check_process()
            if self.handle:
                with self._device.current():
                    ask("cuStreamDestroy", self.handle)


class KeptMemory:
    """Memory on the device, freed with this object."""

    def __init__(self, device: Device, sizes: list[int]) -> None:
        self._device = device
        self.pointers: list[int] = []
        for size in sizes:
            self.pointers.append(int(ask("cuMemAlloc", max(size, 1))))

    @property
    def pointer(self) -> int:
        """The address of the first block."""
        return self.pointers[0]

    def __del__(self) -> None:
        with suppress(Exception):
            check_process()
            with self._device.current():
                # This waits for kernels that may still use the memory.
                for pointer in self.pointers:
                    ask("cuMemFree", pointer)
