"""What users give: records of schedules, which are replayed, and recipes, which they register. What
comes of either is checked."""

from __future__ import annotations

import hashlib
import inspect
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.calls import checked_call
from tilewright.errors import ScheduleError, TilewrightError, short
from tilewright.ir.buffer import SHARED, workgroup_bytes
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.verify import verify
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.choice import Choice
from tilewright.recipes.config import Config, OwnSchedule
from tilewright.recipes.recipe import Predicted, Recipe
from tilewright.recipes.start import Start
from tilewright.schedule.records.reading import parse_schedule
from tilewright.schedule.records.replaying import repeat
from tilewright.schedule.schedule import KernelSchedule


def replayed(start: Start, machine: Machine, config: OwnSchedule) -> KernelSchedule:
    """Carries the steps of the record out. Raises `ParseError` for what is none, `ScheduleError`
    for one of another kernel or machine, a step that does not fit, or what cannot be compiled."""
    record = parse_schedule(config.text)
    kernel = record.start_among((start.kernel, start.exact), machine)
    kernel_schedule = KernelSchedule(kernel, machine, constant=start.packable)
    repeat(kernel_schedule, record)
    check(kernel_schedule, machine)
    return kernel_schedule


def check(kernel_schedule: KernelSchedule, machine: Machine) -> None:
    """Makes a stage of each step of a schedule that somebody wrote. Raises `ScheduleError` where it
    cannot be compiled, or where it packs what may change from call to call."""
    kernel_schedule.log.add("naive", kernel_schedule.start)
    for number, done in enumerate(kernel_schedule.done, start=1):
        kernel_schedule.log.add(f"{number} {done.step.name}", done.kernel, (done,))
    _check(kernel_schedule.kernel, machine)
    for argument, pack in kernel_schedule.packs.items():
        if argument not in kernel_schedule.constant:
            raise ScheduleError(
                f"the schedule packs '{argument}' beforehand, which may change from call to call",
                where=f"kernel {kernel_schedule.start.name}",
                cure=f'compile with constant=("{argument}",), or leave the step hoist_pack out',
            )
        _check(pack.kernel, machine)


def _check(kernel: Kernel, machine: Machine) -> None:
    """Refuses what is no code yet, and what the machine has no memory for."""
    verify(kernel)
    left = [s for s in walk_stmts(kernel.body) if isinstance(s, Compute) and not s.instruction]
    if left:
        raise ScheduleError(
            f"compute '{left[0].name}' is no loop yet, and no instruction",
            where=headline(left[0]),
            why="a kernel is compiled when nothing else is left of its computes",
            cure="end the schedule with lower_computes(), of the packing kernel as well",
        )
    shared = [
        stmt.buffer
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Allocate) and stmt.buffer.space in SHARED
    ]
    most = machine.hierarchy.shared
    # (What a thread of a CPU shares lies on its stack.)
    if machine.hierarchy.workgroup > 1 and sum(map(workgroup_bytes, shared)) > most:
        raise ScheduleError(
            f"a workgroup shares {sum(map(workgroup_bytes, shared))} bytes",
            where=f"kernel {kernel.name}",
            why=f"{machine.name} has {most}, and "
            + ", ".join(f"{b.name} takes {workgroup_bytes(b)}" for b in shared),
            cure="make tiles smaller, or keep less of them at a time",
        )


T = TypeVar("T")

_CURE = "mend the recipe, or take it back (`tw.unregister_recipe`)"


_registered: dict[str, tuple[Registered, str]] = {}


@checked_call
def register_recipe(recipe: Recipe[Any]) -> None:
    """Adds ``recipe`` to those of all machines, in front of the ones that ship: its best choice is
    taken where it predicts less than these do, or where either predicts nothing.

    Raises `ScheduleError` for something that is no recipe, or a name that is taken.
    """
    name, config = getattr(recipe, "name", None), getattr(recipe, "config", None)
    why = None
    if not isinstance(recipe, Recipe):
        why = "it is not derived from tw.Recipe"
    elif not isinstance(name, str) or not name.isidentifier():
        why = "its name is no identifier"
    elif not (isinstance(config, type) and issubclass(config, Config)):
        why = "its config is no class that is derived from tw.Config"
    if why is not None:
        raise ScheduleError(
            f"{short(recipe)} is no recipe",
            why=why,
            cure="derive it from tw.Recipe, and give it a name and a config",
        )
    if name in _registered:
        raise ScheduleError(
            f"there is a recipe called '{name}'",
            cure="take the other one back first (`unregister_recipe`), or name this otherwise",
        )
    _registered[recipe.name] = (Registered(recipe), _identity(recipe))


