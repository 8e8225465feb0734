"""The search for the fastest point of one subject: what is tried next, and what is kept of it.

Times of rows are those of one clock: a point is timed beside the fastest so far, and its time is
that one's, as stored, by the ratio of the two. What is not clearly faster than the fastest so far
counts as no faster. So a row that is faster than another was so beside it, or by a chain of such
comparisons, whatever else the machine did on either day. At the end the fastest meets the default
once more (`duel`): what is not clearly faster then, either, is stored as no faster than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError
from dataclasses import asdict, replace
from random import Random
from typing import Any

from tilewright.engine.rows import Row, now
from tilewright.errors import ScheduleError, TilewrightError, TuningError
from tilewright.recipes.config import Config, parse_config
from tilewright.tune.database import Database
from tilewright.tune.processes import CrashedError, HungError, LostError
from tilewright.tune.strategies import Maker
from tilewright.tune.subject import Subject
from tilewright.tune.trial import PRUNED, Measuring, Outcome, Task

# What is predicted to take so many times what the default is predicted to take is not tried.
_PRUNED_ABOVE = 3.0
# By how much what is not clearly faster than another point is stored as slower: the one that was
# there before stays the fastest.
_TIE = 1e-6
# Points in a row that were tried before, besides as many as there are rows: then there are no
# others.
_MOST_KNOWN = 1000
# So many workers may be lost with trials that have to be: the default's, and duels.
_MOST_LOST = 3
# The condition of a row that its worker was lost: a later run tries the point again.
_LOST = "lost"
# Seconds of a duel, in those of a trial.
_DUEL = 4.0


class Search:
    """What is tried of ``subject``, by the ``strategy``, and stored in ``database``: no more than
    so many ``trials``, those among them that an earlier run stored. ``weight`` says how much its
    time counts beside that of other subjects."""

    def __init__(
        self,
        subject: Subject,
        database: Database,
        strategy: Maker,
        measuring: Measuring,
        trials: int | None = None,
        weight: float = 1.0,
    ) -> None:
        self.subject, self.database, self.measuring = subject, database, measuring
        self.limit, self.weight = trials, weight
        self.default = subject.default()
        self.failed: str | None = None
        """Why the default itself cannot be timed: then nothing is tried."""
        self.pruned = self.added = self.turns = self._lost = 0
        self._rows: dict[str, Row] = {}
        self._running: set[str] = set()
        points = subject.points()
        self._points = points
        self._strategy = strategy(points, self.default, Random(measuring.seed))
        self._first: Iterator[Config] = subject.first(database)
        self._exhausted = False
        self._predicted = points.predicted(self.default)
        for row in database.rows(**asdict(subject.asked)):
            if _LOST not in row.conditions:
                self._seen(row)

    # What is there.

    @property
    def best(self) -> Row | None:
        """The fastest row so far, the earliest of those that are as fast."""
        correct = [row for row in self._rows.values() if row.outcome == "correct"]
        return min(correct, key=lambda row: row.seconds or 0.0, default=None)

    @property
    def default_row(self) -> Row | None:
        """That of the default."""
        return self._rows.get(repr(self.default))

    @property
    def tried(self) -> int:
        """How many points were tried, those of earlier runs among them."""
        return len(self._rows)

    @property
    def gain(self) -> float:
        """How many times as fast as the default the fastest is."""
        best, default = self.best, self.default_row
        if best is None or default is None or not best.seconds or not default.seconds:
            return 1.0
        return default.seconds / best.seconds

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to try."""
        full = self.limit is not None and self.tried + len(self._running) >= self.limit
        return self.failed is not None or full or (self._exhausted and not self._running)

    # What is next.

    def next(self) -> Task | None:
        """The next trial; None where there is none now."""
        if self.ended:
            return None
        best = self.best
        if self.default_row is None or best is None:
            if self._running:
                return None
            return self._task(self.default, None, None)
        for _ in range(_MOST_KNOWN + len(self._rows)):
            point = self._next_point()
            if point is None:
                self._exhausted = True
                return None
            row = self._rows.get(repr(point))
            if row is not None:
                self._strategy.tell(point, row.seconds)
            elif repr(point) not in self._running:
                self._exhausted = False
                most = None if self._predicted is None else _PRUNED_ABOVE * self._predicted
                return self._task(point, parse_config(best.config), most)
        self._exhausted = True
        return None

    def duel(self) -> Task | None:
        """The fastest beside the default, for longer, where these did not meet yet."""
        best = self.best
        if best is None or self.default_row is None or self.failed is not None:
            return None
        if self._lost >= _MOST_LOST:
            return None
        if best.config == repr(self.default) or "duel" in best.conditions:
            return None
        measuring = replace(self.measuring, seconds=_DUEL * self.measuring.seconds)
        return Task(self.subject, parse_config(best.config), self.default, measuring)

    def _next_point(self) -> Config | None:
        for point in self._first:
            if repr(point) not in self._rows:
                return point
        return self._strategy.ask()

    def _task(self, point: Config, incumbent: Config | None, most: float | None) -> Task:
        self._running.add(repr(point))
        return Task(self.subject, point, incumbent, self.measuring, most)

    # What came of it.

    def told(self, task: Task, result: Outcome | BaseException) -> Row | None:
        """Stores what came of a trial; the row. None for a point that was not tried after all.
        Raises `DatabaseError` where it cannot be stored."""
        text = repr(task.point)
        self._running.discard(text)
        outcome = _outcome_of(result, self.subject)
        if outcome.outcome == PRUNED:
            self.pruned += 1
            self._strategy.tell(task.point, None)
            return None
        row = self._row(task, outcome)
        if text == repr(self.default) and row.outcome != "correct":
            self._lost += _LOST in row.conditions
            if _LOST not in row.conditions or self._lost >= _MOST_LOST:
                self.failed = f"{row.outcome}: {row.why}"
        self.database.add(row)
        self.added += 1
        self._seen(row)
        return row

    def told_of_duel(self, task: Task, result: Outcome | BaseException) -> Row:
        """Stores what came of `duel`; where its worker was lost, what was there stays."""
        outcome = _outcome_of(result, self.subject)
        if _LOST in outcome.conditions:
            self._lost += 1
            return self._rows[repr(task.point)]
        row = self._row(task, outcome)
        if outcome.race is not None:
            row = replace(row, conditions={**row.conditions, "duel": True})
        before = self._rows[row.config]
        changed = [row]
        if row.seconds and before.seconds:
            changed += self._rescaled(row.config, row.seconds / before.seconds)
        self.database.add_all(changed)
        self._rows |= {changed_row.config: changed_row for changed_row in changed}
        return row

    def _rescaled(self, config: str, factor: float) -> Iterator[Row]:
        """The rows whose times are known by that of ``config``, which is ``factor`` of what it was
        taken for; those that met the default know theirs."""
        for row in self._rows.values():
            if row.conditions.get("beside") == config and "duel" not in row.conditions:
                times = tuple(factor * time for time in row.times)
                yield replace(row, times=times, stamp=now())
                yield from self._rescaled(row.config, factor)

    def _seen(self, row: Row) -> None:
        """Takes a row in: of this run, or of an earlier one in the same conditions."""
        correct = row.outcome == "correct"
        if correct and bool(row.conditions.get("cold")) != self.measuring.cold:
            return
        try:
            point = parse_config(row.config)
        except ScheduleError:
            return  # of a recipe that is not there
        self._rows[row.config] = row
        self._strategy.tell(point, row.seconds if correct else None)

    def _row(self, task: Task, outcome: Outcome) -> Row:
        form, sizes = self.subject.form()
        times, said = self._times(task, outcome)
        return Row(
            **asdict(self.subject.asked),
            title=self.subject.title,
            problem=self.subject.problem,
            symbols=self.subject.symbols,
            config=repr(task.point),
            schedule=outcome.schedule,
            outcome=outcome.outcome,
            why=outcome.why,
            times=times,
            compile_seconds=outcome.compile_seconds,
            predicted=outcome.predicted,
            conditions={**outcome.conditions, **said},
            form=form,
            sizes=sizes,
        )

    def _times(self, task: Task, outcome: Outcome) -> tuple[tuple[float, ...], dict[str, Any]]:
        """The times as they are stored, and what is said of them."""
        race = outcome.race
        if race is None:
            return (), {}
        if task.incumbent is None:
            return race.times, {}
        beside = self._rows[repr(task.incumbent)].seconds or 0.0
        seconds = beside * race.ratio
        if not race.won:
            seconds = max(seconds, beside * (1 + _TIE))
        scale = seconds / race.seconds
        said = {"beside": repr(task.incumbent), "ratio": race.ratio, "scale": scale}
        if math.isfinite(race.bounds[1]):
            said["bounds"] = list(race.bounds)
        return tuple(scale * time for time in race.times), said


def _outcome_of(result: Outcome | BaseException, subject: Subject) -> Outcome:
    """What came of a trial; of one whose process ended or hung, that. Raises what is no fault of
    the point."""
    if isinstance(result, Outcome):
        return result
    if isinstance(result, HungError):
        return Outcome("timeout", str(result))
    if isinstance(result, CrashedError):
        return Outcome("runtime", f"its process ended: {result}")
    if isinstance(result, LostError):
        return Outcome("runtime", str(result), conditions={_LOST: True})
    if isinstance(result, BrokenExecutor | CancelledError):
        raise TuningError(
            "the executor of the search has ended",
            why=f"{type(result).__name__}: {result}",
            cure="start the search again, which goes on where it stopped, with another one",
        ) from result
    if isinstance(result, TilewrightError) or not isinstance(result, Exception):
        raise result
    # A defect of ours, met by one point.
    return Outcome("runtime", f"{type(result).__name__}: {result}")
