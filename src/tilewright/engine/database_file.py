"""The file of a tuner's database: what is in it, opening it, and what is said where that fails.

SQLite in WAL mode: readers and one writer at a time do not wait for each other, and a process that
is killed leaves the rows that it finished. A file of another program or version is left as it is.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.engine.rows import Row, brief, unpack
from tilewright.errors import DatabaseError

APPLICATION = 0x54574442  # "TWDB", which `file` and SQLite's own shell show
VERSION = 1
BUSY_SECONDS = 60.0
# Readers wait for a writer only where there is no WAL, and can do without.
READING_SECONDS = 5.0

# What rows are found by stands in columns (`features`, which is long, by its key), all of it again
# in `data`, which `seal` checks.
_LAYOUT = (
    "CREATE TABLE trials (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, "
    "kernel TEXT NOT NULL, symbols TEXT NOT NULL, target TEXT NOT NULL, features TEXT NOT NULL, "
    "generator TEXT NOT NULL, threads INTEGER NOT NULL, outcome TEXT NOT NULL, seconds REAL, "
    "form TEXT NOT NULL, stamp TEXT NOT NULL, data BLOB NOT NULL, seal TEXT NOT NULL)",
    "CREATE INDEX by_kernel ON trials (kernel, target, threads, outcome, seconds)",
    "CREATE INDEX by_form ON trials (form, target, outcome)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
# Of these WAL needs memory that all processes share, which these have for one machine only.
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs"}
_NETWORK |= {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone"}
_CURES = {
    "SQLITE_FULL": "make room, or name a file on another disk",
    "SQLITE_IOERR": "look at the disk and at its quota, or name a file on another disk",
    "SQLITE_READONLY_ROLLBACK": "let a writer undo what another did not finish: "
    "`tilewright db prune FILE`",
    "SQLITE_READONLY": "make the file and its folder writable, or name another file",
    "SQLITE_CANTOPEN": "make the file and its folder readable and writable, or name another file",
    "SQLITE_BUSY": "end the process that holds it, or name another file",
    "SQLITE_NOTADB": "name another file",
    "SQLITE_CORRUPT": "save what can be read of it: `tilewright db merge NEW.db OLD.db`",
}


class TuningWarning(UserWarning):
    """A database of tuning was not used, or not in the usual way."""


def connect(path: Path, write: bool) -> sqlite3.Connection:
    """The database in ``path``, for reading, or for writing as well, which makes it where there is
    none. Raises `DatabaseError`."""
    _check_file(path, write)
    try:
        connection = _opened(path, write)
        try:
            # A damaged file may say anything: SQL that stands in it is not run.
            connection.execute("PRAGMA trusted_schema = OFF")
            _check_version(connection, path, write)
            if write:
                _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise refusal(path, error) from error
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """What is written inside is stored at its end, all of it; nothing where that fails."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself ends those that a full disk broke
            connection.execute("ROLLBACK")
        raise


def refusal(path: Path, error: sqlite3.Error) -> DatabaseError:
    """What is said where SQLite fails."""
    name = str(getattr(error, "sqlite_errorname", ""))
    cure = next((cure for start, cure in _CURES.items() if name.startswith(start)), None)
    return DatabaseError(
        f"SQLite cannot use {path}",
        where="the database of tuning",
        why=f"{error}" + (f" ({name})" if name else ""),
        cure=cure or "name another file",
    )


def select(
    connection: sqlite3.Connection, wanted: Mapping[str, Any], rest: str = "ORDER BY number"
) -> Iterator[Row]:
    """The rows whose columns have the values that are ``wanted``, but for those that are damaged.
    Raises `sqlite3.Error`."""
    where = " AND ".join(f"{name} = :{name}" for name in wanted) or "1"
    statement = f"SELECT number, seconds, data, seal FROM trials WHERE {where} {rest}"
    values = dict(wanted)
    if "features" in values:
        values["features"] = brief(values["features"])
    for stored in connection.execute(statement, values):
        row = unpack(*stored)
        if row is not None and all(getattr(row, name) == wanted[name] for name in wanted):
            yield row


def salvage(connection: sqlite3.Connection) -> Iterator[Row | None]:
    """All rows that can be read of a file that may be damaged, one by one; None for each that
    cannot. Raises `sqlite3.Error` where nothing can."""
    try:
        last = _number(connection, "SELECT max(number) FROM trials")
    except sqlite3.DatabaseError:  # the end of the table is damaged, but an index may say it, too
        last = _number(connection, "SELECT max(number) FROM trials INDEXED BY by_kernel")
    statement = "SELECT number, seconds, data, seal FROM trials WHERE number = ?"
    for number in range(1, last + 1):
        try:
            stored = connection.execute(statement, (number,)).fetchone()
        except sqlite3.DatabaseError:
            yield None
            continue
        if stored is not None:
            yield unpack(*stored)


