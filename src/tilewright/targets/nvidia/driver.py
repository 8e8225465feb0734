"""PTX and cubin -> a program that runs on an NVIDIA GPU.

Arrays in the device's memory are used in place. Those of the host are copied there by each call,
and results are copied back.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tilewright.dtypes import DType
from tilewright.errors import DeviceError
from tilewright.machines.nvidia import MOST_CLUSTER
from tilewright.machines.nvidia.tensor_map import TensorMap, check_tensor_map
from tilewright.targets.calling import Bits, Calling, Values, read_element
from tilewright.targets.llvm.module import Launch, LaunchMap
from tilewright.targets.nvidia.assemble import split_binary
from tilewright.targets.nvidia.copies import ALIGNMENT
from tilewright.targets.nvidia.device import Device, ask, check_process, driver_release
from tilewright.targets.nvidia.launch import Arguments, Launcher
from tilewright.targets.nvidia.memory import (
    Calls,
    KeptMemory,
    OwnStream,
    copies,
    finish,
    follow,
    synchronize,
)
from tilewright.targets.program import Abi, Parameter, Passed, Placement, check_room

# CUDA's handle of the default stream.
DEFAULT_STREAM = 1
_CLUSTERS = (9, 0)


class _Plan:
    """What calls with arrays in these places need on the device."""

    def __init__(self, abi: Abi, calling: Calling, resident: tuple[bool, ...]) -> None:
        self._calling = calling
        arrays = zip(calling.array_positions, abi.arrays, resident, strict=True)
        # Arrays of the host: number of the array, position of the argument, copied back or not.
        self._copied = [
            (number, position, parameter.access != "in")
            for number, (position, parameter, is_resident) in enumerate(arrays)
            if not is_resident
        ]
        self._fixed = self._sizes_of({}) if calling.fixed else None

    def sizes(self, arguments: Sequence[Passed]) -> _Sizes:
        """The sizes of a call."""
        return self._fixed or self._sizes_of(self._calling.values(arguments))

    def _sizes_of(self, values: Values) -> _Sizes:
        bytes_ = self._calling.array_bytes(values)
        spaces = self._calling.workspace_bytes(values)
        memory = [*(bytes_[number] for number, _, _ in self._copied), *spaces]
        copied = [
            (position, bytes_[number], back)
            for number, position, back in self._copied
            if bytes_[number]
        ]
        return _Sizes(memory, copied)

    def arguments(self, passed: Sequence[Passed], memory: list[int]) -> Arguments:
        """The kernel's arguments: ``memory`` in place of arrays of the host, and as workspaces."""
        slots = self._calling.slots(passed)
        for (_, position, _), pointer in zip(self._copied, memory, strict=False):
            slots[position] = pointer
        return Arguments([*slots, *memory[len(self._copied) :]])


@dataclass(frozen=True)
class _Sizes:
    """Bytes on the device that a call needs, for each array of the host and for each workspace; and
    the copied arrays (position, bytes, whether back as well)."""

    memory: list[int]
    copied: list[tuple[int, int, bool]]


@dataclass(frozen=True)
class _RunningCall:
    """A call while it runs: carries out the requests of the host's steps."""

    launchers: Sequence[Launcher]
    arguments: Arguments
    stream: int
    first_workspace: int

    def launch(self, number: int, groups: int, values: Sequence[Bits]) -> None:
        """Queues a launch on the stream."""
        numbers = [value.number for value in values]
        self.launchers[number].enqueue(self.arguments, self.stream, groups, numbers)

    def read(self, workspace: int, type_: DType) -> Any:
        """Copies an element to the host, and waits for it."""
        element = ctypes.create_string_buffer(type_.bytes)
        place = self.arguments.slots[self.first_workspace + workspace]
        ask("cuMemcpyDtoHAsync", ctypes.addressof(element), place, type_.bytes, self.stream)
        synchronize(self.stream)
        return read_element(element.raw, type_)


