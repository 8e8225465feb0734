"""What a target's driver makes of a binary: a program that runs; and the ABI that calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from tilewright.dtypes import DType, dtype
from tilewright.ir.stmt import Kernel, Param
from tilewright.targets.llvm.module import Launch, Module


@dataclass(frozen=True)
class Parameter:
    """An array that a kernel takes; ``access`` is ``"in"``, ``"out"`` or ``"inout"``.

    ``bytes`` reach from its first element, which the pointer that a kernel gets is of, to the end
    of its last.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    access: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Abi:
    """How a kernel is called: on pointers to its parameters, then to its workspaces (bytes each).

    ``entry`` is the function of the kernel's name; where a device runs ``launches``, there is none.
    """

    entry: str
    parameters: tuple[Parameter, ...]
    workspaces: tuple[int, ...]
    launches: tuple[Launch, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The ABI as JSON holds it."""
        parameters = [{**asdict(each), "dtype": each.dtype.name} for each in self.parameters]
        launches = [each.as_json() for each in self.launches]
        return {**asdict(self), "parameters": parameters, "launches": launches}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Abi:
        """What `as_json` made. Raises `KeyError`, `TypeError` or an error of this project."""
        parameters = tuple(
            Parameter(
                name=each["name"],
                dtype=dtype(each["dtype"]),
                shape=tuple(each["shape"]),
                access=each["access"],
                bytes=each["bytes"],
            )
            for each in data["parameters"]
        )
        launches = tuple(Launch.from_json(each) for each in data["launches"])
        return Abi(data["entry"], parameters, tuple(data["workspaces"]), launches)


def abi_of(kernel: Kernel, module: Module) -> Abi:
    """The ABI of ``kernel``, which became ``module``."""
    parameters = parameters_of(kernel.arrays)
    return Abi(module.entry, parameters, module.workspaces, module.launches)


def parameters_of(params: Iterable[Param]) -> tuple[Parameter, ...]:
    """What a kernel with these parameters takes."""
    return tuple(
        Parameter(
            name=each.name,
            dtype=each.buffer.dtype,
            shape=each.buffer.shape,
            access=each.access,
            bytes=each.buffer.bytes,
        )
        for each in params
    )


class Program(Protocol):
    """A kernel that is loaded and can be called, by several Python threads at once."""

    def run(self, pointers: list[int], threads: int) -> None:
        """Runs the kernel on pointers to its parameters, with so many threads."""

    def bound(self, pointers: list[int], threads: int) -> Callable[[], None]:
        """A function of no arguments that does the same, with workspaces of its own."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the arrays of one call of a `DeviceProgram` lie, and in what order it runs.

    ``resident`` says of each array whether it lies in the device's memory; others are copied.
    ``stream`` is the caller's, a handle: the call only adds to it, and waits for it where arrays
    of the host are copied. None: the call has a stream of its own, and waits. What ``beside`` has
    on other streams of the caller comes before, and what they get afterwards comes behind.
    """

    resident: tuple[bool, ...]
    stream: int | None = None
    beside: tuple[int, ...] = ()


class DeviceMemory(Protocol):
    """Memory on a device, which is there as long as the object."""

    @property
    def pointer(self) -> int: ...


@runtime_checkable
class DeviceProgram(Program, Protocol):
    """A program on a device, which takes arrays in its memory as they are."""

    @property
    def device_number(self) -> int:
        """Which device, as other libraries count them."""

    @property
    def alignment(self) -> int:
        """What the address of an array in its memory has to be a multiple of."""

    def memory(self, size: int) -> DeviceMemory:
        """So many bytes on the device, all zero. Raises `DeviceError` where there is no room."""

    def run_placed(self, pointers: list[int], placement: Placement) -> None:
        """Runs the kernel on pointers to its parameters, some of them to the device's memory."""

    def bound_placed(self, pointers: list[int], placement: Placement) -> Callable[[], None]:
        """A function of no arguments that does the same, with workspaces of its own."""


def place_of(device: object | None) -> str:
    """Where kernels of a target run, in words: on its device, where there is one."""
    return "does not run here" if device is None else f"runs on {device}"
