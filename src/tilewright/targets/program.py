"""What a target's driver makes of a binary: a program that runs; and the ABI that calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from tilewright.dtypes import DType, dtype
from tilewright.ir.stmt import Kernel, Param, ScalarParam
from tilewright.runtime.steps import steps_as_json, steps_from_json, steps_in_words
from tilewright.targets.llvm.inputs import amount
from tilewright.targets.llvm.module import Amount, DeviceStep, Launch, Module


@dataclass(frozen=True)
class Parameter:
    """An array that a kernel takes; ``access`` is ``"in"``, ``"out"`` or ``"inout"``.

    ``bytes`` reach from its first element, which the pointer that a kernel gets is of, to the end
    of its last. They, and sizes, may depend on the kernel's scalars.
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
    """A number that a kernel takes, and what each call promises of it: bounds and a divisor."""

    name: str
    dtype: DType
    low: int | None = None
    high: int | None = None
    divisor: int = 1

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}"


@dataclass(frozen=True)
class Abi:
    """How a kernel is called: on its parameters (pointers to arrays, numbers), then on pointers to
    its workspaces (bytes each).

    ``entry`` is the function of the kernel's name; where a device runs ``launches``, there is none.
    The host runs them as its ``steps`` say; empty: in turn.
    """

    entry: str
    parameters: tuple[Parameter | Scalar, ...]
    workspaces: tuple[Amount, ...]
    launches: tuple[Launch, ...] = ()
    steps: tuple[DeviceStep, ...] = ()

    @property
    def arrays(self) -> tuple[Parameter, ...]:
        """The parameters that are memory."""
        return tuple([each for each in self.parameters if isinstance(each, Parameter)])

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The parameters that are numbers."""
        return tuple([each for each in self.parameters if isinstance(each, Scalar)])

    def as_json(self) -> dict[str, Any]:
        """The ABI as JSON holds it."""
        return {
            "entry": self.entry,
            "parameters": [{**asdict(p), "dtype": p.dtype.name} for p in self.parameters],
            "workspaces": list(self.workspaces),
            "launches": [each.as_json() for each in self.launches],
            "steps": steps_as_json(self.steps, int, str),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Abi:
        """What `as_json` made. Raises `KeyError`, `TypeError` or an error of this project."""
        parameters = tuple(map(_parameter_from_json, data["parameters"]))
        launches = tuple(Launch.from_json(each) for each in data["launches"])
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
    """The ABI of ``kernel``, which became ``module``."""
    parameters = parameters_of(kernel.params)
    return Abi(module.entry, parameters, module.workspaces, module.launches, module.steps)


def parameters_of(params: Iterable[Param | ScalarParam]) -> tuple[Parameter | Scalar, ...]:
    """What a kernel with these parameters takes."""
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


# What a call passes for each parameter, in their order: the address of an array, or a number.
Passed = int | float


def arguments_in_words(abi: Abi) -> str:
    """What a function of a device takes, in order."""
    found = [str(each) if isinstance(each, Scalar) else each.name for each in abi.parameters]
    found += [f"a workspace of {size} bytes" for size in abi.workspaces]
    return ", ".join(found)


def host_in_words(abi: Abi) -> list[str]:
    """What the host does with the functions of a device, where it is more than to run them in turn:
    paragraphs."""

    def run(launch: int) -> str:
        return f"run {abi.launches[launch].entry}"

    def result(launch: int) -> str:
        return f"workspace {abi.launches[launch].result}"

    lines: list[str] = []
    valued = [each for each in abi.launches if each.values]
    if valued:
        lines += ["", "Values of the host, passed by value behind the workspaces:", ""]
        lines += [f"- `{each.entry}`: {', '.join(each.values)}" for each in valued]
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
        """Runs the kernel on its parameters, with so many threads."""

    def bound(self, arguments: Sequence[Passed], threads: int) -> Callable[[], None]:
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

    def run_placed(self, arguments: Sequence[Passed], placement: Placement) -> None:
        """Runs the kernel on its parameters, some of them in the device's memory."""

    def bound_placed(self, arguments: Sequence[Passed], placement: Placement) -> Callable[[], None]:
        """A function of no arguments that does the same, with workspaces of its own."""


def place_of(device: object | None) -> str:
    """Where kernels of a target run, in words: on its device, where there is one."""
    return "does not run here" if device is None else f"runs on {device}"
