"""The database of tuning: rows in and out, and every way in which a file can be wrong."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest

import kill_database
from tilewright.engine import database_file
from tilewright.engine.database_file import TuningWarning, network_file_system
from tilewright.errors import DatabaseError
from tilewright.tune.database import Database, Row
from tilewright.tune.exchange import t4
from tuned_rows import row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuned.db"


def store(path: Path, *rows: Row) -> None:
    with Database(path) as database:
        assert database.add_all(rows) == len(rows)


def whole() -> Row:
    """A row in which everything is said."""
    return row(
        "PlainConfig(vector=8)",
        problem="matmul 3x4:4x5",
        symbols="n: 1 to 8",
        schedule="# a schedule\n",
        why="",
        times=(1e-6, 3e-6, 2e-6),
        compile_seconds=0.5,
        predicted=1.5e-6,
        conditions={"cpu": "ä", "clock": [1, 2.5, None]},
        form="a form",
        sizes=(3, 4, 5),
    )


def test_a_row_is_what_was_stored(path: Path) -> None:
    store(path, whole(), row("B()", None, why="it hung"))
    with Database(path, readonly=True) as database:
        first, second = database.rows()
        assert (first, first.number, first.seconds) == (whole_at(first), 1, 2e-6)
        assert (second.outcome, second.why, second.seconds) == ("timeout", "it hung", None)
        assert database.counts() == {"correct": 1, "timeout": 1}


def whole_at(other: Row) -> Row:
    """`whole`, stamped like ``other``."""
    return Row(**{**whole().as_json(), "stamp": other.stamp})


def test_a_newer_row_takes_the_place_of_its_like(path: Path) -> None:
    store(path, row("A()", 2.0, stamp="2"), row("B()", 3.0))
    with Database(path) as database:
        assert database.add_all([row("A()", 1.0, stamp="1")]) == 0
        assert [stored.times for stored in database.rows()] == [(2.0,), (3.0,)]
        assert database.add_all([row("A()", 9.0, stamp="3")] * 2) == 1
        assert [stored.times for stored in database.rows()] == [(9.0,), (3.0,)]
        for other in ("kernel", "symbols", "target", "features", "generator"):
            database.add(row("A()", 1.0, **{other: "another"}))
        database.add(row("A()", 1.0, threads=2))
        assert len(database.rows()) == 8


def test_the_best_row(path: Path) -> None:
    store(
        path,
        *(row("A()", 3.0), row("B()", 1.0, generator="old"), row("C()", 2.0)),
        *(row("D()", 0.1, kernel="l"), row("E()", 0.1, threads=2), row("F()", None)),
        *(row("G()", 0.1, outcome="correctness"), row("H()", 0.1, features="other")),
    )
    with Database(path) as database:
        best = database.best("k", "x86", 1, features="k")
        assert best is not None and best.config == "B()"
        best = database.best("k", "x86", 1, features="k", generator="k")
        assert best is not None and best.config == "C()"
        assert database.best("k", "spirv", 1) is None
        assert [r.config for r in database.rows("k", generator="old")] == ["B()"]
        assert [r.config for r in database.rows(threads=2)] == ["E()"]
        winners = [(r.config, r.generator) for r in database.winners()]
        assert winners == [("B()", "old"), ("C()", "k"), ("D()", "k"), ("E()", "k"), ("H()", "k")]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"threads": True}, r"threads is True\n  why: it is of another type"),
        ({"times": (1, 2)}, r"times is [^$]* another type"),
        ({"conditions": []}, r"conditions is [^$]* another type"),
        ({"outcome": "fine"}, "outcome is 'fine'\n  why: it is none of correct, compile, runtime"),
        ({"times": (float("nan"),)}, "times is .*\n  why: times are finite"),
        ({"predicted": -1.0}, "finite, and not negative"),
        ({"sizes": (0, 1)}, "sizes are 1 or more"),
        ({"times": ()}, "what is correct was measured"),
    ],
)
def test_rows_that_make_no_sense(values: dict[str, object], said: str) -> None:
    with pytest.raises(DatabaseError, match=said):
        row(**values)  # type: ignore[arg-type]  # which is what it refuses


@pytest.mark.parametrize("value", [{1, 2}, float("inf")])
def test_conditions_that_are_no_json(path: Path, value: object) -> None:
    with Database(path) as database:
        with pytest.raises(DatabaseError, match=r"a row's conditions is a dict\n  why: .* JSON"):
            database.add(row(conditions={"x": value}))
        assert database.rows() == []


# Other files.


def test_export_and_import(path: Path, tmp_path: Path) -> None:
    store(path, whole(), row("B()", None))
    text = StringIO()
    with Database(path) as database, Database(tmp_path / "other.db") as other:
        assert database.export(text) == 2
        assert other.import_(StringIO(text.getvalue())) == 2
        assert other.rows() == database.rows()
        assert other.import_(StringIO(text.getvalue())) == 0
        # What other programs write may have whole numbers.
        data = json.loads(text.getvalue())
        data["rows"][0].update(times=[1, 2], compile_seconds=3, stamp="9")
        assert other.import_(StringIO(json.dumps(data))) == 1
        assert other.rows()[0].times == (1.0, 2.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", r"the text is no JSON\n  why: Expecting value.*\n  cure: pass what `tilewright db e"),
        ("[" * 100_000, "the text is no JSON"),
        ("[]", "the file has no rows"),
        ('{"schema": 1, "rows": 1}', "the file has no rows"),
        ('{"schema": 2, "rows": []}', "another version\n  why: its schema is 2, and this .* 1"),
        ('{"schema": 1, "rows": [1]}', r"1 is no row\n  where: row 1"),
        ('{"schema": 1, "rows": [{"x": 1}]}', "is no row\n.*\n  why: rows have the fields kernel"),
        ('{"schema": 1, "rows": [{"kernel": "k"}]}', "lacks fields\n.*\n  why: missing 7 required"),
    ],
)
def test_what_is_no_export(path: Path, text: str, said: str) -> None:
    with Database(path) as database, pytest.raises(DatabaseError, match=said):
        database.import_(StringIO(text))


def test_one_wrong_row_imports_none(path: Path) -> None:
    good = row("A()").as_json()
    text = json.dumps({"schema": 1, "rows": [good, {**good, "threads": "two"}]})
    with Database(path) as database:
        with pytest.raises(DatabaseError, match=r"threads is 'two'\n  where: row 2"):
            database.import_(StringIO(text))
        assert database.rows() == []


def test_the_form_t4(path: Path) -> None:
    config = "ContractionConfig(instruction='fma', lanes='n', tile={'m': 4}, order=('n', 'm'))"
    store(path, row(config, times=(1e-3, 2e-3)), row("Gone()", None, why="it hung"))
    text = StringIO()
    with Database(path) as database:
        assert database.export(text, "t4") == 2
        with pytest.raises(DatabaseError, match=r"no format 't5'\n  cure: .* json, t4"):
            database.export(StringIO(), "t5")
    data = json.loads(text.getvalue())
    assert data["schema_version"] == "1.0.0"
    first, second = data["results"]
    for result in (first, second):
        # What the schema requires.
        assert {"configuration", "times", "invalidity", "correctness"} <= set(result)
    assert first["configuration"]["tile.m"] == 4 and first["configuration"]["order"] == ["n", "m"]
    assert first["times"]["runtimes"] == [1.0, 2.0] and first["correctness"] == 1.0
    assert {"name": "time", "value": 1.5, "unit": "ms"} in first["measurements"]
    assert second["configuration"] == {"config": "Gone()"} and second["invalidity"] == "timeout"
    assert {"name": "why", "value": "it hung", "unit": ""} in second["measurements"]


def test_configs_of_groups_in_t4() -> None:
    text = "GroupsConfig(groups=(PlainConfig(vector=4), ElementwiseConfig(vector=8)))"
    choices = t4(row(text))["configuration"]
    assert (choices["groups.0.vector"], choices["groups.1.vector"]) == (4, 8)


def test_merge(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    store(path, row("A()", 1.0, stamp="1"), row("B()", 2.0, stamp="2"))
    store(other, row("A()", 3.0, stamp="2"), row("B()", 4.0, stamp="1"), row("C()", 5.0))
    with Database(path) as database:
        merged = database.merge(other)
        assert (merged.added, merged.damaged) == (2, 0)
        assert [stored.times for stored in database.rows()] == [(3.0,), (2.0,), (5.0,)]
        assert database.merge(other).added == 0


def test_prune(path: Path) -> None:
    store(
        path,
        *(row(f"A({number})", 1.0 + number, stamp=f"{number}") for number in range(5)),
        *(row("B()", None, stamp="5"), row("C()", 9.0, generator="old", stamp="6")),
        row("D()", 9.0, kernel="l", stamp="7"),
    )
    with Database(path) as database:
        assert database.prune() == 0
        assert database.prune(before="1") == 1
        assert database.prune(generators_but="k") == 1
        assert database.prune(keep=2) == 3
        assert [stored.config for stored in database.rows()] == ["A(1)", "A(2)", "D()"]
        database.add(row("B()", None))
        assert database.prune(failed=True) == 1
        assert len(database.rows()) == 3


# Files that are wrong.


def test_the_nearest_sizes(path: Path) -> None:
    sizes = {"a": (8, 8), "b": (64, 64), "c": (8, 9), "d": (8, 8, 8)}
    rows = [
        row(f"C({seconds})", seconds, kernel=kernel, form="f", sizes=at)
        for kernel, at in sizes.items()
        for seconds in (2.0, 1.0, 3.0)
    ]
    store(path, *rows, row("D()", 0.1, kernel="e", form="g", sizes=(8, 8)))
    with Database(path) as database:
        near = database.nearest("f", (8, 8), "x86")
        assert [(neighbour.kernel, neighbour.seconds) for neighbour in near] == [
            ("a", 1.0),
            ("c", 1.0),
            ("b", 1.0),
        ]
        assert [
            neighbour.kernel for neighbour in database.nearest("f", (50, 70), "x86", count=1)
        ] == ["b"]
        assert database.nearest("f", (8, 8), "spirv") == []


def make(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def newer(path: Path) -> None:
    store(path, row())
    make(path, "PRAGMA user_version = 2")


WRONG: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_text("some text, and more of it" * 100), "SQLITE_NOTADB"),
    (lambda path: make(path, "CREATE TABLE t (x)"), "is no database of tuning.*of another program"),
    (lambda path: make(path, "PRAGMA application_id = 7"), "no database of tuning"),
    (newer, "a database of version 2.*reads and writes version 1.*`tilewright db export` it"),
    (lambda path: path.mkdir(), "is no file"),
    (lambda path: os.mkfifo(path), "is no file"),
    (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
]


@pytest.mark.parametrize(("spoil", "said"), WRONG, ids=[said[:20] for _, said in WRONG])
@pytest.mark.parametrize("readonly", [False, True])
def test_what_is_no_database(
    path: Path, spoil: Callable[[Path], object], said: str, readonly: bool
) -> None:
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(DatabaseError, match=f"(?s)tuned.db.*{said}"):
        Database(path, readonly)
    assert (path.read_bytes() if path.is_file() else b"") == before, "it was changed"


def test_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"cannot open .*\n.*\n  why: No such file"):
        Database(path, readonly=True)
    assert not path.exists()
    with pytest.raises(DatabaseError, match="name a file in a folder that is there"):
        Database(path / "x.db")
    path.touch()
    with pytest.raises(DatabaseError, match="it has nothing in it"):
        Database(path, readonly=True)
    store(path, row())


def test_a_file_that_others_may_write(path: Path) -> None:
    store(path, row())
    path.chmod(0o666)
    with pytest.raises(DatabaseError, match=r"is not yours\n[^$]*others may write[^$]*db merge MI"):
        Database(path)
    with Database(path, readonly=True) as database:
        assert len(database.rows()) == 1


def test_only_for_reading(path: Path) -> None:
    store(path, row("A()"))
    with Database(path, readonly=True) as database:
        with pytest.raises(DatabaseError, match=r"SQLITE_READONLY\)\n  cure: make the file and"):
            database.add(row("B()"))
        assert len(database.rows()) == 1


def test_a_file_only_for_reading(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody searches first, and then cannot store what was found."""
    store(path, row("A()"))
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(DatabaseError, match=r"cannot be written\n[^$]*cure: make the file and its"):
        Database(path)


