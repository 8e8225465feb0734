"""One function of a kernel on the device, and its launch on a stream."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tilewright.machines.nvidia.tensor_map import TensorMap
from tilewright.targets.llvm.module import Launch
from tilewright.targets.nvidia.device import ask, load_cuda
from tilewright.targets.nvidia.tensor_maps import EncodedMap

# Bytes of shared memory that need no permission.
_PLAIN_SHARED = 48 << 10
_WIDTH = ctypes.sizeof(ctypes.c_void_p)


class Arguments:
    """The arguments of launches in memory: the driver takes the address of each. ``slots`` are
    pointers, or the bits of scalars."""

    def __init__(self, slots: Sequence[int]) -> None:
        self.slots = tuple(slots)
        self._values = (ctypes.c_void_p * len(self.slots))(*self.slots)
        first = ctypes.addressof(self._values)
        self._places = tuple(first + position * _WIDTH for position in range(len(self.slots)))
        self.table = self.with_values(())

    def with_values(self, places: Sequence[int]) -> Any:
        """The addresses of all slots, then ``places``, as an array."""
        return (ctypes.c_void_p * (len(self._places) + len(places)))(*self._places, *places)


class Launcher:
    """A launch, and its function in a loaded module."""

    def __init__(self, module: Any, launch: Launch) -> None:
        self._launch = launch
        self._maps = [
            (launch_map.argument, EncodedMap(TensorMap.from_text(launch_map.text)))
            for launch_map in launch.maps
        ]
        self._function = ask("cuModuleGetFunction", module, launch.entry.encode())
        if launch.shared > _PLAIN_SHARED:
            kinds = load_cuda().CUfunction_attribute
            most = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            ask("cuFuncSetAttribute", self._function, most, launch.shared)

    def enqueue(
        self, arguments: Arguments, stream: int, groups: int, values: Sequence[int] = ()
    ) -> None:
        """Queues the launch on ``stream`` with ``groups`` workgroups and the bits of the host's
        ``values``. The driver copies all arguments before it returns."""
        table = arguments.table
        if self._maps or values:
            bits = (ctypes.c_uint64 * len(values))(*values)
            first = ctypes.addressof(bits)
            maps = [encoded.place(arguments.slots[position]) for position, encoded in self._maps]
            places = [first + position * _WIDTH for position in range(len(values))]
            table = arguments.with_values([*places, *(place for place, _ in maps)])
        address = ctypes.addressof(table)
        launch = self._launch
        if launch.cluster == 1:
            size = (groups, 1, 1, launch.items, 1, 1, launch.shared)
            ask("cuLaunchKernel", self._function, *size, stream, address, 0)
        else:
            ask("cuLaunchKernelEx", self._with_cluster(stream, groups), self._function, address, 0)

    def _with_cluster(self, stream: int, groups: int) -> Any:
        cuda, launch = load_cuda(), self._launch
        config, attribute = cuda.CUlaunchConfig(), cuda.CUlaunchAttribute()
        config.gridDimX, config.gridDimY, config.gridDimZ = groups, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.items, 1, 1
        config.sharedMemBytes = launch.shared
        config.hStream = stream
        attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster = attribute.value.clusterDim
        cluster.x, cluster.y, cluster.z = launch.cluster, 1, 1
        config.attrs = [attribute]
        config.numAttrs = 1
        return config
