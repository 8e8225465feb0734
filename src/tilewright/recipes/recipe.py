"""What a recipe is: a rule that says which kernels it takes, what may be chosen, what each choice
is predicted to take, and how it is scheduled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tilewright.machines.machine import Machine
from tilewright.recipes.config import Config
from tilewright.recipes.start import Start
from tilewright.schedule.schedule import KernelSchedule

C = TypeVar("C", bound=Config)


class Predicted(Protocol):
    """What a model says that a config takes: the seconds in all, what limits it, and more, as cells
    of a table by the names of their columns."""

    @property
    def seconds(self) -> float: ...
    @property
    def limit(self) -> str: ...
    @property
    def details(self) -> dict[str, str]: ...


P = TypeVar("P", bound=Predicted | None)


@dataclass(frozen=True)
class Candidate(Generic[C, P]):
    """A config, and what it is predicted to take (None: no model says)."""

    config: C
    prediction: P


AnyCandidate = Candidate[Any, Any]


@dataclass(frozen=True)
class Recipe:
    """A rule of the list that a machine has (see `registry`).

    ``config`` is the type of its configs. ``matches`` says whether it takes a kernel at all, by the
    kernel's structure. ``candidates`` are the configs that it would try for such a kernel, the best
    first, worked out as far as somebody asks; ``considered``, if it is given, a config and all that
    the model predicted before it chose. ``schedule`` takes the steps of one of its configs and
    raises `ScheduleError` where it is not legal. ``rounds`` says whether a config takes the
    rounding that may be left out.
    """

    name: str
    config: type[Any]
    matches: Callable[[Start, Machine], bool]
    candidates: Callable[[Start, Machine], Iterator[AnyCandidate]]
    schedule: Callable[[KernelSchedule, Machine, Any], None]
    considered: Callable[[Start, Machine, Any], Sequence[AnyCandidate]] | None = None
    rounds: Callable[[Any, Machine], bool] = lambda config, machine: False

    def carried_out(self, start: Start, machine: Machine, config: Any) -> KernelSchedule:
        """The schedule that ``config`` gives. Raises `ScheduleError` where it is not legal."""
        kernel = start.kernel if self.rounds(config, machine) else start.exact
        s = start.begun.fork() if start.begun is not None else KernelSchedule(kernel)
        s.machine, s.constant = machine, start.packable
        self.schedule(s, machine, config)
        return s


def table(candidates: Sequence[AnyCandidate], shorten: Callable[[Any], str] = str) -> list[str]:
    """Lines that say of each candidate what it is (``shorten`` puts its config in words), the
    microseconds that it is predicted to take, what limits it, and what else the model says."""
    columns = dict.fromkeys(
        name for each in candidates if each.prediction for name in each.prediction.details
    )
    rows = [["config", "us", "limit", *columns]]
    for each in candidates:
        found = each.prediction
        cells = ["", "no model", *("" for _ in columns)]
        if found is not None:
            cells = [f"{found.seconds * 1e6:.1f}", found.limit]
            cells += [found.details.get(name, "") for name in columns]
        rows.append([shorten(each.config), *cells])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
