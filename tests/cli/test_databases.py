"""`tilewright db`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import tilewright as tw
from commands import Command
from tilewright.engine.generator import generator_version
from tilewright.tune.database import Database, Row
from tuned_rows import row, row_of


def make(path: Path, *rows: Row) -> str:
    with Database(path) as database:
        database.add_all(rows)
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return make(
        tmp_path / "tuned.db",
        row("PlainConfig(vector=8)", 1.5e-6, title="conv ic64", stamp="2026-01-02T03:04"),
        row("PlainConfig()", 2.5e-6, title="conv ic64", stamp="2026-01-03T03:04"),
        row("PlainConfig()", None, kernel="l", title="matmul 3x4", why="it hung\nfor a second"),
        row(
            "PlainConfig(vector=4)",
            3e-3,
            kernel="m",
            title="softmax",
            target="spirv",
            generator=generator_version(),
        ),
    )


def test_show(tilewright: Command, file: str, tmp_path: Path) -> None:
    done = tilewright("db", "show", file)
    assert (done.code, done.err) == (0, "")
    assert done.lines == [
        "row  kernel      target  threads  outcome  time    config, or why",
        "1    conv ic64   x86     1        correct  1.5 us  PlainConfig(vector=8)",
        "2    conv ic64   x86     1        correct  2.5 us  PlainConfig()",
        "3    matmul 3x4  x86     1        timeout          it hung for a second",
        "4    softmax     spirv   1        correct  3 ms    PlainConfig(vector=4)",
        "4 of 4 rows; in the file: 3 correct, 1 timeout",
    ]
    rows = str(tmp_path / "rows.json")
    done = tilewright("db", "show", file, "--kernel", "conv", "--newest", "1", "--json", rows)
    assert [line[0] for line in done.lines] == ["r", "2", "1"]
    assert [row["times"] for row in json.loads(Path(rows).read_text())["rows"]] == [
        [1.5e-6],
        [2.5e-6],
    ]
    assert len(tilewright("db", "show", file, "--newest", "0", "--target", "x86").lines) == 5
    done = tilewright("db", "show", file, "--outcome", "compile")
    assert (done.code, done.lines) == (1, ["0 of 0 rows; in the file: 3 correct, 1 timeout"])


def test_best(tilewright: Command, file: str) -> None:
    done = tilewright("db", "best", file)
    assert done.code == 0
    assert done.lines[1].split()[:8] == ["1", "conv", "ic64", "x86", "1", "1.5", "us", "no"]
    assert done.lines[1].endswith("2026-01-02  PlainConfig(vector=8)")
    assert done.lines[2].split()[:7] == ["4", "softmax", "spirv", "1", "3", "ms", "yes"]
    assert done.lines[3] == "2 kernels"
    done = tilewright("db", "best", file, "--target", "nvidia:sm_80")
    assert (done.code, done.lines) == (1, ["0 kernels"])


def test_export_and_import(tilewright: Command, file: str, tmp_path: Path) -> None:
    out, other = str(tmp_path / "rows.json"), str(tmp_path / "other.db")
    assert tilewright("db", "export", file, "-o", out).lines == [f"4 rows written to {out}"]
    assert tilewright("db", "export", file).out == Path(out).read_text()
    assert tilewright("db", "import", other, out).lines == [f"{out}: 4 rows added"]
    assert tilewright("db", "import", other, out).lines == [f"{out}: 0 rows added"]
    assert tilewright("db", "export", other).out == Path(out).read_text()
    t4 = json.loads(tilewright("db", "export", file, "--format", "t4", "--kernel", "conv").out)
    assert [result["times"]["runtimes"] for result in t4["results"]] == [[1.5e-3], [2.5e-3]]
    done = tilewright("db", "export", file, "--format", "xml")
    assert done.code == 2 and "there is no format 'xml'" in done.err
    done = tilewright("db", "import", other, file)
    assert done.code == 2 and f"cannot read {file}" in done.err
    Path(out).write_text("{}")
    done = tilewright("db", "import", other, out)
    assert done.code == 2 and "the file has no rows" in done.err


def test_merge(tilewright: Command, file: str, tmp_path: Path) -> None:
    new = str(tmp_path / "new.db")
    assert tilewright("db", "merge", new, file).lines == [f"{file}: 4 rows added"]
    with Database(file) as database:
        database._connection.execute("UPDATE trials SET data = x'00', stamp = 'z' WHERE number = 2")
    done = tilewright("db", "merge", new, file, new)
    assert done.code == 1
    assert done.lines == [f"{file}: 0 rows added, 1 cannot be read", f"{new}: 0 rows added"]
    assert tilewright("db", "prune", file).lines == ["1 rows removed"]


def test_prune(tilewright: Command, file: str) -> None:
    with Database(file) as database:
        database.add(row("D()", stamp=(datetime.now(UTC) - timedelta(hours=30)).isoformat()))
    assert tilewright("db", "prune", file, "--older-than", "8w").lines == ["2 rows removed"]
    assert tilewright("db", "prune", file, "--older-than", "2d").lines == ["0 rows removed"]
    assert tilewright("db", "prune", file, "--older-than", "29h").lines == ["1 rows removed"]
    assert tilewright("db", "prune", file, "--failed").lines == ["1 rows removed"]
    assert tilewright("db", "prune", file, "--other-generators").lines == ["0 rows removed"]
    assert tilewright("db", "prune", file, "--keep", "0").lines == ["1 rows removed"]
    for wrong in ("3x", "d", "-1d", "٣d", "1000000d"):
        done = tilewright("db", "prune", file, f"--older-than={wrong}")
        assert done.code == 2 and "is no length of time\n  where: --older-than" in done.err


def test_what_other_commands_say(
    tilewright: Command, file: str, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    problem = "8x16:16x32"
    kernel = tw.compile(tw.matmul(problem), threads=1, database="")
    with Database(file) as database:
        database.add(row_of(kernel, kernel.config, 1e-6))
    shown = ("show", "matmul", "--threads", "1", "--stage", "config", problem)
    assert "# chosen by: the recipes" in tilewright(*shown).lines
    monkeypatch.setenv("TILEWRIGHT_DB", file)
    assert f"# chosen by: row 5 of the database {file}: 1 us a call (thr" in tilewright(*shown).out
    assert f"\ndatabase       {file}\n" in tilewright("doctor").out


def test_what_is_no_database(tilewright: Command, tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("some text")
    for command in ("show", "best", "export", "prune"):
        done = tilewright("db", command, str(path))
        assert done.code == 2 and "SQLITE_NOTADB" in done.err
    assert path.read_text() == "some text"
    done = tilewright("db", "show", str(tmp_path / "none.db"))
    assert done.code == 2 and "No such file or directory" in done.err


def test_help(tilewright: Command) -> None:
    said = tilewright("db", "--help")
    assert said.code == 0 and "Exit codes: 0 fine, 1 there is no such row" in said.out
    for command in ("show", "best", "export", "import", "merge", "prune"):
        assert f"\n  {command} " in said.out
        assert f"tilewright db {command} tuned.db" in tilewright("db", command, "-h").out
