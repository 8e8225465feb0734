"""Loaded programs, and the ABI by which a kernel is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from tilewright.dtypes import DType, dtype
from tilewright.errors import DeviceError
from tilewright.ir.stmt import Kernel, Param, ScalarParam
from tilewright.runtime.steps import steps_as_json, steps_from_json, steps_in_words
from tilewright.targets.llvm.inputs import amount
from tilewright.targets.llvm.module import Amount, DeviceStep, Launch, Module


@dataclass(frozen=True)
class Parameter:
    """An array that a kernel takes; ``access`` is ``"in"``, ``"out"`` or ``"inout"``.

    ``bytes`` extend from the first element, at the pointer that a kernel gets, to the end of the
    last. They, and sizes, may depend on the kernel's scalars.
    """

    name: str
    dtype: DType
    shape: tuple[Amount, ...]
    access: str
    bytes: Amount

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Scalar:
    """A number that a kernel takes, with the bounds and the divisor that each call promises."""

    name: str
    dtype: DType
    low: int | None = None
    high: int | None = None
    divisor: int = 1

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}"


@dataclass(frozen=True)
class Abi:
    """How a kernel is called: its parameters (pointers to arrays, numbers), then pointers to its
    workspaces, of so many bytes.

    ``entry`` is the function with the kernel's name; a device has ``launches`` instead. The host
    runs them as its ``steps`` say (empty: one after the other).
    """

    entry: str
    parameters: tuple[Parameter | Scalar, ...]
    workspaces: tuple[Amount, ...]
    launches: tuple[Launch, ...] = ()
    steps: tuple[DeviceStep, ...] = ()

    @property
    def arrays(self) -> tuple[Parameter, ...]:
        """The parameters that are arrays."""
        return tuple([p for p in self.parameters if isinstance(p, Parameter)])

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The parameters that are numbers."""
        return tuple([p for p in self.parameters if isinstance(p, Scalar)])

    def as_json(self) -> dict[str, Any]:
        """The ABI as JSON."""
        return {
            "entry": self.entry,
            "parameters": [{**asdict(p), "dtype": p.dtype.name} for p in self.parameters],
            "workspaces": list(self.workspaces),
            "launches": [launch.as_json() for launch in self.launches],
            "steps": steps_as_json(self.steps, int, str),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Abi:
        """The ABI of `as_json`. Raises `KeyError`, `TypeError` or an error of this project."""
        parameters = tuple(map(_parameter_from_json, data["parameters"]))
        launches = tuple(Launch.from_json(launch) for launch in data["launches"])
        steps = steps_from_json(data["steps"], _same, _same)
        return Abi(data["entry"], parameters, tuple(data["workspaces"]), launches, steps)


def _same(value: Any) -> Any:
    return value


def _parameter_from_json(data: Mapping[str, Any]) -> Parameter | Scalar:
    fields = {**data, "dtype": dtype(data["dtype"])}
    if "access" not in data:
        return Scalar(**fields)
    return Parameter(**{**fields, "shape": tuple(data["shape"])})


def abi_of(kernel: Kernel, module: Module) -> Abi:
    """The ABI of ``kernel``, which was lowered to ``module``."""
    parameters = parameters_of(kernel.params)
    return Abi(module.entry, parameters, module.workspaces, module.launches, module.steps)


def parameters_of(params: Iterable[Param | ScalarParam]) -> tuple[Parameter | Scalar, ...]:
    """The parameters and scalars of a kernel, as part of an ABI."""
    return tuple(map(_parameter, params))


def _parameter(param: Param | ScalarParam) -> Parameter | Scalar:
    if isinstance(param, ScalarParam):
        return Scalar(param.name, param.dtype, param.low, param.high, param.divisor)
    return Parameter(
        name=param.name,
        dtype=param.dtype,
        shape=tuple(map(amount, param.buffer.sizes)),
        access=param.access,
        bytes=amount(param.buffer.span_bytes),
    )


# An argument of a call: the address of an array, or a number.
Passed = int | float


def arguments_in_words(abi: Abi) -> str:
    """The arguments of a device's function, in order."""
    names = [p.name if isinstance(p, Parameter) else str(p) for p in abi.parameters]
    names += [f"a workspace of {size} bytes" for size in abi.workspaces]
    return ", ".join(names)


def host_in_words(abi: Abi) -> list[str]:
    """The host's steps, as paragraphs; none if it only runs the functions one after the other."""

    def run(launch: int) -> str:
        return f"run {abi.launches[launch].entry}"

    def result(launch: int) -> str:
        return f"workspace {abi.launches[launch].result}"

    lines: list[str] = []
    valued = [launch for launch in abi.launches if launch.values]
    if valued:
        lines += ["", "Values of the host, passed by value after the workspaces:", ""]
        lines += [f"- `{launch.entry}`: {', '.join(launch.values)}" for launch in valued]
    if abi.steps:
        lines += [
            "",
            "What the host does (expressions are IR text; of a value that is read, wait for the "
            "function that writes it, and take the first element of the workspace):",
            "",
            "```text",
            *steps_in_words(abi.steps, run, str, result),
            "```",
        ]
    return lines


class Program(Protocol):
    """A kernel that is loaded and can be called, by several Python threads at once."""

    def run(self, arguments: Sequence[Passed], threads: int) -> None:
        """Runs the kernel with these arguments and ``threads`` threads."""

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
        """The same as a function of no arguments, with its own workspaces."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The places of a `DeviceProgram`'s arrays in one call, and the order of the call.

    ``resident`` says for each array whether it is in the device's memory; others are copied.
    ``stream`` is the caller's, a handle: the call is queued there, and waits for it only where
    arrays of the host are copied. None: the call has its own stream, and waits. The call runs after
    the work so far on the caller's streams ``beside``, and before their later work. Of a call that
    ``moves``, arrays that are copied may lie in the device's memory, too.
    """

    resident: tuple[bool, ...]
    stream: int | None = None
    beside: tuple[int, ...] = ()
    moves: bool = False


class DeviceMemory(Protocol):
    """Memory on a device, freed with the object."""

    @property
    def pointer(self) -> int: ...


@runtime_checkable
class DeviceProgram(Program, Protocol):
    """A program on a device, which takes arrays in the device's memory without copying."""

    @property
    def device_number(self) -> int:
        """The device's number in other libraries."""

    @property
    def alignment(self) -> int:
        """How arrays in the device's memory must be aligned, in bytes."""

    def memory(self, size: int) -> DeviceMemory:
        """``size`` bytes on the device, all zero. Raises `DeviceError` without enough memory."""

    def run_placed(self, arguments: Sequence[Passed], placement: Placement) -> None:
        """Runs the kernel with arguments that may be in the device's memory."""

    def bound_placed(self, arguments: Sequence[Passed], placement: Placement) -> Callable[[], None]:
        """The same as a function of no arguments, with its own workspaces."""


def place_of(device: object | None) -> str:
    """Where kernels of a target run, in words; without ``device``, not here."""
    return "does not run here" if device is None else f"runs on {device}"


def check_room(launch: Launch, device: object, workgroup: int, shared: int, target: str) -> None:
    """Raises `DeviceError` for a launch with more work-items than a ``workgroup`` of ``device``
    has, or that shares more than ``shared`` bytes; ``target`` is the one that keeps to these."""
    for unit, needed, most in (
        ("work-items", launch.items, workgroup),
        ("bytes of shared memory", launch.shared, shared),
    ):
        if needed > most:
            raise DeviceError(
                f"{launch.entry} needs workgroups of {needed} {unit}",
                where=str(device),
                why=f"the device has {most}",
                cure=f"choose smaller tiles in the config, or the target {target!r}, whose "
                "schedules keep to the device's limits",
            )
