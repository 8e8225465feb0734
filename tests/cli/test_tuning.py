"""`tilewright tune`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Command
from tilewright.tune.database import Database

OP = ("matmul", "--threads", "1", "16x32:32x48")
SCALE = """
kernel scale(n: s64 in 1..64, in x: f32[n, 8], out y: f32[n, 8]):
  compute scale(i in n, j in 8):
    y[i, j] = 2.0 * x[i, j]
"""


def test_what_was_tried_is_said_and_kept(tilewright: Command, tmp_path: Path) -> None:
    file, figures = str(tmp_path / "a.db"), tmp_path / "a.json"
    budget = ("--budget", "2 trials", "--jobs", "1", "--db", file)
    done = tilewright("tune", *OP, *budget, "--json", str(figures))
    assert (done.code, done.err) == (0, "")
    (line,) = done.lines
    assert "2 tried  matmul --dt=f32 16x32:32x48" in line
    (kernel,) = json.loads(figures.read_text())["kernels"]
    assert kernel["tried"] == kernel["added"] == 2
    assert kernel["gain"] >= 1
    with Database(file) as database:
        assert len(database.rows()) == 2
    best = tilewright("db", "best", file)
    assert "matmul --dt=f32 16x32:32x48" in best.out
    again = tilewright("tune", *OP, *budget)
    assert "2 tried" in again.out
    with Database(file) as database:
        assert len(database.rows()) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--budget", "0m"), "the budget is 0m"),
        (("--budget", "soon"), "'soon' is no budget"),
        (("--jobs", "0"), "jobs is 0"),
        (("--strategy", "luck"), "there is no strategy 'luck'"),
        (("--target", "nvidia:sm_90a"), "kernels for nvidia:sm_90a cannot be timed"),
        (("--target", "interpreter"), "kernels for interpreter cannot be timed"),
        (("--config", "Nothing()"), "tune takes no --config"),
        (("--db", "/nowhere/a.db"), "cannot open /nowhere/a.db"),
    ],
)
def test_what_is_refused(
    tilewright: Command, arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = tilewright("tune", *OP, "--db", str(tmp_path / "a.db"), *arguments)
    assert done.code == 2
    assert said in done.err
    assert "cure: " in done.err
    assert done.out == ""


def test_a_file_is_needed(tilewright: Command) -> None:
    done = tilewright("tune", *OP)
    assert (done.code, done.out) == (2, "")
    assert "there is no database to keep times in" in done.err


def test_files_that_are_no_database(tilewright: Command, tmp_path: Path) -> None:
    other = tmp_path / "a.txt"
    other.write_text("not a database, by any means\n" * 100)
    done = tilewright("tune", *OP, "--db", str(other))
    assert done.code == 2
    assert "SQLite cannot use" in done.err
    assert other.read_text().startswith("not a database")


def test_sizes_of_kernels_have_to_be_set(tilewright: Command, tmp_path: Path) -> None:
    path = tmp_path / "scale.tw"
    path.write_text(SCALE)
    database = ("--db", str(tmp_path / "a.db"))
    done = tilewright("tune", "kernel", *database, str(path))
    assert done.code == 2
    assert "n is not set" in done.err
    options = ("--set", "n=16", "--threads", "1", "--budget", "1 trial", "--jobs", "1")
    done = tilewright("tune", "kernel", *options, *database, str(path))
    assert (done.code, done.err) == (0, "")
    assert "the default" in done.out
