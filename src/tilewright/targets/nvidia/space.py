"""The memory of a GPU as buffers of queues have it: allocated, copied and filled by the host, which
waits."""

from __future__ import annotations

from tilewright.targets.nvidia.device import Device, ask, check_process
from tilewright.targets.nvidia.memory import Calls, KeptMemory
from tilewright.targets.program import Placement

# What sets elements of so many bytes.
_FILLS = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}


class GpuSpace:
    """A `runtime.remote.Space`: each call has a stream of its own."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._calls = Calls(device)
        self.number = device.number

    def allocate(self, size: int) -> KeptMemory:
        """``size`` bytes, freed with what is returned."""
        check_process()
        with self._device.current():
            return KeptMemory(self._device, [size])

    def read(self, to: int, source: int, size: int) -> None:
        """Copies from the device to the host."""
        self._do("cuMemcpyDtoHAsync", to, source, size)

    def write(self, to: int, source: int, size: int) -> None:
        """Copies from the host to the device."""
        self._do("cuMemcpyHtoDAsync", to, source, size)

    def copy(self, to: int, source: int, size: int) -> None:
        """Copies within the device."""
        self._do("cuMemcpyDtoDAsync", to, source, size)

    def fill(self, to: int, element: bytes, count: int) -> bool:
        """Writes an element of 1, 2 or 4 bytes ``count`` times; False for others."""
        size = len(element)
        if size == 8 and element[:4] == element[4:]:
            element, size, count = element[:4], 4, 2 * count
        if size not in _FILLS:
            return False
        self._do(_FILLS[size], to, int.from_bytes(element, "little"), count)
        return True

    def _do(self, function: str, to: int, what: int, size: int) -> None:
        if not size:
            return
        check_process()
        with self._device.current(), self._calls.call(_ALONE) as memory:
            ask(function, to, what, size, memory.stream)


_ALONE = Placement(())
