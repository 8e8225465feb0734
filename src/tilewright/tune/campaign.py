"""Searches for the fastest of many subjects at a time: the layers of a network, the groups of a
graph, or one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.config import environment_of
from tilewright.engine.rows import Row
from tilewright.tune.budget import Budget, Clock
from tilewright.tune.processes import Last, Processes
from tilewright.tune.search import Search
from tilewright.tune.trial import Outcome, Task, tried

# What folders of searches are called, before the number of their process.
_FOLDER = "tilewright-tune-"
# Seconds that a trial may take in all, before its process is ended.
LIMIT = 60.0


@dataclass(frozen=True)
class Done:
    """What a campaign says after each trial: of which ``search``, its ``row``; that it was a
    ``duel``."""

    search: Search
    row: Row
    duel: bool = False


Told = Callable[[Done], None]


class Campaign:
    """``searches`` that take turns, by ``jobs`` trials at a time (a number, or what says how
    many now) which the ``executor`` runs, for as long as the ``budget`` says."""

    def __init__(
        self,
        searches: Sequence[Search],
        executor: Executor,
        jobs: int | Callable[[], int],
        budget: Budget,
        told: Told = lambda done: None,
    ) -> None:
        self.searches, self._executor, self._jobs = list(searches), executor, jobs
        self.budget, self.clock, self._told = budget, Clock(), told
        self.trials = 0

    @property
    def left(self) -> float:
        """Which part of the budget is left."""
        if self.budget.seconds is not None:
            return max(0.0, 1 - self.clock.seconds / self.budget.seconds)
        if self.budget.trials is not None:
            planned = self.budget.trials * max(1, len(self.searches))
            return max(0.0, 1 - sum(search.tried for search in self.searches) / planned)
        return 1.0

    def run(self) -> None:
        """Tries until the budget is used up, or nothing is left to try; then the fastest of each
        subject meets the default. Raises `DatabaseError` where nothing can be stored any more."""
        running: dict[Future[Any], tuple[Search, Task]] = {}
        while True:
            jobs = self._jobs if isinstance(self._jobs, int) else self._jobs()
            while len(running) < jobs and (chosen := self._next()) is not None:
                search, task = chosen
                running[self._executor.submit(tried, task)] = chosen
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                search, task = running.pop(future)
                row = search.told(task, _result(future))
                if row is not None:
                    self.trials += 1
                    self._told(Done(search, row))
        self._duels()

    def _next(self) -> tuple[Search, Task] | None:
        """The next trial, of the search that had the fewest for its weight."""
        if self.budget.seconds is not None and self.clock.seconds >= self.budget.seconds:
            return None
        for search in sorted(self.searches, key=lambda search: search.turns / search.weight):
            task = search.next()
            if task is not None:
                search.turns += 1
                return search, task
        return None

    def _duels(self) -> None:
        for search in self.searches:
            while (task := search.duel()) is not None:
                row = search.told_of_duel(task, _result(self._executor.submit(tried, task)))
                self._told(Done(search, row, duel=True))


def _result(future: Future[Any]) -> Outcome | BaseException:
    error = CancelledError() if future.cancelled() else future.exception()
    if error is not None:
        return error
    result = future.result()
    # Executors of others do not know what it means.
    outcome: Outcome = result.result if isinstance(result, Last) else result
    return outcome


@contextmanager
def local(jobs: int, limit: float = LIMIT) -> Iterator[tuple[Executor, Path]]:
    """An executor of so many processes of this machine, and a folder for their lock: what they
    compile stays out of the cache."""
    _clear()
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-") as folder:
        executor = Processes(jobs, limit, environment_of(Path(folder, "cache")))
        try:
            yield executor, Path(folder)
        finally:
            executor.shutdown(wait=False)


def _clear() -> None:
    """Removes the folders that searches left which were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        process = folder.name.removeprefix(_FOLDER).partition("-")[0]
        with suppress(OSError):
            if process.isdecimal() and folder.stat().st_uid == os.geteuid():
                try:
                    os.kill(int(process), 0)
                except ProcessLookupError:
                    shutil.rmtree(folder, ignore_errors=True)
