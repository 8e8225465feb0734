"""A subject of a search whose points crash, hang, are wrong, or take as long as they say."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from random import Random
from typing import Any

from tilewright.engine.winners import Asked
from tilewright.errors import CompilationError, ScheduleError, UnsupportedError
from tilewright.measure.race import Race
from tilewright.recipes.config import Config
from tilewright.tune import trial
from tilewright.tune.subject import Built, Call, Points, Subject
from tilewright.tune.trial import Task


class Plant(Config):
    """What a point does, and how many milliseconds a call takes."""

    does: str
    ms: float = 1.0


@dataclass(frozen=True)
class Plants(Points):
    """Points one after the other."""

    plants: tuple[Plant, ...]

    def count(self) -> int:
        return len(self.plants)

    def points(self) -> Iterator[Config]:
        return iter(self.plants)

    def drawn(self, rng: Random) -> Config:
        return rng.choice(self.plants)

    def picked(self, pick: Any) -> Config:
        plant: Plant = pick("plant", self.plants)
        return plant

    def by_prediction(self, rng: Random, most: int) -> list[Config]:
        return sorted(self.plants, key=lambda plant: plant.ms)[:most]

    def neighbours(self, config: Config) -> Iterator[Config]:
        return iter(self.plants)

    def mutated(self, config: Config, rng: Random) -> Config:
        return self.drawn(rng)

    def crossed(self, one: Config, other: Config, rng: Random) -> Config:
        return rng.choice((one, other))

    def values(self, config: Config) -> dict[str, Any]:
        return vars(config)

    def quick(self, config: Config) -> bool:
        return True

    def predicted(self, config: Config) -> float | None:
        assert isinstance(config, Plant)
        return 1e-3 * config.ms if config.does != "unpredicted" else None


@dataclass(frozen=True)
class Sleep:
    """A call that takes so many milliseconds."""

    ms: float

    def __call__(self) -> None:
        time.sleep(1e-3 * self.ms)


def undisturbed(challenger: Any, incumbent: Any, **options: Any) -> Race:
    """What `measure.race.race` gives of planted calls on a machine that does nothing else."""
    times = (1e-3 * challenger.ms,) * 12
    return Race(times, () if incumbent is None else (1e-3 * incumbent.ms,) * 12)


def tried_undisturbed(task: Task) -> Any:
    """A trial, in a process of its own, of such calls."""
    trial.race = undisturbed
    return trial.tried(task)


class Undisturbed(Executor):
    """Runs such trials by ``of``."""

    def __init__(self, of: Executor) -> None:
        self.of = of

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self.of.submit(tried_undisturbed, *args)


@dataclass(frozen=True)
class PlantBuilt(Built):
    """What is built of a point."""

    plant: Plant

    @property
    def schedule(self) -> str:
        return "# a schedule"

    def fault(self, seed: int) -> str | None:
        match self.plant.does:
            case "crash":
                os.abort()
            case "hang":
                time.sleep(1000)
            case "end its parent":
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(1000)
            case "wrong":
                return "y[0] is 1, expected 2"
            case "unchecked":
                raise UnsupportedError("too many elements")
        return None

    def call(self, seed: int) -> Call:
        return Sleep(self.plant.ms)


@dataclass(frozen=True, eq=False)
class Planted(Subject):
    """``plants``, the first of which is the default."""

    plants: tuple[Plant, ...]
    name: str = "planted"

    @property
    def title(self) -> str:
        return self.name

    @property
    def asked(self) -> Asked:
        return Asked(self.name, "x86", "features", "generator", 1)

    def points(self) -> Plants:
        return Plants(self.plants)

    def default(self) -> Config:
        return self.plants[0]

    def build(self, point: Config) -> Built:
        assert isinstance(point, Plant)
        if point.does == "refuse":
            raise ScheduleError("no such tile")
        if point.does == "uncompilable":
            raise CompilationError("LLVM refused it")
        if point.does == "defect":
            raise ValueError("a defect")
        return PlantBuilt(point)
