"""Recipes that users register: they schedule by `KernelSchedule`, as anybody can."""

from __future__ import annotations

import hashlib
import inspect
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from tilewright.calls import checked_call
from tilewright.errors import ScheduleError, TilewrightError, short
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.config import UserConfig
from tilewright.recipes.own import check
from tilewright.recipes.recipe import AnyCandidate, Candidate, Recipe
from tilewright.recipes.start import Start
from tilewright.schedule.schedule import KernelSchedule

T = TypeVar("T")


class UserRecipe(Protocol):
    """A recipe of a user's own.

    ``matches`` says whether it takes a kernel: one group of a user's, or of an op, a contraction in
    the form of `as_contraction`. ``space`` gives what may be chosen, as arguments by name, whose
    values are literals. ``predict`` says how many seconds a choice takes (None: it does not know,
    and the choice is taken before those that ship). ``schedule`` applies transforms until nothing
    but loops and instructions is left; it raises `ScheduleError` for a choice that is not legal.
    """

    name: str

    def matches(self, kernel: Kernel, machine: Machine) -> bool: ...
    def space(self, kernel: Kernel, machine: Machine) -> Iterable[Mapping[str, Any]]: ...
    def predict(self, kernel: Kernel, machine: Machine, **choice: Any) -> float | None: ...
    def schedule(self, schedule: KernelSchedule, **choice: Any) -> None: ...


_registered: dict[str, tuple[_Registered, str]] = {}
_METHODS = ("matches", "space", "predict", "schedule")


@checked_call
def register_recipe(recipe: UserRecipe) -> None:
    """Adds ``recipe`` to those of all machines, in front of the ones that ship: its best choice is
    taken where it predicts less than these do, or where either predicts nothing.

    Raises `ScheduleError` for something that is no recipe, or a name that is taken.
    """
    name = getattr(recipe, "name", None)
    missing = [each for each in _METHODS if not callable(getattr(recipe, each, None))]
    if not isinstance(name, str) or not name.isidentifier() or missing:
        raise ScheduleError(
            f"{short(recipe)} is no recipe",
            why="it has no method " + ", ".join(missing)
            if missing
            else "its name is no identifier",
            cure="give it a name, and the methods " + ", ".join(_METHODS),
        )
    if name in _registered:
        raise ScheduleError(
            f"there is a recipe called '{name}'",
            cure="take the other one back first (`unregister_recipe`), or name this otherwise",
        )
    _registered[name] = (_Registered(recipe), _identity(recipe))


@checked_call
def unregister_recipe(name: str) -> None:
    """Takes the recipe called ``name`` back. Raises `ScheduleError` where there is none."""
    recipe_called(name)
    del _registered[name]


def registered() -> list[Recipe[UserConfig]]:
    """What users registered, the latest first."""
    return [recipe for recipe, _ in reversed(_registered.values())]


def registered_identity() -> str:
    """Differs for other recipes: what was compiled by some is not what others give."""
    return " ".join(f"{name} {identity}" for name, (_, identity) in sorted(_registered.items()))


def recipe_called(name: str) -> Recipe[UserConfig]:
    """The recipe that a user registered by this name. Raises `ScheduleError`."""
    if not isinstance(name, str) or name not in _registered:
        raise ScheduleError(
            f"there is no recipe called {short(name)}",
            why="those that are registered: " + (", ".join(_registered) or "none"),
            cure="register it first (`tw.register_recipe`)",
        )
    return _registered[name][0]


def _identity(recipe: UserRecipe) -> str:
    """The recipe's source and state; where there is none to read, something that no other process
    has."""
    try:
        text = inspect.getsource(type(recipe)) + repr(sorted(vars(recipe).items()))
    except (OSError, TypeError):
        return secrets.token_hex(16)
    return hashlib.sha256(text.encode()).hexdigest()


class _Registered(Recipe[UserConfig]):
    """A user's recipe in the list of a machine: what it gives is checked."""

    config = UserConfig

    def __init__(self, recipe: UserRecipe) -> None:
        self.recipe, self.name = recipe, recipe.name

    def _asked(self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except TilewrightError:
            raise
        except Exception as error:
            raise ScheduleError(
                f"the recipe '{self.recipe.name}' failed: {type(error).__name__}: {error}",
                where=f"its method {what}",
                cure="mend the recipe, or take it back (`tw.unregister_recipe`)",
            ) from error

    def _lies(self, what: str, why: str) -> ScheduleError:
        return ScheduleError(
            f"the recipe '{self.recipe.name}' {what}",
            why=why,
            cure="mend the recipe, or take it back (`tw.unregister_recipe`)",
        )

    def matches(self, start: Start, machine: Machine) -> bool:
        return bool(self._asked("matches", lambda: self.recipe.matches(start.exact, machine)))

    def candidates(self, start: Start, machine: Machine) -> Iterator[AnyCandidate]:
        """Its choices, the one of the least predicted time first, those without one before all."""
        kernel = start.exact
        found: list[tuple[float, UserConfig]] = []
        for choice in self._asked("space", lambda: list(self.recipe.space(kernel, machine))):
            if not isinstance(choice, Mapping):
                raise self._lies(f"offers {short(choice)}", "a choice is arguments by their names")
            config = UserConfig(self.recipe.name, dict(choice))
            predict = partial(self.recipe.predict, kernel, machine, **choice)
            seconds = self._asked("predict", predict)
            if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
                raise self._lies(f"predicts {short(seconds)}", "that is no time in seconds")
            found.append((-1.0 if seconds is None else float(seconds), config))
        if not found:
            raise self._lies("has nothing to choose", "it matches, and its space is empty")
        for seconds, config in sorted(found, key=lambda pair: pair[0]):
            yield Candidate(config, None if seconds < 0 else Told(seconds))

    def schedule(self, s: KernelSchedule, machine: Machine, config: UserConfig) -> None:
        self._asked("schedule", lambda: self.recipe.schedule(s, **config.choice))
        check(s, machine)


class Told:
    """The time that a user's recipe predicts."""

    limit, details = "", dict[str, str]()

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
