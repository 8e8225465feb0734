"""What a recipe is: a rule that says which kernels it takes, what may be chosen, what each choice
is predicted to take, and how it is scheduled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tilewright.errors import ScheduleError, UnsupportedError
from tilewright.ir.stmt import Kernel
from tilewright.layout.roles import MAIN
from tilewright.machines.machine import Machine
from tilewright.predict.time import predicted
from tilewright.recipes.choice import Choice, listed
from tilewright.recipes.config import Config
from tilewright.recipes.roles import are_known, extents, find_compute, has_compute, roles
from tilewright.recipes.start import Start
from tilewright.schedule.schedule import KernelSchedule
from tilewright.tables import aligned

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


class Seconds:
    """A predicted time of which nothing more is said."""

    limit, details = "", dict[str, str]()

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Recipe(ABC, Generic[C]):
    """A rule for kernels of some kind: which these are, what may be chosen for them, the time that
    a choice is predicted to take, and how it is scheduled. Those that ship and those of users are
    alike.

    ``name`` is an identifier, ``config`` the type of what may be chosen (a `Config` of its own).
    ``structured``: it takes ops only, in the form that `Start` describes. Of a ``start``,
    ``start.kernel`` is the kernel, ``start.exact`` the one without rounding that may be left out.
    """

    name: str
    config: type[Any]
    structured = False

    @abstractmethod
    def matches(self, start: Start, machine: Machine) -> bool:
        """Whether it takes a kernel at all, by the kernel's structure: one group of a user's, or of
        an op, a contraction in the form of `as_contraction`."""

    def contends(self, start: Start, machine: Machine) -> bool:
        """Whether it may be clearly faster than a recipe whose own model has chosen; asked of a
        kernel that it takes, before anything is scheduled. By default it is not."""
        return False

    @abstractmethod
    def space(self, start: Start, machine: Machine) -> Iterable[C]:
        """What may be chosen for such a kernel."""

    def predict(self, start: Start, machine: Machine, config: C) -> Predicted | float | None:
        """The time that ``config`` takes, in seconds or with more about it; None: unknown. By
        default, what its schedule is predicted to take; None where it is not legal."""
        try:
            return predicted(self.carried_out(start, machine, config).kernel, machine)
        except (ScheduleError, UnsupportedError):
            return None

    @abstractmethod
    def schedule(self, s: KernelSchedule, machine: Machine, config: C) -> None:
        """Applies transforms until nothing but loops and instructions is left. Raises
        `ScheduleError` where ``config`` is not legal."""

    def candidates(self, start: Start, machine: Machine) -> Iterator[Candidate[C, Any]]:
        """The space with the predicted times, the least first, and before all of them those without
        one. A recipe without a model of its own predicts none: its schedules say what they take."""
        configs = list(self.space(start, machine))
        if not self.has_model:
            yield from (Candidate(config, None) for config in configs)
            return
        times = [self.predict(start, machine, config) for config in configs]
        result = [
            Candidate(config, Seconds(time) if isinstance(time, int | float) else time)
            for config, time in zip(configs, times, strict=True)
        ]
        yield from sorted(result, key=lambda c: c.prediction.seconds if c.prediction else -1.0)

    @property
    def has_model(self) -> bool:
        """Whether it predicts times in a way of its own."""
        return type(self).predict is not Recipe.predict

    def choices(self, start: Start, machine: Machine) -> tuple[Choice, ...]:
        """What may be chosen for such a kernel, one field of a config after the other: all that a
        search may try, of which `space` is the part that the recipe itself chooses from. By
        default, that part."""
        return listed(list(self.space(start, machine)))

    def legal(self, kernel: Kernel, machine: Machine, config: C) -> dict[str, str]:
        """What each choice of ``config`` may be for ``kernel``, in words, beside the others."""
        return config.forms()

    def instructions(self, kernel: Kernel, machine: Machine, config: C) -> list[str]:
        """Of a contraction: the instruction of ``config``, and why it is none that does more at a
        time. Empty for what multiplies nothing."""
        return []

    def rounds(self, config: C, machine: Machine) -> bool:
        """Whether ``config`` takes the rounding that may be left out."""
        return False

    def considered(self, start: Start, machine: Machine, config: C) -> list[AnyCandidate]:
        """``config``, and all else that it was chosen from."""
        tried = list(self.candidates(start, machine)) if self.matches(start, machine) else []
        chosen = [candidate for candidate in tried if candidate.config == config] or [
            Candidate(config, None)
        ]
        return [*chosen, *(candidate for candidate in tried if candidate.config != config)]

    def carried_out(self, start: Start, machine: Machine, config: Any) -> KernelSchedule:
        """The schedule that ``config`` gives. Raises `ScheduleError` where it is not legal."""
        kernel = start.kernel if self.rounds(config, machine) else start.exact
        s = start.begun.fork() if start.begun is not None else KernelSchedule(kernel)
        s.machine, s.constant = machine, start.packable
        self.schedule(s, machine, config)
        return s


class ContractionRecipe(Recipe[C]):
    """A recipe for contractions whose sizes are known, which decide how they are shared out."""

    structured = True

    def matches(self, start: Start, machine: Machine) -> bool:
        return start.structured and is_contraction(start.kernel) and are_known(start.kernel)

    def carried_out(self, start: Start, machine: Machine, config: C) -> KernelSchedule:
        if not is_contraction(start.kernel):
            raise ScheduleError(
                f"{start.kernel.name} is no contraction",
                where=f"config {config!r}",
                cure="use a ElementwiseConfig",
            )
        return super().carried_out(start, machine, config)


class RankedRecipe(ContractionRecipe[C]):
    """A recipe whose model ranks choices while it lists them."""

    @abstractmethod
    def candidates(self, start: Start, machine: Machine) -> Iterator[Candidate[C, Any]]:
        """The best first, worked out as far as somebody asks."""

    def space(self, start: Start, machine: Machine) -> Iterator[C]:
        return (candidate.config for candidate in self.candidates(start, machine))


def is_contraction(kernel: Kernel) -> bool:
    """Whether the kernel's main compute is a sum of products."""
    if not has_compute(kernel, MAIN):
        return False
    main = find_compute(kernel, MAIN)
    if len(main.outputs) > 1 or main.results[0].combiner != "add" or len(main.operands) < 2:
        return False
    sizes, parts = extents(main), roles(main)
    # One multiplication, or one result, leaves nothing to tile.
    return all(any(sizes[d] > 1 for d in dims) for dims in (parts.k, parts.kept))


def table(candidates: Sequence[AnyCandidate]) -> list[str]:
    """Lines that say of each candidate what it is, the microseconds that it is predicted to take,
    what limits it, and what else the model says."""
    columns = dict.fromkeys(
        name
        for candidate in candidates
        if candidate.prediction
        for name in candidate.prediction.details
    )
    rows = [["config", "us", "limit", *columns]]
    for candidate in candidates:
        prediction = candidate.prediction
        cells = ["", "no model", *("" for _ in columns)]
        if prediction is not None:
            cells = [f"{prediction.seconds * 1e6:.1f}", prediction.limit]
            cells += [prediction.details.get(name, "") for name in columns]
        rows.append([candidate.config.short(), *cells])
    return aligned(rows, right=range(1, len(rows[0])))
