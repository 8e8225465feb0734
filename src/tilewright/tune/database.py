"""The database of tuning: what was tried, kept so that nothing that is finished is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Self, TextIO

from tilewright.engine.database_file import connect, refusal, salvage, select, transaction
from tilewright.engine.rows import OUTCOMES, Row, brief, pack, unpack
from tilewright.errors import DatabaseError
from tilewright.tune.exchange import read_rows, write_rows
from tilewright.tune.nearest import distance

__all__ = ["OUTCOMES", "Database", "Row"]

_STORE = (
    "INSERT INTO trials (key, kernel, symbols, target, features, generator, threads, outcome, "
    "seconds, form, stamp, data, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET outcome = excluded.outcome, seconds = excluded.seconds, "
    "form = excluded.form, stamp = excluded.stamp, data = excluded.data, seal = excluded.seal "
    "WHERE excluded.stamp >= trials.stamp AND excluded.seal <> trials.seal"
)
_PLACES = (
    "SELECT number, row_number() OVER (PARTITION BY kernel, symbols, target, features, generator, "
    "threads ORDER BY outcome <> 'correct', seconds, number) AS place FROM trials"
)
# Rows of one transaction, so that other writers do not wait long.
_AT_A_TIME = 500


@dataclass(frozen=True)
class Merged:
    """How many rows were new, or newer, and how many could not be read."""

    added: int
    damaged: int


class Database:
    """The database in the file ``path``, which is made where there is none, unless ``readonly``.

    Any number of processes, and threads of each, read and write it at a time; a process that forks
    opens it anew. When `add` returns, the row is on the disk, whatever happens to the process.
    Raises `DatabaseError`, here and in every method, where SQLite cannot do that.
    """

    def __init__(self, path: str | Path, readonly: bool = False) -> None:
        self.path = Path(path)
        self._lock = RLock()
        self._connection = connect(self.path, write=not readonly)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the use of the file."""
        self._connection.close()

    def add(self, row: Row) -> None:
        """Stores ``row``, whole or not at all; in place of one of the same key (the config of one
        kernel, there) that is not newer. Raises `DatabaseError` (a full disk, say): then it is not
        stored, and what is, stays."""
        self.add_all((row,))

    def add_all(self, rows: Iterable[Row]) -> int:
        """Stores all ``rows``, or none of them; returns how many were new, or newer."""
        values = [_values(row) for row in rows]
        with self._transaction() as connection:
            before = connection.total_changes
            connection.executemany(_STORE, values)
            return connection.total_changes - before

    def rows(
        self,
        kernel: str | None = None,
        target: str | None = None,
        *,
        features: str | None = None,
        generator: str | None = None,
        threads: int | None = None,
        outcome: str | None = None,
    ) -> list[Row]:
        """The rows with these values, in the order in which they were first stored. Rows whose seal
        does not fit are left out."""
        asked = {
            "kernel": kernel,
            "target": target,
            "features": features,
            "generator": generator,
            "threads": threads,
            "outcome": outcome,
        }
        return list(self._select(asked, "ORDER BY number"))

    def counts(self) -> dict[str, int]:
        """How many rows of each outcome there are."""
        with self._lock, self._refusals():
            return dict(
                self._connection.execute("SELECT outcome, count(*) FROM trials GROUP BY outcome")
            )

    def best(
        self,
        kernel: str,
        target: str,
        threads: int,
        features: str | None = None,
        generator: str | None = None,
    ) -> Row | None:
        """The correct row of ``kernel`` that took the least time there; of these ``features`` and
        this ``generator``, where they are given."""
        asked = {
            "kernel": kernel,
            "target": target,
            "threads": threads,
            "features": features,
            "generator": generator,
            "outcome": "correct",
        }
        return next(self._select(asked, "ORDER BY seconds, number"), None)

    def nearest(
        self,
        form: str,
        sizes: Sequence[int],
        target: str,
        *,
        features: str | None = None,
        threads: int | None = None,
        count: int = 16,
    ) -> list[Row]:
        """The best row of each of ``count`` kernels whose ``form`` (`nearest.form_of`) is the same,
        by any generator: those of the nearest ``sizes`` first."""
        asked = {"form": form, "target": target, "features": features, "threads": threads}
        # Of each group, SQLite gives the row with the least value of the one `min`.
        best = self._select(
            {**asked, "outcome": "correct"}, "GROUP BY kernel ORDER BY min(seconds)"
        )
        near = sorted(best, key=lambda row: distance(row.sizes, sizes))
        return [row for row in near if len(row.sizes) == len(sizes)][:count]

    def merge(self, path: str | Path) -> Merged:
        """Adds the rows of another database, newer ones in place of older ones; of one that is
        damaged, those that can be read."""
        added = 0
        with closing(connect(Path(path), write=False)) as source:
            try:
                stored = list(salvage(source))
            except sqlite3.Error as error:
                raise DatabaseError(
                    f"no row of {path} can be read", why=str(error), cure="restore it from a copy"
                ) from error
        rows = [row for row in stored if row is not None]
        for start in range(0, len(rows), _AT_A_TIME):
            added += self.add_all(rows[start : start + _AT_A_TIME])
        return Merged(added, len(stored) - len(rows))

    def prune(
        self,
        *,
        before: str | None = None,
        generators_but: str | None = None,
        failed: bool = False,
        keep: int | None = None,
    ) -> int:
        """Removes rows that are damaged, and those stamped ``before`` a time; those of all
        generators but one; those that ``failed``; of each kernel in each place all but the ``keep``
        fastest. Returns how many. The file becomes smaller, if the disk has room for that."""
        conditions = {
            "stamp < :before": before is not None,
            "generator <> :generator": generators_but is not None,
            "outcome <> 'correct'": failed,
            f"number IN (SELECT number FROM ({_PLACES}) WHERE place > :keep)": keep is not None,
        }
        chosen = " OR ".join(text for text, asked in conditions.items() if asked)
        values = {"before": before, "generator": generators_but, "keep": keep}
        with self._transaction() as connection:
            start = connection.total_changes
            stored = connection.execute("SELECT number, seconds, data, seal FROM trials")
            bad = [(entry[0],) for entry in stored if unpack(*entry) is None]
            connection.executemany("DELETE FROM trials WHERE number = ?", bad)
            if chosen:
                connection.execute(f"DELETE FROM trials WHERE {chosen}", values)
            removed = connection.total_changes - start
        # Where a full disk has no room for that either, new rows take the place of the old ones.
        with self._lock, suppress(sqlite3.OperationalError):
            self._connection.execute("VACUUM")
        return removed

    def export(self, stream: TextIO, format: str = "json", **asked: Any) -> int:
        """Writes the rows that `rows` gives for what is ``asked``, in a format of `exchange`."""
        return write_rows(self.rows(**asked), stream, format)

    def import_(self, stream: TextIO) -> int:
        """Adds the rows of what `export` wrote as JSON, all or none; returns how many were new, or
        newer."""
        return self.add_all(read_rows(stream))

    def winners(self, target: str | None = None) -> list[Row]:
        """The best row of each kernel in each place that it was tried in, by each generator."""
        place = "kernel, symbols, target, features, generator, threads"
        rest = f"GROUP BY {place} ORDER BY min(seconds)"
        rows = self._select({"target": target, "outcome": "correct"}, rest)
        return sorted(rows, key=lambda row: row.number or 0)

    def _select(self, asked: dict[str, Any], rest: str) -> Iterator[Row]:
        wanted = {name: value for name, value in asked.items() if value is not None}
        with self._lock, self._refusals():
            yield from select(self._connection, wanted, rest)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._refusals(), transaction(self._connection):
            yield self._connection

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise refusal(self.path, error) from error


def _values(row: Row) -> tuple[Any, ...]:
    return (
        *(row.key, row.kernel, row.symbols, row.target, brief(row.features), row.generator),
        *(row.threads, row.outcome, row.seconds, row.form, row.stamp, *pack(row)),
    )
