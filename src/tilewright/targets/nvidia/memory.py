"""Memory and order on the device: streams, what waits for what, and memory in a stream's order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from tilewright.errors import DeviceError
from tilewright.targets.nvidia.device import Device, ask, check_process, load_cuda
from tilewright.targets.program import Placement

# Bytes that stay with this process when a call has freed them: allocating them anew takes longer
# than most kernels.
_KEPT = 1 << 30


@cache
def _pool(device: Device) -> Any:
    """Memory of our own on a device: the pool that others share keeps its settings."""
    cuda = load_cuda()
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.handleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = device.number
    pool = ask("cuMemPoolCreate", wanted)
    kept = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    ask("cuMemPoolSetAttribute", pool, kept, cuda.cuuint64_t(_KEPT))
    return pool


def allocate(device: Device, size: int, stream: int) -> int:
    """``size`` bytes for what comes behind on ``stream``, until `release`."""
    if not device.pools:
        return int(ask("cuMemAlloc", max(size, 1)))
    return int(ask("cuMemAllocFromPoolAsync", max(size, 1), _pool(device), stream))


def release(device: Device, pointer: int, stream: int) -> None:
    """Gives memory back once ``stream`` has done what it has by now."""
    if device.pools:
        ask("cuMemFreeAsync", pointer, stream)
    else:
        # It waits for the whole device.
        ask("cuMemFree", pointer)


def follow(stream: int, other: int) -> None:
    """What comes on ``stream`` waits for what ``other`` has by now."""
    if stream == other:
        return
    event = ask("cuEventCreate", load_cuda().CUevent_flags.CU_EVENT_DISABLE_TIMING)
    try:
        ask("cuEventRecord", event, other)
        ask("cuStreamWaitEvent", stream, event, 0)
    finally:
        # The driver keeps it until it has happened.
        ask("cuEventDestroy", event)


def synchronize(stream: int) -> None:
    """Waits until ``stream`` has done what it has by now."""
    ask("cuStreamSynchronize", stream)


def finish(placement: Placement, stream: int) -> None:
    """Whoever uses the results of a call that ``stream`` has finds them."""
    if placement.stream is None or not all(placement.resident):
        synchronize(stream)
        return
    for other in placement.beside:
        follow(other, stream)


class CallMemory:
    """What one call takes: its stream, and memory in the order of that."""

    def __init__(self, device: Device, stream: int) -> None:
        self._device = device
        self.stream = stream
        self._pointers: list[int] = []

    def take(self, size: int) -> int:
        """So many bytes, until the call is done."""
        self._pointers.append(allocate(self._device, size, self.stream))
        return self._pointers[-1]

    def release(self) -> None:
        """Gives all of it back once the stream has done what it has by now."""
        while self._pointers:
            release(self._device, self._pointers.pop(), self.stream)

    def abandon(self) -> None:
        """Gives back what still can be, and waits: copies may be at memory of the caller, which may
        go now."""
        for pointer in self._pointers:
            with suppress(DeviceError):
                release(self._device, pointer, self.stream)
        with suppress(DeviceError):
            synchronize(self.stream)


class Calls:
    """The calls of one program, which may be at work at once, each on a stream."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._spare: list[OwnStream] = []

    @contextmanager
    def call(self, placement: Placement) -> Iterator[CallMemory]:
        """A call at work, on the stream of ``placement`` or on one of its own; at the end results
        are there and memory is given back, also where the device refuses something."""
        own = self._own_stream() if placement.stream is None else None
        stream = own.handle if own else placement.stream
        assert stream is not None
        memory = CallMemory(self._device, stream)
        try:
            yield memory
            memory.release()
            finish(placement, stream)
        except DeviceError:
            memory.abandon()
            raise
        # One that failed is not used again.
        if own:
            self._spare.append(own)

    def _own_stream(self) -> OwnStream:
        try:
            return self._spare.pop()
        except IndexError:
            return OwnStream(self._device)


class OwnStream:
    """A stream of ours, which waits for no other unless it is told to."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.handle = 0
        flag = load_cuda().CUstream_flags.CU_STREAM_NON_BLOCKING
        self.handle = int(ask("cuStreamCreate", flag))

    def __del__(self) -> None:
        # At the end of the process, or after a fault, there is nothing left to destroy.
        with suppress(Exception):
            check_process()
            if self.handle:
                with self._device.current():
                    ask("cuStreamDestroy", self.handle)


class KeptMemory:
    """Memory on the device that is there until this object goes."""

    def __init__(self, device: Device, sizes: list[int]) -> None:
        self._device = device
        self.pointers: list[int] = []
        for size in sizes:
            self.pointers.append(int(ask("cuMemAlloc", max(size, 1))))

    @property
    def pointer(self) -> int:
        """The address of the first."""
        return self.pointers[0]

    def __del__(self) -> None:
        with suppress(Exception):
            check_process()
            with self._device.current():
                # It waits for kernels that may still use the memory.
                for pointer in self.pointers:
                    ask("cuMemFree", pointer)
