"""SPIR-V -> a program that runs on an OpenCL device."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import CompilationError, DeviceError
from tilewright.targets.calling import Bits, Calling, read_element
from tilewright.targets.program import Abi, Passed, check_room
from tilewright.targets.spirv.building import RefusedError, native_code, refusal
from tilewright.targets.spirv.device import Device, check_process, load_opencl
from tilewright.targets.spirv.memory import ArgumentMemory, CopiedMemory, SharedMemory

# Filters of warnings are global to the process.
_warnings = threading.Lock()


class KernelProgram:
    """A `targets.program.Program` on a device.

    Each call takes its own `Queue`, so that several Python threads may run the kernel at once.
    Queues are kept between calls.
    """

    def __init__(self, device: Device, binary: bytes, abi: Abi) -> None:
        """Builds the program for the whole device; for a part of it when a call asks for that.

        Raises `CompilationError` if the device refuses it, `DeviceError` if it is too large for it.
        """
        check_process()
        self.device = device
        self.abi = abi
        self._calling = Calling(abi)
        self._cl = load_opencl()
        self._binary = binary
        self._native = b""
        self._built: dict[Any, Any] = {}
        self._building = threading.Lock()
        self._spare: dict[int, list[Queue]] = {}
        for launch in abi.launches:
            check_room(launch, device, device.workgroup, device.shared, "spirv")
        if abi.launches:
            context, handle = device.context(device.cores)
            self._native = self._compile(context, handle)
            self._check_kernels(self._program(context, handle), handle)

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs the kernel on its arguments, in order."""
        check_process()
        spare = self._spare.setdefault(threads, [])
        try:
            queue = spare.pop()
        except IndexError:
            queue = self.queue(threads)
        self._run(queue, arguments)
        # The queue of a failed call is not used again.
        spare.append(queue)

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """The same as a function of no arguments, for one thread at a time."""
        check_process()
        queue = self.queue(threads)
        lock = threading.Lock()

        def call() -> None:
            check_process()
            with lock:
                self._run(queue, arguments)

        return call

    def _run(self, queue: Queue, arguments: Sequence[Passed]) -> None:
        try:
            queue.enqueue(arguments)
            queue.finish()
        except self._cl.Error as error:
            queue.settle(self._cl.Error)
            raise self.failure(error) from error

    def queue(self, threads: int, beside: Queue | None = None) -> Queue:
        """A new queue for the kernel, or the queue of the kernel that runs ``beside`` it."""
        try:
            context, handle = self.device.context(threads)
            program = self._program(context, handle) if self.abi.launches else None
            shares = self.device.shares_memory
            command_queue = beside.queue if beside else self._cl.CommandQueue(context, handle)
            return Queue(self._cl, command_queue, program, self.abi, self._calling, shares)
        except self._cl.Error as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> DeviceError:
        return DeviceError(
            f"{self.abi.entry} failed on {self.device}",
            where=", ".join(map(str, self.abi.parameters)),
            why=str(error),
            cure="if memory ran out, choose a smaller problem; or another device, with the "
            "setting TILEWRIGHT_OPENCL_DEVICE",
        )

    # Building.

    def _program(self, context: Any, handle: Any) -> Any:
        with self._building:
            if context not in self._built:
                self._built[context] = self._load(context, handle)
            return self._built[context]

    def _load(self, context: Any, handle: Any) -> Any:
        """The program from native code: Intel's library keeps 0.4 MB for it, but 1.8 for one from
        SPIR-V. It loads in 2 ms, usually also on a part of the device; otherwise the part gets its
        own code."""
        try:
            return self._link(context, handle, self._native)
        except self._cl.Error:
            native = self._compile(context, handle)
        try:
            return self._link(context, handle, native)
        except self._cl.Error as error:
            raise self._refusal(f"it refuses its own code: {error}") from error

    def _link(self, context: Any, handle: Any, native: bytes) -> Any:
        program = self._cl.Program(context, [handle], [native])
        with _warnings, warnings.catch_warnings():
            # pyopencl warns of every remark of the compiler.
            warnings.simplefilter("ignore", self._cl.CompilerWarning)
            return program.build()

    def _compile(self, context: Any, handle: Any) -> bytes:
        """The device's native code."""
        try:
            return native_code(self.device, context, handle, self._binary)
        except RefusedError as error:
            raise self._refusal(str(error)) from error

    def _refusal(self, why: str) -> CompilationError:
        return refusal(self.device, self._binary, self.abi.entry, why)

    def _check_kernels(self, program: Any, handle: Any) -> None:
        """The size of workgroups that the kernel's registers allow is known after building."""
        info = self._cl.kernel_work_group_info
        for launch in self.abi.launches:
            try:
                kernel = self._cl.Kernel(program, launch.entry)
                most = kernel.get_work_group_info(info.WORK_GROUP_SIZE, handle)
            except self._cl.Error as error:
                raise self._refusal(f"{launch.entry}: {error}") from error
            check_room(launch, self.device, most, self.device.shared, "spirv")


class Queue:
    """A command queue with its own kernel objects and memory, for one call at a time."""

    def __init__(
        self, cl: Any, queue: Any, program: Any, abi: Abi, calling: Calling, shares: bool
    ) -> None:
        self.queue = queue
        self._kernels = [cl.Kernel(program, launch.entry) for launch in abi.launches]
        self._items = [launch.items for launch in abi.launches]
        self._calling = calling
        # Position of the host's values among the arguments.
        self._values_at = len(abi.parameters) + len(abi.workspaces)
        kind = SharedMemory if shares else CopiedMemory
        self._memory: ArgumentMemory = kind(cl, queue, self._kernels, abi, calling)
        self._scalars: dict[int, Bits] = {}
        self._enqueue = cl.enqueue_nd_range_kernel

    def enqueue(self, arguments: Sequence[Passed]) -> None:
        """Queues all launches, one after the other."""
        calling = self._calling
        sizes = calling.sizes_of(arguments)
        self._memory.give(arguments, sizes)
        for position, bits in calling.scalars(arguments):
            if self._scalars.get(position) != bits:
                for kernel in self._kernels:
                    kernel.set_arg(position, _by_value(bits))
                self._scalars[position] = bits
        if sizes.launches is None:
            calling.run(calling.values(arguments), self)
        else:
            for number, groups in sizes.launches:
                self.launch(number, groups, ())
        self._memory.take(arguments)

    def finish(self) -> None:
        """Waits for all queued work."""
        self.queue.finish()

    def launch(self, number: int, groups: int, values: Sequence[Bits]) -> None:
        """One launch, with the host's values."""
        kernel, items = self._kernels[number], self._items[number]
        for position, value in enumerate(values, start=self._values_at):
            kernel.set_arg(position, _by_value(value))
        self._enqueue(self.queue, kernel, (groups * items,), (items,))

    def read(self, workspace: int, type_: DType) -> Any:
        """Waits for the value that a launch wrote for the host."""
        return read_element(self._memory.read(workspace, type_.bytes), type_)

    def settle(self, error: type[Exception]) -> None:
        """Waits, after one launch failed, for others that may still write to arrays of the host."""
        with suppress(error):
            self.queue.finish()


def _by_value(value: Bits) -> Any:
    """An argument as a numpy scalar."""
    return np.frombuffer(value.number.to_bytes(value.bytes, "little"), f"u{value.bytes}")[0]