class KernelProgram:
    """A `targets.program.DeviceProgram`.

    Each call allocates its workspaces, and memory for copies, in the order of its stream, so that
    several Python threads, and calls on several streams, may run the kernel at once.
    """

    # As the code assumes, and enough for tensor maps.
    alignment = ALIGNMENT

    def __init__(self, device: Device, binary: bytes, abi: Abi) -> None:
        """Loads the module. Raises `DeviceError` if the device refuses it, or lacks memory."""
        check_process()
        self.device = device
        self.device_number = device.number
        self.abi = abi
        self._calling = Calling(abi)
        self._host = Placement((False,) * len(abi.arrays))
        self._calls = Calls(device)
        self._plans: dict[tuple[bool, ...], _Plan] = {}
        self._module: Any = None
        self._launchers: list[Launcher] = []
        for launch in abi.launches:
            self._check_launch(launch)
        with device.current():
            if abi.launches:
                self._module = self._load(binary)
            self._launchers += [Launcher(self._module, launch) for launch in abi.launches]

    def __del__(self) -> None:
        with suppress(Exception):
            check_process()
            if self._module is not None:
                with self.device.current():
                    ask("cuModuleUnload", self._module)

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs the kernel on arrays of the host. ``threads`` does not matter on devices."""
        self.run_placed(arguments, self._host)

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """The same as a function of no arguments."""
        return self.bound_placed(arguments, self._host)

    def run_placed(self, arguments: Sequence[Passed], placement: Placement) -> None:
        """Runs the kernel on its arguments, in order."""
        with self._current():
            plan = self._plan(placement)
            sizes = plan.sizes(arguments)
            with self._calls.call(placement) as memory:
                device_arguments = plan.arguments(
                    arguments, [memory.take(size) for size in sizes.memory]
                )
                self._enqueue(arguments, device_arguments, sizes, placement, memory.stream)

    def bound_placed(self, arguments: Sequence[Passed], placement: Placement) -> Callable[[], None]:
        """The same as a function of no arguments, with its own memory on the device."""
        with self._current():
            own_stream = OwnStream(self.device) if placement.stream is None else None
            plan = self._plan(placement)
            sizes = plan.sizes(arguments)
            memory = KeptMemory(self.device, sizes.memory)
            device_arguments = plan.arguments(arguments, memory.pointers)
        stream = own_stream.handle if own_stream else placement.stream
        assert stream is not None
        lock = threading.Lock()

        def call(_keep: Any = (own_stream, memory)) -> None:
            with lock, self._current():
                try:
                    self._enqueue(arguments, device_arguments, sizes, placement, stream)
                    finish(placement, stream)
                except DeviceError:
                    with suppress(DeviceError):
                        synchronize(stream)
                    raise

        return call

    def memory(self, size: int) -> KeptMemory:
        """``size`` bytes on the device, all zero."""
        with self._current():
            memory = KeptMemory(self.device, [size])
            ask("cuMemsetD8", memory.pointer, 0, size)
            # Other streams would not wait for the default stream.
            synchronize(DEFAULT_STREAM)
        return memory

    # A call.

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Makes the device current in the ``with`` block; its errors name the kernel."""
        check_process()
        with self.device.current():
            try:
                yield
            except DeviceError as error:
                raise DeviceError(
                    f"{self.abi.entry} failed on {self.device}",
                    where=", ".join(map(str, self.abi.parameters)),
                    why=f"{error.where}: {error.why}",
                    cure=error.cure,
                ) from error

    def _plan(self, placement: Placement) -> _Plan:
        plan = self._plans.get(placement.resident)
        if plan is None:
            plan = _Plan(self.abi, self._calling, placement.resident)
            self._plans[placement.resident] = plan
        return plan

    def _enqueue(
        self,
        passed: Sequence[Passed],
        arguments: Arguments,
        sizes: _Sizes,
        placement: Placement,
        stream: int,
    ) -> None:
        """Queues a call on its stream. All arrays of the host are copied to the device, also
        results, because kernels may leave parts of them unwritten."""
        slots = arguments.slots
        for other in placement.beside:
            follow(stream, other)
        there, back = copies(placement)
        for position, size, _ in sizes.copied:
            ask(there, slots[position], passed[position], size, stream)
        running = _RunningCall(self._launchers, arguments, stream, len(self.abi.parameters))
        self._calling.run(self._calling.values(passed), running)
        for position, size, written in sizes.copied:
            if written:
                ask(back, passed[position], slots[position], size, stream)

    # Loading.

    def _load(self, binary: bytes) -> Any:
        """The module, from the cubin; from PTX where the cubin is for other devices."""
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
                cure="compile for 'nvidia', which is this device; if its driver, for "
                f"{driver_release()}, is too old for the PTX, update it, or install "
                "nvidia-cuda-nvcc of its release",
            ) from error

    def _check_launch(self, launch: Launch) -> None:
        check_room(launch, self.device, self.device.workgroup, self.device.shared, "nvidia")
        if (launch.cluster > 1 or launch.maps) and self.device.capability < _CLUSTERS:
            raise DeviceError(
                f"{launch.entry} has clusters or tensor maps",
                where=str(self.device),
                why="they came with compute capability 9.0",
                cure="compile for 'nvidia', which is this device",
            )
        whole = not isinstance(launch.groups, int) or launch.groups % launch.cluster == 0
        if not whole or launch.cluster > MOST_CLUSTER:
            raise DeviceError(
                f"{launch.entry} has {launch.groups} workgroups in clusters of {launch.cluster}",
                why=f"a cluster is whole, and has at most {MOST_CLUSTER}",
                cure="choose a cluster size that divides the number of workgroups",
            )
        arrays = [p.bytes if isinstance(p, Parameter) else 0 for p in self.abi.parameters]
        sizes = [*arrays, *self.abi.workspaces]
        for launch_map in launch.maps:
            size = sizes[launch_map.argument]
            assert isinstance(size, int), "tensor maps have constant sizes"
            check_tensor_map(_tensor_map(launch, launch_map), size)


def _tensor_map(launch: Launch, launch_map: LaunchMap) -> TensorMap:
    try:
        return TensorMap.from_text(launch_map.text)
    except (LookupError, TypeError, ValueError) as error:
        raise DeviceError(
            f"a tensor map of {launch.entry} cannot be read",
            where=launch_map.text[:200],
            cure="compile it again",
        ) from error