def test_a_folder_only_for_reading(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(path, row("A()"))
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with Database(path, readonly=True) as database:
        assert len(database.rows()) == 1
    assert sorted(path.parent.iterdir()) == [path]


def damage(path: Path, text: bytes) -> None:
    """Changes the last place in which ``text`` stands."""
    data = path.read_bytes()
    assert text in data
    start = data.rindex(text)
    path.write_bytes(data[:start] + b"#" * len(text) + data[start + len(text) :])


def test_damaged_rows_are_left_out(path: Path, tmp_path: Path) -> None:
    store(path, row("A()", 1.0), row("B()", 2.0))
    with closing(sqlite3.connect(path)) as connection:
        (seal,) = connection.execute("SELECT seal FROM trials WHERE number = 1").fetchone()
    damage(path, seal.encode())
    with Database(path) as database:
        assert [stored.config for stored in database.rows()] == ["B()"]
        best = database.best("k", "x86", 1)
        assert best is not None and best.config == "B()"
        with Database(tmp_path / "other.db") as other:
            merged = other.merge(path)
            assert (merged.added, merged.damaged) == (1, 1)
        assert database.prune() == 1


def test_a_row_whose_columns_say_something_else(path: Path) -> None:
    store(path, row("A()", 1.0), row("B()", 2.0))
    make(path, "UPDATE trials SET kernel = 'other', seconds = 0 WHERE number = 1")
    with Database(path) as database:
        assert database.best("other", "x86", 1) is None
        best = database.best("k", "x86", 1)
        assert best is not None and best.config == "B()"


def test_what_can_be_read_of_a_damaged_file(path: Path, tmp_path: Path) -> None:
    texts = [bytes(range(256)).hex() * 20 + str(number) * 2000 for number in range(100)]
    rows = [
        row(f"A({n})", 1.0, conditions={"noise": os.urandom(900).hex()}, schedule=text)
        for n, text in enumerate(texts)
    ]
    store(path, *rows)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 8192] = bytes(8192)
    path.write_bytes(data)
    with pytest.raises(DatabaseError, match=r"tuned.db is damaged\n[^$]*`tilewright db merge NEW"):
        Database(path)
    with Database(tmp_path / "new.db") as new:
        merged = new.merge(path)
        assert merged.damaged > 0 and 50 < merged.added < 100
        stored = {stored_row.config: stored_row for stored_row in rows}
        assert all(stored_row == stored[stored_row.config] for stored_row in new.rows())


