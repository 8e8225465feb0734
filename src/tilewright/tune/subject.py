"""What is tuned: a subject, whatever front end it came from, as a search sees it.

A search draws *points* of a subject's space. A point is a config (`recipes.config.Config`): its
text goes into the database, and comes back from there. A process of its own builds a point, checks
what came of it, and times it beside another one. So a subject is data: it is pickled, and two that
are equal have the same points, and the same data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Protocol

from tilewright.engine.winners import Asked
from tilewright.recipes.config import Config

Call = Callable[[], object]


class Built(ABC):
    """A point that was compiled, in the process that compiled it."""

    @property
    @abstractmethod
    def schedule(self) -> str:
        """The record of the schedule that it has, as text; "" where there is none."""

    @abstractmethod
    def fault(self, seed: int) -> str | None:
        """Runs it on random data, which ``seed`` decides, and compares its results with float64, or
        with the interpreter: what is wrong with them, in words; None where they are right. What it
        is compared with does not depend on the point, and is worked out once in a process.

        Raises `UnsupportedError` where that cannot be done: then the subject cannot be tuned.
        """

    @abstractmethod
    def call(self, seed: int) -> Call:
        """A call of it on random arrays, which ``seed`` decides: the same for all points, those of
        results included, in memory where calls are measured. It does all that the kernel does, and
        as little else as can be; it returns when that is done, and may be repeated."""


class Points(Protocol):
    """The points of a subject, as strategies of a search see them. `recipes.space.Space` is one."""

    def count(self) -> int:
        """How many there are."""

    def points(self) -> Iterator[Config]:
        """All of them, one by one, in an order that is always the same."""

    def drawn(self, rng: Random) -> Config:
        """One of them."""

    def picked(self, pick: Callable[[str, Sequence[Any]], Any]) -> Config:
        """The one that ``pick`` chooses, value by value: it is given the name of what is chosen,
        and the values that this may have beside those that it picked before."""

    def by_prediction(self, rng: Random, most: int) -> list[Config]:
        """All, or ``most`` of them, drawn: those with the least predicted time first."""

    def neighbours(self, config: Config) -> Iterator[Config]:
        """Those that differ from ``config`` in as little as can be."""

    def mutated(self, config: Config, rng: Random) -> Config:
        """One near ``config``."""

    def crossed(self, one: Config, other: Config, rng: Random) -> Config:
        """One that has something of both."""

    def values(self, config: Config) -> dict[str, Any]:
        """What ``config`` chooses, by names that do not depend on it: numbers, names, dicts and
        tuples of such. What a model of times learns from."""

    def quick(self, config: Config) -> bool:
        """Whether `predicted` of ``config`` takes no time beside a trial: otherwise it schedules
        the point."""

    def predicted(self, config: Config) -> float | None:
        """The seconds that ``config`` is predicted to take; None: nothing says."""


class Subject(ABC):
    """What is tuned: for one target, with so many threads."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is called in reports: a line of a few words."""

    @property
    def problem(self) -> str:
        """What the command line takes for it, or its text; "" where it has none."""
        return ""

    @property
    @abstractmethod
    def asked(self) -> Asked:
        """What rows of the database are of that are about it: the key of the kernel, the target
        with its features, the version of the generator, the threads."""

    @property
    def key(self) -> str:
        """What tells it from other subjects of its type: those with equal keys are equal."""
        return repr(self.asked)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def symbols(self) -> str:
        """The range of its sizes, as rows have it; "" where they are known."""
        return ""

    def form(self) -> tuple[str, tuple[int, ...]]:
        """What it has in common with subjects that differ in their sizes alone, and these sizes
        (`nearest.form_of`); ("", ()) where none are compared."""
        return "", ()

    def first(self, database: Any) -> Iterator[Config]:
        """What should be tried first, by what ``database`` (a `Database`) has of subjects that are
        alike. Nothing, by default."""
        yield from ()

    @abstractmethod
    def points(self) -> Points:
        """All that may be chosen. Some may turn out not to be legal: `build` refuses those."""

    @abstractmethod
    def default(self) -> Config:
        """What is chosen where nothing was tuned: the point that a search has to beat."""

    @abstractmethod
    def build(self, point: Config) -> Built:
        """Compiles a point, or takes it from the disk cache. Raises `ScheduleError` or
        `UnsupportedError` for one that is not legal, `CompilationError` for one that no compiler
        takes. It may crash, or hang: it runs in a process of its own."""
