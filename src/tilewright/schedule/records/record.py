"""The record of a schedule: its steps as data, and as Python that repeats them."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cache
from itertools import chain, count
from typing import Any, Protocol

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError, Span
from tilewright.ir.buffer import Swizzle
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.machines.tile_unit import TileCopy
from tilewright.notebook import text_html
from tilewright.schedule.groups import cut
from tilewright.schedule.outline import outline
from tilewright.schedule.records.transform import TRANSFORMS
from tilewright.schedule.staging.copiers import CopyUnit, Threads
from tilewright.schedule.staging.hoist import hoist_pack

# Changes when texts of before would be read as something else.
FORMAT = 2
# Arguments that are several values by name.
VALUES: Mapping[str, type[Any]] = {"Swizzle": Swizzle, "Threads": Threads, "CopyUnit": CopyUnit}
# The variable of the kernel's own schedule, in the text.
MAIN = "schedule"
# The steps that are no transforms: they make several kernels of one, and one of several.
HOIST, CUT, OUTLINE, TOGETHER = "hoist_pack", "cut", "outline", "put_together"
SPLITTING: Mapping[str, Callable[..., object]] = {
    HOIST: hoist_pack,
    CUT: cut,
    OUTLINE: outline,
    TOGETHER: cut,
}

# What a text calls the schedules that a step gives.
_STEMS = {HOIST: "pack", CUT: "group", OUTLINE: "part"}


@dataclass(frozen=True)
class Named:
    """An argument that a text gives by name: an instruction of the machine, or a variable."""

    kind: str
    name: str


@dataclass(frozen=True)
class Line:
    """One step: the transform called ``name``, applied to the kernel that ``variable`` stands for;
    ``results`` are variables for what it gives. ``span`` is where a text has it."""

    variable: str
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[str, ...] = ()
    span: Span | None = None

    def __str__(self) -> str:
        results = f"{', '.join(self.results)} = " if self.results else ""
        return f"{results}{self.variable}.{call_text(self.name, self.args, self.kwargs)}"


@dataclass(frozen=True, repr=False)
class Record:
    """All steps of a schedule, and what they were recorded for: the machine's name, and the name
    and the digest of the kernel that the first was applied to; empty where a text does not say."""

    machine: str
    kernel: str
    digest: str
    lines: tuple[Line, ...]

    def __repr__(self) -> str:
        """A line; ``str`` has the steps."""
        of = f" of {self.kernel} on {self.machine}" if self.machine else ""
        return f"<schedule{of}: {len(self.lines)} steps>"

    def _repr_html_(self) -> str:
        return text_html(str(self))

    def __str__(self) -> str:
        """Python that repeats the steps; `reading.parse_schedule` reads it."""
        header = [self._header()] if self.digest else []
        return "\n".join([*header, *map(str, self.lines), ""])

    def start_among(self, kernels: Sequence[Kernel], machine: Machine) -> Kernel:
        """The one of ``kernels`` that the steps were recorded for, the first if the record says of
        none. Raises `ScheduleError` for a record of another kernel or machine."""
        if self.machine and self.machine != machine.name:
            raise ScheduleError(
                f"the schedule is for the machine {self.machine}, not for {machine.name}",
                where=self._header(),
                why="its tiles and instructions suit that one",
                cure="compile for that machine; or take the first line of the text away (in "
                "Python, strict=False): every step then checks whether it is legal",
            )
        for kernel in kernels if self.digest else kernels[:1]:
            if not self.digest or digest_of(kernel) == self.digest:
                return kernel
        raise ScheduleError(
            f"the schedule is for another kernel than this {kernels[0].name}",
            where=self._header(),
            why=f"this kernel's text has the digest {digest_of(kernels[0])}",
            cure="take the kernel that it was recorded for; or take the first line of the text "
            "away (in Python, strict=False): every step then checks whether it is legal",
        )

    def anywhere(self) -> Record:
        """The same steps, for any kernel and any machine."""
        return replace(self, machine="", kernel="", digest="")

    def _header(self) -> str:
        machine = f"; machine {self.machine}" if self.machine else ""
        return (
            f"# Tilewright schedule, format {FORMAT}{machine}; kernel {self.kernel} {self.digest}"
        )


def digest_of(kernel: Kernel) -> str:
    """Tells kernels apart by their text."""
    return hashlib.sha256(to_text(kernel).encode()).hexdigest()[:16]


def call_text(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The call as Python: what has no default by its place, the rest by name where it differs."""
    bound = signature_of(name).bind(*args, **kwargs)
    parts: list[str] = []
    for parameter in signature_of(name).parameters.values():
        if parameter.name not in bound.arguments:
            continue
        value = bound.arguments[parameter.name]
        if parameter.default is inspect.Parameter.empty:
            parts.append(source(value))
        elif value != parameter.default:
            parts.append(f"{parameter.name}={source(value)}")
    return f"{name}({', '.join(parts)})"


def step_function(name: str) -> Callable[..., object]:
    """The function whose arguments, after the kernel, the step called ``name`` takes."""
    return SPLITTING[name] if name in SPLITTING else TRANSFORMS[name]


@cache
def signature_of(name: str) -> inspect.Signature:
    """How the transform called ``name`` is called on a schedule: without the kernel."""
    whole = inspect.signature(step_function(name))
    return whole.replace(parameters=list(whole.parameters.values())[1:])


def source(value: Any) -> str:
    """The Python expression for an argument. What has none is no data: a transform should not take
    it, which is a defect of ours."""
    match value:
        case Instruction() | Named(kind="instruction"):
            return f'{MAIN}.instruction("{value.name}")'
        case TileCopy() | Named(kind="tile_copy"):
            return f'{MAIN}.tile_copy("{value.name}")'
        case Named():
            return value.name
        case DType():
            return f'dtype("{value.name}")'
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case Swizzle() | Threads() | CopyUnit():
            values = [source(getattr(value, field.name)) for field in fields(value)]
            return f"{type(value).__name__}({', '.join(values)})"
        case str():
            return json.dumps(str(value), ensure_ascii=False)
        case Mapping():
            return "{" + ", ".join(f"{source(k)}: {source(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(source(v) for v in value) + "]"
        case tuple():
            inner = ", ".join(source(v) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case bool() | int() | float() | None:
            return repr(value)
        case _:
            raise TypeError(f"{type(value).__name__} is no data that a record can hold")


class Steps(Protocol):
    """A schedule, or one of a part that a step split off."""

    @property
    def done(self) -> Sequence[Any]: ...


def lines_of(steps: Steps, variable: str, taken: set[str]) -> Iterator[Line]:
    """The steps of a schedule called ``variable`` as lines, parts after the step that gave them;
    ``taken`` are the variables of other parts."""
    for done in steps.done:
        stem = _STEMS.get(done.step.name, "")
        results: list[str] = []
        for _ in done.parts:
            several = (f"{stem}_{number}" for number in count(2))
            results.append(next(n for n in chain((stem,), several) if n not in taken))
            taken.add(results[-1])
        yield Line(variable, done.step.name, done.step.args, done.step.kwargs, tuple(results))
        for part, name in zip(done.parts, results, strict=True):
            yield from lines_of(part, name, taken)
