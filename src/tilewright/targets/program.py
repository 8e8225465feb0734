"""What a target's driver makes of a binary: a program that runs; and the ABI that calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tilewright.dtypes import DType, dtype
from tilewright.ir.stmt import Kernel
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
        return {**asdict(self), "parameters": parameters}

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
        launches = tuple(Launch(**each) for each in data["launches"])
        return Abi(data["entry"], parameters, tuple(data["workspaces"]), launches)


def abi_of(kernel: Kernel, module: Module) -> Abi:
    """The ABI of ``kernel``, which became ``module``."""
    parameters = tuple(
        Parameter(
            name=each.name,
            dtype=each.buffer.dtype,
            shape=each.buffer.shape,
            access=each.access,
            bytes=(each.buffer.layout.extent - each.buffer.layout.offset) * each.buffer.dtype.bytes,
        )
        for each in kernel.params
    )
    return Abi(module.entry, parameters, module.workspaces, module.launches)


class Program(Protocol):
    """A kernel that is loaded and can be called, by several Python threads at once."""

    def run(self, pointers: list[int], threads: int) -> None:
        """Runs the kernel on pointers to its parameters, with so many threads."""

    def bound(self, pointers: list[int], threads: int) -> Callable[[], None]:
        """A function of no arguments that does the same, with workspaces of its own."""


def place_of(device: object | None) -> str:
    """Where kernels of a target run, in words: on its device, where there is one."""
    return "does not run here" if device is None else f"runs on {device}"