def test_the_end_of_a_file_is_damaged(path: Path, tmp_path: Path) -> None:
    store(path, *(row(f"A({n})", conditions={"noise": os.urandom(900).hex()}) for n in range(60)))
    with closing(sqlite3.connect(path)) as connection:
        (data,) = connection.execute("SELECT data FROM trials WHERE number = 60").fetchone()
    whole = path.read_bytes()
    page = whole.index(data[-400:]) // 4096 * 4096
    path.write_bytes(whole[:page] + bytes(4096) + whole[page + 4096 :])
    with Database(tmp_path / "new.db") as new:
        merged = new.merge(path)
        assert 0 < merged.damaged < 10 and merged.added + merged.damaged == 60


def test_nothing_can_be_read_of_it(path: Path, tmp_path: Path) -> None:
    store(path, *(row(f"A({number})") for number in range(200)))
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    with (
        Database(tmp_path / "new.db") as new,
        pytest.raises(DatabaseError, match=r"no row of .* can"),
    ):
        new.merge(path)


# Disks.


def test_a_full_disk(path: Path) -> None:
    stored = 0
    with Database(path) as database:
        database._connection.execute("PRAGMA max_page_count = 40")
        with pytest.raises(DatabaseError, match=r"disk is full \(SQLITE_FULL\)\n  cure: make room"):
            for number in range(1000):
                database.add(row(f"A({number})", schedule=os.urandom(2000).hex()))
                stored += 1
        assert stored > 5
        assert len(database.rows()) == stored
        database._connection.execute("PRAGMA max_page_count = 4000")
        database.add(row("B()"))
    with Database(path) as database:
        assert len(database.rows()) == stored + 1