@checked_call
def unregister_recipe(name: str) -> None:
    """Takes the recipe called ``name`` back. Raises `ScheduleError` where there is none."""
    if not isinstance(name, str) or name not in _registered:
        raise ScheduleError(
            f"there is no recipe called {short(name)}",
            why="those that are registered: " + (", ".join(_registered) or "none"),
        )
    del _registered[name]


def registered() -> list[Registered]:
    """What users registered, the latest first."""
    return [recipe for recipe, _ in reversed(_registered.values())]


def registered_identity() -> str:
    """Differs for other recipes: what was compiled by some is not what others give."""
    return " ".join(f"{name} {identity}" for name, (_, identity) in sorted(_registered.items()))


def _identity(recipe: Recipe[Any]) -> str:
    """The recipe's source and state; where there is none to read, something that no other process
    has."""
    try:
        text = inspect.getsource(type(recipe)) + repr(sorted(vars(recipe).items()))
    except (OSError, TypeError):
        return secrets.token_hex(16)
    return hashlib.sha256(text.encode()).hexdigest()


class Registered(Recipe[Any]):
    """A user's recipe in the list of a machine: what it gives is checked."""

    def __init__(self, recipe: Recipe[Any]) -> None:
        self._recipe, self.name, self.config = recipe, recipe.name, recipe.config
        self.structured = recipe.structured

    def _asked(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except TilewrightError:
            raise
        except Exception as error:
            raise ScheduleError(
                f"the recipe '{self.name}' failed: {type(error).__name__}: {error}",
                where=f"its method {what}",
                cure=_CURE,
            ) from error

    def _lies(self, what: str, why: str) -> ScheduleError:
        return ScheduleError(f"the recipe '{self.name}' {what}", why=why, cure=_CURE)

    def matches(self, start: Start, machine: Machine) -> bool:
        return bool(self._asked("matches", lambda: self._recipe.matches(start, machine)))

    def space(self, start: Start, machine: Machine) -> list[Config]:
        offered = self._asked("space", lambda: list(self._recipe.space(start, machine)))
        for config in offered:
            if not isinstance(config, self.config):
                raise self._lies(f"offers {short(config)}", f"that is no {self.config.__name__}")
        if not offered:
            raise self._lies("has nothing to choose", "it matches, and its space is empty")
        return offered

    @property
    def has_model(self) -> bool:
        return self._recipe.has_model

    def predict(self, start: Start, machine: Machine, config: Config) -> Predicted | float | None:
        if not self.has_model:
            return None  # the user's goes first
        time = self._asked("predict", lambda: self._recipe.predict(start, machine, config))
        seconds = getattr(time, "seconds", time)
        if time is not None and not (isinstance(seconds, int | float) and seconds >= 0):
            raise self._lies(f"predicts {short(time)}", "that is no time in seconds")
        return time

    def choices(self, start: Start, machine: Machine) -> tuple[Choice, ...]:
        return tuple(self._asked("choices", lambda: self._recipe.choices(start, machine)))

    def legal(self, kernel: Kernel, machine: Machine, config: Config) -> dict[str, str]:
        return self._asked("legal", lambda: self._recipe.legal(kernel, machine, config))

    def instructions(self, kernel: Kernel, machine: Machine, config: Config) -> list[str]:
        return self._asked(
            "instructions", lambda: self._recipe.instructions(kernel, machine, config)
        )

    def rounds(self, config: Config, machine: Machine) -> bool:
        return self._asked("rounds", lambda: self._recipe.rounds(config, machine))

    def schedule(self, s: KernelSchedule, machine: Machine, config: Config) -> None:
        self._asked("schedule", lambda: self._recipe.schedule(s, machine, config))
        check(s, machine)