def _check_file(path: Path, write: bool) -> None:
    """Refuses what SQLite would wait for, or which somebody else may change."""
    if write and path.parent.is_dir() and not os.path.lexists(path):
        return
    status = _status(path, f"name a file {'in a folder ' if write else ''}that is there")
    if not stat.S_ISREG(status.st_mode):
        raise DatabaseError(
            f"{path} is no file", where="the database of tuning", cure="name a file"
        )
    if write:
        check_owner(path)
        if not os.access(path, os.W_OK):
            raise DatabaseError(
                f"{path} cannot be written",
                where="the database of tuning",
                cure=_CURES["SQLITE_READONLY"],
            )


def _status(path: Path, cure: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise DatabaseError(
            f"cannot open {path}",
            where="the database of tuning",
            why=error.strerror or str(error),
            cure=cure,
        ) from error


def check_owner(path: Path) -> None:
    """Refuses a file that is another user's, or that others may write to: what is taken from it
    decides about code. Raises `DatabaseError`."""
    status = _status(path, "name a file that is there")
    if status.st_uid in (os.geteuid(), 0) and not status.st_mode & stat.S_IWOTH:
        return
    raise DatabaseError(
        f"{path} is not yours",
        where="the database of tuning",
        why="it belongs to another user, or others may write to it",
        cure=f"copy its rows into one of yours: `tilewright db merge MINE.db {path.name}`",
    )


def _opened(path: Path, write: bool) -> sqlite3.Connection:
    mode = "rwc" if write else "ro"
    # Where there is no journal, and none can be written, nobody writes.
    still = not write and not (os.access(path.parent, os.W_OK) or Path(f"{path}-wal").exists())
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}" + ("&immutable=1" if still else ""),
        uri=True,
        timeout=BUSY_SECONDS if write else READING_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0] or 0)


def _check_version(connection: sqlite3.Connection, path: Path, write: bool) -> None:
    """Refuses a file that is not of this version; what has nothing in it yet may be written."""
    # At one moment: another process may just make the tables.
    connection.execute("BEGIN")
    application = _number(connection, "PRAGMA application_id")
    version = _number(connection, "PRAGMA user_version")
    used = application or _number(connection, "SELECT count(*) FROM sqlite_master")
    connection.execute("COMMIT")
    if (application, version) == (APPLICATION, VERSION):
        return
    if application == APPLICATION:
        raise DatabaseError(
            f"{path} is a database of version {version}",
            where="the database of tuning",
            why=f"this Tilewright reads and writes version {VERSION}",
            cure="`tilewright db export` it with the Tilewright that wrote it, and import that",
        )
    if used or not write:
        raise DatabaseError(
            f"{path} is no database of tuning",
            where="the database of tuning",
            why="it is of another program" if used else "it has nothing in it",
            cure="name another file",
        )


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Chooses the journal, and makes the tables where there are none. Refuses a damaged file: what
    is written there may be lost."""
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise DatabaseError(
            f"{path} is damaged",
            where="the database of tuning",
            why=answer,
            cure=_CURES["SQLITE_CORRUPT"],
        )
    network = network_file_system(path)
    wanted = "delete" if network else "wal"
    mode = _journal(connection, wanted)
    if network or mode != "wal":
        warnings.warn(
            f"{path} lies on {network or 'a file system'}, where SQLite has no WAL: processes wait "
            "for each other. Name a file on a local disk, and merge it when all is done "
            "(`tilewright db merge`)",
            TuningWarning,
            stacklevel=2,
        )
    connection.execute("PRAGMA synchronous = FULL")
    with transaction(connection):
        # Another process may have made them since.
        if not _number(connection, "PRAGMA user_version"):
            for statement in _LAYOUT:
                connection.execute(statement)


def _journal(connection: sqlite3.Connection, wanted: str) -> str:
    """Changes the journal, if that is another; returns which it is then. Where several processes
    do that at a time, SQLite lets one do it, and refuses the others without any wait."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != wanted:
                (mode,) = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()
            return str(mode)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.005)


def _mounts() -> str:
    """What Linux says of the file systems that are mounted; "" elsewhere."""
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def network_file_system(path: Path) -> str:
    """The type of the file system that ``path`` lies on, where it is one of a network; else ""."""
    places: list[tuple[int, str]] = []
    for line in _mounts().splitlines():
        before, _, after = line.partition(" - ")
        place = before.split()[4].replace("\\040", " ")
        if path.resolve().is_relative_to(place):
            places.append((len(place), after.split()[0]))
    # The last one at a place hides those before.
    kind = max(reversed(places), default=(0, ""), key=lambda entry: entry[0])[1]
    return kind if kind in _NETWORK else ""
