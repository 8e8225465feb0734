"""A trial: one point, built, checked, and timed beside the fastest so far, in a process of its
own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.errors import CompilationError, ScheduleError, TilewrightError, UnsupportedError
from tilewright.measure.host import Host
from tilewright.measure.race import Race, race
from tilewright.recipes.config import Config
from tilewright.testing.verify import one_line
from tilewright.tune.processes import Last
from tilewright.tune.subject import Built, Call, Subject
from tilewright.tune.timing import building, timing

# Larger than the last caches of processors, so that what is written leaves nothing else in them.
_COLD_BYTES = 2**27
# An outcome of its own, of which there is no row: the point was not tried.
PRUNED = "pruned"


@dataclass(frozen=True)
class Measuring:
    """How points are timed: on data by ``seed``, with what they read in no cache (``cold``) or as
    the call before left them, for so many ``seconds`` at most. Of the trials that know the file
    ``lock``, one is timed at a time; ``alone``: and nothing is built meanwhile."""

    seed: int = 0
    cold: bool = False
    seconds: float = 0.2
    lock: str = ""
    alone: bool = False


@dataclass(frozen=True)
class Task:
    """``point`` of ``subject``, timed beside ``incumbent`` (None: by itself), if it is predicted to
    take no more than ``most`` seconds."""

    subject: Subject
    point: Config
    incumbent: Config | None
    measuring: Measuring
    most: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: one of `rows.OUTCOMES`, or `PRUNED`, ``why``, and the ``race``."""

    outcome: str
    why: str = ""
    race: Race | None = None
    compile_seconds: float = 0.0
    predicted: float | None = None
    schedule: str = ""
    conditions: dict[str, Any] = field(default_factory=dict)


def tried(task: Task) -> Outcome | Last:
    """Tries a point. A process in which one was wrong runs no other: it may have written
    anywhere."""
    predicted = _points(task.subject).predicted(task.point)
    if predicted is not None and task.most is not None and predicted > task.most:
        return Outcome(PRUNED, predicted=predicted)
    measuring = task.measuring
    with building(measuring.lock if measuring.alone else ""):
        start = time.perf_counter()
        try:
            built = task.subject.build(task.point)
        except (ScheduleError, UnsupportedError) as error:
            return Outcome("constraints", one_line(error), predicted=predicted)
        except TilewrightError as error:
            kind = "compile" if isinstance(error, CompilationError) else "runtime"
            return Outcome(kind, one_line(error), predicted=predicted)
        said: dict[str, Any] = {
            "compile_seconds": time.perf_counter() - start,
            "predicted": predicted,
            "schedule": built.schedule,
            "conditions": {"cold": measuring.cold, "seed": measuring.seed},
        }
        fault, kind = _fault(built, measuring.seed)
        if fault is not None:
            return Last(Outcome(kind, fault, **said))
        calls = _calls(task, built)
    with timing(measuring.lock):
        timed = _raced(measuring, *calls)
    return Outcome("correct", race=timed, **said)


def _fault(built: Built, seed: int) -> tuple[str | None, str]:
    """What is wrong with what a point computes, and the kind of outcome that this is."""
    try:
        return built.fault(seed), "correctness"
    except UnsupportedError as error:
        # It cannot be checked, nor any other point.
        return one_line(error), "constraints"
    except TilewrightError as error:
        return one_line(error), "runtime"


def _calls(task: Task, built: Built) -> tuple[Call, Call | None]:
    """What is timed, and what it is timed beside."""
    seed, incumbent = task.measuring.seed, None
    if task.incumbent is not None:
        incumbent = _incumbent(task.subject, task.incumbent, seed)
    return built.call(seed), incumbent


def _raced(measuring: Measuring, challenger: Call, incumbent: Call | None) -> Race:
    return race(
        challenger,
        incumbent,
        seconds=measuring.seconds,
        before=emptied() if measuring.cold else None,
        host=Host(),
    )


@lru_cache(maxsize=2)
def _incumbent(subject: Subject, point: Config, seed: int) -> Call:
    """A call of the fastest so far, which stays the same for many trials."""
    return subject.build(point).call(seed)


@lru_cache(maxsize=4)
def _points(subject: Subject) -> Any:
    return subject.points()


@lru_cache(maxsize=1)
def emptied() -> Callable[[], object]:
    """Writes so much that the caches have nothing else."""
    memory = np.zeros(_COLD_BYTES // 8, np.int64)

    def write() -> None:
        np.add(memory, 1, out=memory)

    return write
