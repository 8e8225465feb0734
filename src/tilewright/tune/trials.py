"""The rows of a database by kernel and place: what was tried of one, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.engine.rows import Row
from tilewright.tune.exchange import choices_of

# Where rows can be compared with each other: on one clock.
Where = tuple[str, str, str, str, str, int]


@dataclass(frozen=True)
class Trials:
    """The ``rows`` of one kernel in one place, in the order in which they were tried; those that
    were timed ``cold``, or those that were not. There is one at least."""

    rows: tuple[Row, ...]
    cold: bool = False

    @property
    def title(self) -> str:
        """What the kernel is called."""
        return self.rows[0].title

    @property
    def place(self) -> str:
        """Where it was timed, in words."""
        row = self.rows[0]
        threads = f"{row.threads} thread{'s' if row.threads > 1 else ''}"
        return f"{row.target}, {threads}" + (", cold" if self.cold else "")

    @cached_property
    def correct(self) -> list[Row]:
        """Those that were timed."""
        return [row for row in self.rows if row.outcome == "correct"]

    @property
    def best(self) -> Row | None:
        """The fastest, the earliest of those that are as fast."""
        return min(self.correct, key=lambda row: row.seconds or 0.0, default=None)

    @property
    def default(self) -> Row | None:
        """That of the default: a search times it first, by itself."""
        alone = (row for row in self.correct if "beside" not in row.conditions)
        return next(alone, None)

    @property
    def gain(self) -> float | None:
        """How many times as fast as the default the best is; None where there is no default."""
        best, default = self.best, self.default
        if best is None or default is None or not best.seconds or not default.seconds:
            return None
        return default.seconds / best.seconds

    @property
    def outcomes(self) -> Counter[str]:
        """How many ended how."""
        return Counter(row.outcome for row in self.rows)

    def worth(self) -> dict[str, dict[str, Row]]:
        """For each choice that has several values among what was timed, the fastest row of each
        value: the choice first whose values differ most, the fastest value first."""
        values: dict[str, dict[str, Row]] = {}
        for row in self.correct:
            for name, value in choices_of(row.config).items():
                rows = values.setdefault(name, {})
                before = rows.get(str(value))
                if before is None or _time(row) < _time(before):
                    rows[str(value)] = row
        several = {name: _sorted(rows) for name, rows in values.items() if len(rows) > 1}
        return dict(sorted(several.items(), key=lambda item: -_reach(item[1])))


def trials_of(rows: Iterable[Row]) -> list[Trials]:
    """``rows`` by kernel and place, in the order in which they come."""
    groups: dict[Where, list[Row]] = {}
    for row in rows:
        groups.setdefault(_where(row), []).append(row)
    return [trials for group in groups.values() for trials in _by_caches(group)]


def _by_caches(rows: list[Row]) -> Iterable[Trials]:
    """What was timed with nothing in the caches is not compared with what was."""
    modes = {bool(row.conditions.get("cold")) for row in rows if row.outcome == "correct"}
    for cold in sorted(modes or {False}):
        fitting = (
            row
            for row in rows
            if row.outcome != "correct" or bool(row.conditions.get("cold")) == cold
        )
        yield Trials(tuple(fitting), cold)


def _where(row: Row) -> Where:
    return (row.kernel, row.symbols, row.target, row.features, row.generator, row.threads)


def _time(row: Row) -> float:
    return row.seconds or 0.0


def _sorted(rows: Mapping[str, Row]) -> dict[str, Row]:
    return dict(sorted(rows.items(), key=lambda item: _time(item[1])))


def _reach(rows: Mapping[str, Row]) -> float:
    times = [_time(row) for row in rows.values()]
    return max(times) / (min(times) or 1.0)
