"""PTX and cubin -> a program that runs on an NVIDIA GPU.

Each call copies its arrays from the host's memory to the device's, and back what kernels wrote.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tilewright.errors import DeviceError
from tilewright.targets.llvm.module import Launch
from tilewright.targets.nvidia.assemble import split_binary
from tilewright.targets.nvidia.device import Device, ask, check_process, load_cuda
from tilewright.targets.program import Abi

# Shared memory that every launch may have; more has to be asked for.
_PLAIN_SHARED = 48 << 10


class KernelProgram:
    """A `targets.program.Program` on a device.

    Each call takes a `_Queue` of its own, so that several Python threads may run the kernel at
    once. They are kept between calls.
    """

    def __init__(self, device: Device, binary: bytes, abi: Abi) -> None:
        """Loads the module. Raises `DeviceError` if the device refuses it, or has no room."""
        check_process()
        self.device = device
        self.abi = abi
        self._spare: list[_Queue] = []
        self._module: Any = None
        for launch in abi.launches:
            self._check_room(launch)
        with device.current():
            if abi.launches:
                self._module = self._load(binary)
            self._functions = [self._function(launch) for launch in abi.launches]

    def __del__(self) -> None:
        with suppress(Exception):
            check_process()
            if self._module is not None:
                with self.device.current():
                    ask("cuModuleUnload", self._module)

    def run(self, pointers: list[int], threads: int) -> None:
        """Runs the kernel on the arguments' pointers, in order. ``threads`` are not for devices."""
        check_process()
        with self.device.current():
            try:
                queue = self._spare.pop()
            except IndexError:
                queue = self._queue()
            self._run(queue, pointers)
        # One that failed is not used again.
        self._spare.append(queue)

    def bound(self, pointers: list[int], threads: int) -> Callable[[], None]:
        """A call of no arguments on these pointers, which one thread at a time is in."""
        check_process()
        with self.device.current():
            queue = self._queue()
        lock = threading.Lock()

        def call() -> None:
            check_process()
            with lock, self.device.current():
                self._run(queue, pointers)

        return call

    def _queue(self) -> _Queue:
        try:
            return _Queue(self.device, self._functions, self.abi)
        except DeviceError as error:
            raise self._failure(error) from error

    def _run(self, queue: _Queue, pointers: list[int]) -> None:
        try:
            queue.run(pointers)
        except DeviceError as error:
            raise self._failure(error) from error

    def _failure(self, error: DeviceError) -> DeviceError:
        return DeviceError(
            f"{self.abi.entry} failed on {self.device}",
            where=", ".join(map(str, self.abi.parameters)),
            why=f"{error.where}: {error.why}",
            cure="if memory ran out, choose a smaller problem; after a fault of the device, start "
            "the process again",
        )

    # Loading.

    def _load(self, binary: bytes) -> Any:
        """The module: from the cubin, or from PTX where that is for other devices."""
        ptx, cubin = split_binary(binary)
        if cubin:
            with suppress(DeviceError):
                return ask("cuModuleLoadData", cubin)
        try:
            return ask("cuModuleLoadData", ptx + b"\0")
        except DeviceError as error:
            raise DeviceError(
                f"{self.device} does not take the code of {self.abi.entry}",
                why=f"{error.where}: {error.why}",
                cure="compile for 'nvidia', which is this device; if the driver is too old for the "
                "PTX, update it, or install nvidia-cuda-nvcc of its release",
            ) from error

    def _function(self, launch: Launch) -> Any:
        function = ask("cuModuleGetFunction", self._module, launch.entry.encode())
        if launch.shared > _PLAIN_SHARED:
            kinds = load_cuda().CUfunction_attribute
            most = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            ask("cuFuncSetAttribute", function, most, launch.shared)
        return function

    def _check_room(self, launch: Launch) -> None:
        for what, wanted, most in (
            ("work-items", launch.items, self.device.workgroup),
            ("bytes of shared memory", launch.shared, self.device.shared),
        ):
            if wanted > most:
                raise DeviceError(
                    f"{launch.entry} needs workgroups of {wanted} {what}",
                    where=str(self.device),
                    why=f"the device has {most}",
                    cure="choose smaller tiles in the config, or the target 'nvidia', whose "
                    "schedules keep to the device's limits",
                )


class _Queue:
    """A stream with memory of its own on the device, for one call at a time."""

    def __init__(self, device: Device, functions: list[Any], abi: Abi) -> None:
        self._device = device
        self._stream: Any = None
        self._memory: list[Any] = []
        self._launches = list(zip(functions, abi.launches, strict=True))
        self._parameters = abi.parameters
        sizes = [*(each.bytes for each in abi.parameters), *abi.workspaces]
        self._stream = ask("cuStreamCreate", load_cuda().CUstream_flags.CU_STREAM_NON_BLOCKING)
        for size in sizes:
            self._memory.append(ask("cuMemAlloc", max(size, 1)))
        # What a launch takes: the address of each argument's value.
        self._values = (ctypes.c_void_p * len(sizes))(*map(int, self._memory))
        first = ctypes.addressof(self._values)
        width = ctypes.sizeof(ctypes.c_void_p)
        places = [first + position * width for position in range(len(sizes))]
        self._arguments = (ctypes.c_void_p * len(sizes))(*places)

    def run(self, pointers: list[int]) -> None:
        """Copies all arrays there, as kernels may leave parts of a result out; runs all launches in
        turn; copies back what they write, and waits for it."""
        stream = self._stream
        try:
            for memory, pointer, each in zip(
                self._memory, pointers, self._parameters, strict=False
            ):
                if each.bytes:
                    ask("cuMemcpyHtoDAsync", memory, pointer, each.bytes, stream)
            arguments = ctypes.addressof(self._arguments)
            for function, launch in self._launches:
                size = (launch.groups, 1, 1, launch.items, 1, 1, launch.shared)
                ask("cuLaunchKernel", function, *size, stream, arguments, 0)
            for memory, pointer, each in zip(
                self._memory, pointers, self._parameters, strict=False
            ):
                if each.bytes and each.access != "in":
                    ask("cuMemcpyDtoHAsync", pointer, memory, each.bytes, stream)
        finally:
            # The copies read and write memory of the caller, which may go if one fails.
            ask("cuStreamSynchronize", stream)

    def __del__(self) -> None:
        # At the end of the process, or after a fault, there is nothing left to free.
        with suppress(Exception):
            check_process()
            with self._device.current():
                for memory in self._memory:
                    ask("cuMemFree", memory)
                if self._stream is not None:
                    ask("cuStreamDestroy", self._stream)