def test_a_quota(path: Path) -> None:
    """A write that the system refuses: what was stored stays, and the file stays whole."""
    program = """
import os, sys
from tilewright.errors import DatabaseError
from tilewright.tune.database import Database
from tuned_rows import row
stored = 0
try:
    database = Database(sys.argv[1])
except DatabaseError as error:
    print("none:", error)
    sys.exit()
with database:
    try:
        for number in range(1000):
            database.add(row(f"A({number})", schedule=os.urandom(2000).hex()))
            stored += 1
    except DatabaseError as error:
        print(stored, error.why)
"""

    def run(limit: int, place: Path) -> str:
        return subprocess.run(
            [sys.executable, "-c", program, str(place)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        ).stdout

    said = run(10_000, path.with_name("no_room.db"))
    assert said.startswith("none: SQLite cannot use") and "SQLITE_" in said
    stored, why = run(200_000, path).split(maxsplit=1)
    assert "SQLITE_" in why and int(stored) > 5
    with Database(path) as database:
        assert len(database.rows()) == int(stored)


MOUNTS = r"""
22 1 8:1 / / rw - ext4 /dev/sda1 rw
31 22 0:27 / /home rw shared:1 - nfs4 server:/home rw
32 31 8:2 / /home/local rw - ext4 /dev/sdb1 rw
33 22 0:28 / /a\040b rw - fuse.sshfs host: rw
34 22 8:3 / /over rw - nfs server:/over rw
35 22 8:4 / /over rw - ext4 /dev/sdc1 rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *[("/x.db", ""), ("/home/me/x.db", "nfs4"), ("/home/local/x.db", "")],
        *[("/a b/x.db", "fuse.sshfs"), ("/homes/x.db", ""), ("/over/x.db", "")],
    ],
)
def test_file_systems_of_networks(path: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_file, "_mounts", lambda: MOUNTS.strip())
    assert network_file_system(Path(path)) == kind


def test_on_a_network(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mode() -> str:
        connection = sqlite3.connect(path)
        (result,) = connection.execute("PRAGMA journal_mode").fetchone()
        connection.close()
        return str(result)

    store(path, row("A()"))
    assert mode() == "wal"
    monkeypatch.setattr(database_file, "network_file_system", lambda _: "nfs4")
    with pytest.warns(TuningWarning, match=r"lies on nfs4, where SQLite has no WAL: .*`tilewright"):
        store(path, row("B()"))
    assert mode() == "delete"
    with Database(path, readonly=True) as database:
        assert len(database.rows()) == 2


def test_what_a_writer_did_not_finish_without_wal(path: Path) -> None:
    """A reader cannot undo it, and says who can."""
    store(path, *(row(f"A({n})", conditions={"noise": os.urandom(900).hex()}) for n in range(60)))
    left = path.with_name("left.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        for statement in ("journal_mode = delete", "cache_size = 1"):
            writer.execute(f"PRAGMA {statement}")
        writer.execute("BEGIN")
        writer.execute("UPDATE trials SET data = randomblob(2000)")
        for end in ("", "-journal"):
            shutil.copy(f"{path}{end}", f"{left}{end}")
        writer.execute("ROLLBACK")
    with pytest.raises(DatabaseError, match=r"READONLY_ROLLBACK\)\n  cure: let a writer undo"):
        Database(left, readonly=True)
    with Database(left) as database:
        assert len(database.rows()) == 60


# Processes.


def write(path: Path, name: str) -> None:
    with Database(path) as database:
        for number in range(25):
            database.add(row(f"A({number})", kernel=name))
        assert len(database.rows(kernel=name)) == 25


def test_many_writers_at_a_time(path: Path) -> None:
    """They even make the file at the same time."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=write, args=(path, name)) for name in "abcdef"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 6
    with Database(path) as database:
        assert len({(row.kernel, row.config) for row in database.rows()}) == 150


def test_writers_that_wait_too_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(path, row("A()"))
    monkeypatch.setattr(database_file, "BUSY_SECONDS", 0.01)
    with Database(path) as database:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match=r"SQLITE_BUSY\)\n  cure: end the process that hol"):
            database.add(row("B()"))
        other.execute("ROLLBACK")
        other.close()
        database.add(row("B()"))
        assert len(database.rows()) == 2


def test_writers_that_are_killed(tmp_path: Path) -> None:
    assert kill_database.run(tmp_path, 12, 3) > 0
