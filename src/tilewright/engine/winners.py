"""What the tuner found to be fastest, asked for before the model is.

A database is never trusted: a row counts only if its seal fits, it is of the same kernel, target,
generator and threads, and its config parses; whether that is legal shows when it is scheduled.
What does not count is said in a warning, once a process, and in what `explain` says; the next best
row, or the model, chooses.
"""

from __future__ import annotations

import sqlite3
import warnings
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from tilewright.engine.database_file import (
    TuningWarning,
    check_owner,
    connect,
    refusal,
    select,
)
from tilewright.engine.disk_cache import content_key
from tilewright.engine.generator import generator_version
from tilewright.engine.kept import KeptSteps
from tilewright.engine.overview import duration
from tilewright.engine.request import Request
from tilewright.engine.rows import Row
from tilewright.errors import DatabaseError, ScheduleError, TilewrightError
from tilewright.recipes.config import Config, parse_config
from tilewright.targets.target import Target


@dataclass(frozen=True)
class Asked:
    """What a row has to be of, as `rows.Row` has it."""

    kernel: str
    target: str
    features: str
    generator: str
    threads: int

    @classmethod
    def of(cls, request: Request, target: Target, threads: int) -> Asked:
        """What is asked for when ``request`` is compiled for ``target``; devices that run kernels
        whole take no threads, and rows of theirs have 1."""
        return cls.at(content_key(request.identity.encode()), target, threads)

    @classmethod
    def at(cls, kernel: str, target: Target, threads: int) -> Asked:
        """What is asked for of what has the key ``kernel``, on ``target``."""
        threads = threads if target.takes_threads else 1
        return cls(kernel, target.name, target.identity, generator_version(), threads)


@dataclass(frozen=True)
class Winner:
    """The best row of ``database`` that counts of what was ``asked``, and its config."""

    database: Path
    asked: Asked
    row: Row
    config: Config

    @property
    def origin(self) -> str:
        """Where the config comes from, in words."""
        row = self.row
        return (
            f"row {row.number} of the database {self.database}: {duration(row.seconds or 0.0)} a "
            f"call (threads: {row.threads}, the median of {len(row.times)}, measured "
            f"{row.stamp[:19]})"
        )

    def check(self, steps: KeptSteps) -> None:
        """Raises `ScheduleError` where the ``steps`` that the config gives now are not those that
        were timed: a recipe of the user's own may have changed, say."""
        if self.row.schedule and not steps.says(self.row.schedule):
            raise ScheduleError(
                "its config gives another schedule than the one that was timed",
                cure="tune the kernel again",
            )

    def set_aside(self, error: TilewrightError) -> None:
        """Leaves the row out from now on, in this process: its config was refused."""
        _leave_out(self.database, self.asked, self.row, error)


_said: set[str] = set()
# Why rows (by key and stamp) do not count, and the file itself (by "").
_unused: dict[tuple[Path, Asked], dict[str, str]] = {}


def winner(database: Path, asked: Asked) -> Winner | None:
    """What ``database`` has; None, and a warning, where it cannot be asked."""
    unused = _unused.setdefault((database, asked), {})
    unused.pop("", None)
    try:
        check_owner(database)
        with closing(connect(database, write=False)) as connection:
            wanted = {**asdict(asked), "outcome": "correct"}
            for row in select(connection, wanted, "ORDER BY seconds, number"):
                if row.key + row.stamp in unused:
                    continue
                try:
                    return Winner(database, asked, row, parse_config(row.config))
                except ScheduleError as error:
                    _leave_out(database, asked, row, error)
    except (DatabaseError, sqlite3.Error) as error:
        said = error if isinstance(error, DatabaseError) else refusal(database, error)
        unused[""] = f"{said.what} ({said.why})"
        _warn(f"{unused['']}: the model chooses; {said.cure}")
    return None


def origin_of(winner: Winner | None, otherwise: str, database: Path, asked: Asked) -> str:
    """Who chose, in words: the ``winner``, or who does ``otherwise``; and why what is in the
    ``database`` does not count."""
    chosen = otherwise if winner is None else winner.origin
    return "; ".join((chosen, *_unused.get((database, asked), {}).values()))


def _leave_out(database: Path, asked: Asked, row: Row, error: TilewrightError) -> None:
    why = f"row {row.number} of {database} is not used: {error.what}"
    why += f" ({error.why})" if error.why else ""
    _unused.setdefault((database, asked), {})[row.key + row.stamp] = why
    _warn(f"{why}; the next best, or the model, chooses")


def _warn(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, TuningWarning, stacklevel=2)
