"""The database of tuning: what was tried, kept so that nothing that is finished is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Self

from tilewright.engine.database_file import connect, refusal, select
from tilewright.engine.rows import OUTCOMES, Row, pack

__all__ = ["OUTCOMES", "Database", "Row"]

_STORE = (
    "INSERT INTO trials (key, kernel, target, features, generator, threads, outcome, seconds, "
    "form, stamp, data, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET outcome = excluded.outcome, seconds = excluded.seconds, "
    "form = excluded.form, stamp = excluded.stamp, data = excluded.data, seal = excluded.seal "
    "WHERE excluded.stamp >= trials.stamp"
)


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

    def _select(self, asked: dict[str, Any], rest: str) -> Iterator[Row]:
        wanted = {name: value for name, value in asked.items() if value is not None}
        with self._lock, self._refusals():
            yield from select(self._connection, wanted, rest)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._refusals():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends those that a full disk broke
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise refusal(self.path, error) from error


def _values(row: Row) -> tuple[Any, ...]:
    return (
        *(row.key, row.kernel, row.target, row.features, row.generator, row.threads, row.outcome),
        *(row.seconds, row.form, row.stamp, *pack(row)),
    )
