"""Calls of a kernel on a device: which arrays lie in its memory, and on which stream it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.engine.signature import ArrayForm
from tilewright.errors import ArgumentError
from tilewright.runtime.arrays import ArraySpec
from tilewright.runtime.device_arrays import (
    CheckedTensors,
    Resident,
    current_stream,
    describe_resident,
    is_resident,
    new_tensor,
    stream_handle,
    tensor_to_layout,
)
from tilewright.runtime.remote import RemoteArray
from tilewright.runtime.tensors import is_torch
from tilewright.targets.program import DeviceMemory, DeviceProgram, Placement


@dataclass(frozen=True, eq=False)
class Packed:
    """An argument in the order in which a kernel reads it; made by `CompiledKernel.pack`.

    ``data`` is the memory of that, and of what else the kernel takes that is made of the argument
    (as sums of weights, which zero points need), ``pointers`` where they begin. ``key`` says which
    kernels take it: those that pack alike. ``device`` is the one in whose memory it lies, None for
    the host's.
    """

    name: str
    key: str = field(repr=False)
    data: tuple[Any, ...] = field(repr=False)
    pointers: tuple[int, ...] = field(repr=False)
    device: int | None = None


@dataclass(frozen=True)
class Call:
    """What a program gets of a call; ``keep`` is what has to live until it returns."""

    pointers: list[int]
    placement: Placement
    keep: tuple[Any, ...]


class Placing:
    """The arguments of a kernel on the device of ``program``.

    ``getters`` are how an array of the host becomes a pointer, one for each that the code takes,
    ``specs`` what an array in the device's memory must be: none for one that is packed.
    """

    def __init__(
        self,
        program: DeviceProgram,
        getters: Sequence[tuple[str, Callable[[Any], int]]],
        specs: Mapping[str, ArraySpec],
    ) -> None:
        self._program = program
        self._arguments = [
            (name, getter, specs.get(name), self._known(specs[name]) if name in specs else None)
            for name, getter in getters
        ]

    def place(self, arrays: Mapping[str, Any], stream: Any) -> Call:
        """What ``program`` gets for ``arrays``, to run on ``stream``.

        Without a stream it is the one that torch is on, if a torch tensor is among those on the
        device; or the one that another array names. Raises `ArgumentError`, or `KeyError` for an
        array that is missing.
        """
        handle = None if stream is None else stream_handle(stream)
        pointers: list[int] = []
        resident: list[bool] = []
        residents: list[Resident] = []
        tensor, moves = None, False
        for name, getter, spec, checked_tensors in self._arguments:
            array = arrays[name]
            pointer = checked_tensors.pointer(array) if checked_tensors else None
            if pointer is not None:
                tensor = array
                pointers.append(pointer)
                resident.append(True)
                continue
            memory = describe_resident(array, name, handle) if spec else None
            if (
                memory is not None
                and spec is not None
                and self._is_moved(array, memory, name, spec)
            ):
                pointers.append(memory.info.pointer)
                resident.append(False)
                moves = True
                continue
            packed = type(array) is Packed and array.device is not None
            if packed:
                self._check_device(array.device, name)
            resident.append(memory is not None or packed)
            if memory is None or spec is None or checked_tensors is None:
                pointers.append(getter(array))
                continue
            self._check(memory, name, spec)
            pointers.append(memory.info.pointer)
            if is_torch(array):
                tensor = array
                checked_tensors.learn(array)
            else:
                residents.append(memory)
        beside: tuple[int, ...] = ()
        if handle is None:
            handle, beside = _order(tensor, residents)
        keep = tuple(memory.info.owner for memory in residents)
        return Call(pointers, Placement(tuple(resident), handle, beside, moves), keep)

    def _known(self, spec: ArraySpec) -> CheckedTensors:
        return CheckedTensors(spec, self._program.device_number, self._program.alignment)

    def run(self, call: Call) -> None:
        """Runs the kernel."""
        self._program.run_placed(call.pointers, call.placement)

    def bound(self, call: Call) -> Callable[[], None]:
        """A function that does, with workspaces of its own."""
        return self._program.bound_placed(call.pointers, call.placement)

    def pack(
        self, source: Any, name: str, spec: ArraySpec, extent: int, sizes: Sequence[int]
    ) -> tuple[DeviceMemory, ...]:
        """What ``program``, which packs an array, makes of ``source``: on the device, and done.
        A tensor on the device that lies otherwise than ``spec`` says is copied there first."""
        source = tensor_to_layout(source, name, spec, extent)
        device_memories = tuple(self._program.memory(size) for size in sizes)
        resident = describe_resident(source, name)
        beside: tuple[int, ...] = ()
        if resident is None:
            pointer = spec.pointer(source)
        else:
            self._check(resident, name, spec)
            pointer = resident.info.pointer
            beside = tuple(s for s in (resident.stream, resident.waiting) if s is not None)
        # On a stream of its own, which it waits for: calls on any may follow.
        placement = Placement(
            (resident is not None, *(True for _ in device_memories)), None, beside
        )
        self._program.run_placed(
            [pointer, *(memory.pointer for memory in device_memories)], placement
        )
        return device_memories

    def empty(self, name: str, form: ArrayForm, arrays: Mapping[str, Any], stream: Any) -> Any:
        """A new array for a result where the others are, for use on ``stream``; None where they are
        the host's."""
        there = {label: array for label, array in arrays.items() if is_resident(array, label)}
        if not there:
            return None
        beside = next((label for label, array in there.items() if is_torch(array)), None)
        if beside is None:
            raise ArgumentError(
                f"{name} is missing",
                why="the other arrays are on the device, where only torch makes new ones for us",
                cure=f"pass {name}=..., or out=...",
            )
        count = form.extent
        handle = None if stream is None else stream_handle(stream)
        like = there[beside]
        try:
            return new_tensor(like, form.dtype, count, form.shape, form.strides, handle)
        except RuntimeError:
            # There may be no room; or ``like`` has no memory, and then that is the error.
            describe_resident(like, beside)
            raise

    def _is_moved(self, array: Any, resident: Resident, name: str, spec: ArraySpec) -> bool:
        """Whether ``array``, a part of memory of this package's, is copied for the call, as it lies
        at no address that kernels take."""
        if (
            not isinstance(array, RemoteArray)
            or not resident.info.pointer % self._program.alignment
        ):
            return False
        self._check_device(resident.device, name)
        spec.check(resident.info)
        return True

    def _check(self, resident: Resident, name: str, spec: ArraySpec) -> None:
        self._check_device(resident.device, name)
        spec.check(resident.info)
        alignment, address = self._program.alignment, resident.info.pointer
        if address % alignment:
            raise ArgumentError(
                f"{name} has address {address:#x}, expected one aligned to {alignment} bytes",
                where=f"parameter {name}",
                why="the kernel moves as many at once",
                cure="pass a copy: x.clone() of a torch tensor, x.copy() of others",
            )

    def _check_device(self, number: int, name: str) -> None:
        wanted = self._program.device_number
        if number != wanted:
            raise ArgumentError(
                f"{name} is on device {number}, the kernel on device {wanted}",
                where=f"parameter {name}",
                cure=f"pass it on that device, as x.to('cuda:{wanted}') of a torch tensor; "
                "CUDA_VISIBLE_DEVICES says which one is the first",
            )


def _order(tensor: Any, residents: list[Resident]) -> tuple[int | None, tuple[int, ...]]:
    """The stream to run on, and those whose work comes before; ``tensor`` is torch's, or None."""
    if tensor is not None:
        chosen: int | None = current_stream(tensor)
    else:
        chosen = next(
            (resident.stream for resident in residents if resident.stream is not None), None
        )
    others = [
        resident.waiting if resident.stream is None else resident.stream for resident in residents
    ]
    return chosen, tuple(dict.fromkeys(s for s in others if s is not None and s != chosen))
