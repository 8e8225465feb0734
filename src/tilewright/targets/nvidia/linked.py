"""Several kernels on an NVIDIA GPU as one program: launches in order, on the caller's stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import UnsupportedError
from tilewright.runtime.steps import run_steps
from tilewright.targets.linking import Base, Place, Plan, Run
from tilewright.targets.nvidia.device import ask, check_process
from tilewright.targets.nvidia.driver import KernelProgram
from tilewright.targets.nvidia.memory import (
    CallMemory,
    Calls,
    KeptMemory,
    OwnStream,
    copies,
    follow,
    synchronize,
)
from tilewright.targets.program import DeviceMemory, Passed, Placement


class LinkedProgram:
    """A `targets.program.DeviceProgram` of several kernels.

    Constants are on the device. The arena, and copies of arrays of the host, are allocated in the
    order of the stream, so that calls on several streams do not share them. The host waits where it
    tests a flag, and where a single kernel would.
    """

    def __init__(
        self,
        programs: Sequence[KernelProgram],
        plan: Plan,
        constants: Sequence[Any],
        arena: Any = None,
    ) -> None:
        """``constants`` are arrays of the host, or memory on the device. Raises `DeviceError`
        without enough memory."""
        if arena is not None:
            raise UnsupportedError(
                "a GPU takes no arena of the host",
                why="arrays between kernels are in the device's memory",
                cure="leave it out: memory is allocated from the driver's pool, in stream order",
            )
        first = programs[0]
        self.device = first.device
        self.device_number, self.alignment = first.device_number, first.alignment
        self._programs, self._plan = programs, plan
        self._first = first
        self._calls = Calls(self.device)
        self._constants = [self._on_device(constant) for constant in constants]
        self._host = Placement((False,) * len(plan.arguments))

    def memory(self, size: int) -> DeviceMemory:
        """``size`` bytes on the device, all zero."""
        return self._first.memory(size)

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs all steps on arrays of the host. ``threads`` does not matter on devices."""
        self.run_placed(arguments, self._host)

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """The same as a function of no arguments."""
        return self.bound_placed(arguments, self._host)

    def bound_placed(self, arguments: Sequence[Passed], placement: Placement) -> Callable[[], None]:
        """The same as a function of no arguments."""
        return lambda: self.run_placed(arguments, placement)

    def run_placed(self, arguments: Sequence[Passed], placement: Placement) -> None:
        """Runs all steps on arrays that may be in the device's memory."""
        check_process()
        with self.device.current(), self._calls.call(placement) as memory:
            for other in placement.beside:
                follow(memory.stream, other)
            self._steps(arguments, placement, memory)

    def _steps(self, arguments: Sequence[Passed], placement: Placement, memory: CallMemory) -> None:
        """Queues all of a call on its stream."""
        stream = memory.stream
        arena = memory.take(self._plan.arena)
        device_pointers = [int(argument) for argument in arguments]
        copied: list[int] = []
        copies_there, copies_back = copies(placement)
        for position, resident in enumerate(placement.resident):
            if not resident:
                # Results, too: kernels may leave parts of them unwritten.
                size = self._plan.arguments[position].bytes
                device_pointers[position] = memory.take(size)
                there = device_pointers[position]
                ask(copies_there, there, arguments[position], size, stream)
                copied.append(position)

        def pointer(place: Place) -> int:
            match place.base:
                case Base.ARGUMENT:
                    return device_pointers[place.number]
                case Base.CONSTANT:
                    return self._constants[place.number].pointer
                case Base.ARENA:
                    return arena + place.number
                case Base.NUMBER:
                    return place.number

        def launch(step: Run) -> None:
            pointers = [pointer(place) for place in step.places]
            arrays = sum(place.base is not Base.NUMBER for place in step.places)
            all_resident = Placement((True,) * arrays, stream)
            self._programs[step.program].run_placed(pointers, all_resident)

        def holds(flag: Place) -> bool:
            flag_byte = ctypes.c_uint8()
            ask("cuMemcpyDtoHAsync", ctypes.addressof(flag_byte), pointer(flag), 1, stream)
            synchronize(stream)
            return bool(flag_byte.value)

        run_steps(self._plan.steps, launch, holds)
        for position in copied:
            argument = self._plan.arguments[position]
            if argument.written:
                back = device_pointers[position]
                ask(copies_back, arguments[position], back, argument.bytes, stream)

    def _on_device(self, constant: Any) -> DeviceMemory:
        """A constant in the device's memory, copied there unless it is there already."""
        if not hasattr(constant, "ctypes"):
            resident: DeviceMemory = constant
            return resident
        check_process()
        with self.device.current():
            memory = KeptMemory(self.device, [constant.nbytes])
            stream = OwnStream(self.device)
            source = constant.ctypes.data
            ask("cuMemcpyHtoDAsync", memory.pointer, source, constant.nbytes, stream.handle)
            synchronize(stream.handle)
        return memory
