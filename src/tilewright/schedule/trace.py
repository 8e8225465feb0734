"""A schedule: a kernel and the transforms that were applied to it, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.schedule.hoist import hoist_pack
from tilewright.schedule.transform import TRANSFORMS


@dataclass(frozen=True)
class Step:
    """One transform with its arguments; ``str(step)`` is the call that repeats it."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __str__(self) -> str:
        args = [_source(a) for a in self.args]
        args += [f"{key}={_source(value)}" for key, value in self.kwargs.items()]
        return f"{self.name}({', '.join(args)})"


@dataclass(frozen=True)
class Stage:
    """The kernel behind a step, and what the step was."""

    name: str
    kernel: Kernel
    changed: bool


class Schedule:
    """A kernel that transforms are applied to, one after the other, each of them recorded.

        schedule = Schedule(kernel, machine)
        schedule.tile("conv", {"ic": 4})
        schedule.tensorize("conv", schedule.instruction("fma_f32x16"), {"n": "oc"})
        print(schedule)          # the same calls, as Python
        schedule.stages[-1].kernel is schedule.kernel

    Every transform is a method; it returns the schedule. With ``check``, the kernel is verified
    after each. A transform that refuses leaves the schedule as it was. ``packing`` holds the
    kernels that `hoist_pack` split off.
    """

    def __init__(
        self, kernel: Kernel, machine: Machine | None = None, *, check: bool = False
    ) -> None:
        self.kernel = kernel
        self.machine = machine
        self.check = check
        self.steps: list[Step] = []
        self.stages: list[Stage] = [Stage("start", kernel, True)]
        self.packing: list[Kernel] = []

    def __getattr__(self, name: str) -> Callable[..., Schedule]:
        if name not in TRANSFORMS:
            raise AttributeError(f"there is no transform '{name}'")

        def call(*args: Any, **kwargs: Any) -> Schedule:
            return self.apply(name, *args, **kwargs)

        return call

    def apply(self, name: str, *args: Any, **kwargs: Any) -> Schedule:
        """Applies the transform called ``name``. Raises `ScheduleError` for an unknown one."""
        if name not in TRANSFORMS:
            raise ScheduleError(
                f"there is no transform '{name}'", cure="choose one of " + ", ".join(TRANSFORMS)
            )
        self._advance(Step(name, args, kwargs), TRANSFORMS[name](self.kernel, *args, **kwargs))
        return self

    def hoist_pack(self, buffer: str) -> Schedule:
        """Splits off what fills ``buffer`` (see `hoist.hoist_pack`)."""
        pack, main = hoist_pack(self.kernel, buffer)
        if self.check:
            verify(pack)
        self._advance(Step("hoist_pack", (buffer,), {}), main)
        self.packing.append(pack)
        return self

    def instruction(self, name: str) -> Instruction:
        """The machine's instruction called ``name``."""
        if self.machine is None:
            raise ScheduleError(
                f"instruction: the schedule has no machine to look '{name}' up in",
                cure="make it as Schedule(kernel, machine)",
            )
        return self.machine.instruction(name)

    def stage(self, name: str) -> Kernel:
        """The kernel behind the last step whose name or call is ``name``."""
        for stage in reversed(self.stages):
            if name in (stage.name, stage.name.partition("(")[0]):
                return stage.kernel
        raise ScheduleError(
            f"there is no stage '{name}'",
            cure="choose one of " + ", ".join(stage.name for stage in self.stages),
        )

    def _advance(self, step: Step, kernel: Kernel) -> None:
        if self.check:
            verify(kernel)
        self.steps.append(step)
        self.stages.append(Stage(str(step), kernel, kernel is not self.kernel))
        self.kernel = kernel

    def __str__(self) -> str:
        """Python that repeats the steps on a `Schedule` called ``schedule``."""
        return "\n".join(f"schedule.{step}" for step in self.steps)


def _source(value: Any) -> str:
    """The Python expression for an argument."""
    match value:
        case Instruction():
            return f'schedule.instruction("{value.name}")'
        case DType():
            return f'dtype("{value.name}")'
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case str():
            return f'"{value}"'
        case Mapping():
            return "{" + ", ".join(f"{_source(k)}: {_source(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(_source(v) for v in value) + "]"
        case tuple():
            inner = ", ".join(_source(v) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case _:
            return repr(value)
