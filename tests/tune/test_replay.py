"""Winners that are measured again: which still hold, and what is skipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from commands import Command
from planted import Plant, Planted
from tilewright.cli.replaying import subject_of
from tilewright.errors import ProblemError
from tilewright.measure.verdict import Timing
from tilewright.tune.campaign import local
from tilewright.tune.database import Database, Row
from tilewright.tune.kernels import KernelSubject
from tilewright.tune.replay import (
    DEFAULT,
    FAILED,
    HOLDS,
    OURS,
    SAME,
    SKIPPED,
    SLOWER,
    TIE,
    Replayed,
    replay,
    verdict,
)
from tilewright.tune.subjects import subjects_of
from tilewright.tune.trials import Trials
from tuned_rows import row

FAST, USUAL = Plant("run", 1.0), Plant("run", 8.0)
PLANTED = Planted((USUAL, FAST, Plant("wrong"), Plant("crash"), Plant("refuse")))
SCALE = """
kernel scale(n: s64 in 1..64, in x: f32[n, 8], out y: f32[n, 8]):
  compute scale(i in n, j in 8):
    y[i, j] = 2.0 * x[i, j]
"""


def trials(config: Any, **values: Any) -> Trials:
    """What a search stores that found ``config`` to be twice as fast as the default."""
    asked = {**asdict(PLANTED.asked), "schedule": "# a schedule"}
    beside = {"beside": repr(USUAL)} if config != USUAL else {}
    default = row(repr(USUAL), 8e-3, **asked)
    best = row(str(config), 4e-3, **{**asked, "conditions": beside, **values})
    return Trials((default, best))


Again = Callable[..., Replayed]


def replayed(executor: Executor, config: Any, **values: Any) -> Replayed:
    result = replay(trials(config, **values), lambda row: PLANTED, 0.05, executor)
    assert result is not None
    return result


@pytest.fixture(scope="module")
def again() -> Iterator[Again]:
    """Replays a config in a process of its own."""
    with local(1) as (executor, _):
        yield partial(replayed, executor)


def test_winners_are_measured_beside_the_default(again: Again) -> None:
    result = again(FAST)
    assert result.verdict == HOLDS
    assert result.stored == pytest.approx(2.0)
    gain = result.gain()
    assert gain is not None and gain > 3
    assert list(result.times) == [OURS, DEFAULT]
    said = result.as_json()
    assert said["gain"] == gain and said["times"][OURS]["rounds"] > 1
    json.dumps(said)
    usual = again(USUAL)
    assert (usual.verdict, usual.gain()) == (SAME, 1.0)
    assert list(usual.times) == [DEFAULT]


@pytest.mark.parametrize(
    ("config", "values", "result", "said"),
    [
        (Plant("wrong"), {}, FAILED, "y[0] is 1, expected 2"),
        (Plant("crash"), {}, FAILED, "its process ended: signal 6"),
        (Plant("refuse"), {}, SKIPPED, "its schedule no longer replays: no such tile"),
        (FAST, {"schedule": "# another one"}, SKIPPED, "gives another schedule than the one"),
        (FAST, {"generator": "older"}, SKIPPED, "it is of another generator: older"),
        (FAST, {"features": "sse2"}, SKIPPED, "measured on sse2, and this is features"),
        (FAST, {"kernel": "other"}, SKIPPED, "its kernel is another one now"),
        ("Gone(1)", {}, SKIPPED, "its config no longer parses"),
    ],
)
def test_what_no_longer_fits(
    again: Again, config: Any, values: dict[str, str], result: str, said: str
) -> None:
    done = again(config, **values)
    assert done.verdict == result
    assert said in done.why
    assert done.times == {} and done.gain() is None


def test_what_hangs_fails() -> None:
    with local(1, limit=1.0) as (executor, _):
        done = replayed(executor, Plant("hang"))
    assert (done.verdict, done.why) == (FAILED, "it took longer than 1 s")


def test_verdicts_know_how_far_times_may_be_off() -> None:
    def timing(median: float, error: float = 0.02) -> Timing:
        return Timing(median, median, 0.0, error, 9)

    for ours, said in ((0.5, HOLDS), (0.95, HOLDS), (0.98, TIE), (1.02, TIE), (1.1, SLOWER)):
        assert verdict({OURS: timing(ours), DEFAULT: timing(1.0)}) == said
    assert verdict({OURS: timing(0.5, 0.6), DEFAULT: timing(1.0, 0.6)}) == TIE
    assert verdict({DEFAULT: timing(1.0)}) == SAME


def test_rows_without_anything_correct_are_no_winners() -> None:
    lost = Trials((row("Lost()", None),))
    with local(1) as (executor, _):
        assert replay(lost, lambda row: PLANTED, 0.05, executor) is None


def row_for(subject: KernelSubject) -> Row:
    values = {**asdict(subject.asked), "title": subject.title, "problem": subject.problem}
    return row("PlainConfig()", 1e-3, **values)


def test_rows_say_what_they_are_of() -> None:
    words = "matmul --dt=f32 16x32:32x48"
    (wanted,) = subjects_of(tw.matmul("16x32:32x48"), threads=1, words=words)
    scale = KernelSubject(tw.parse_kernel(SCALE), "x86", 1, ("x",), {"n": 16})
    assert scale.problem.startswith("# --set=n=16 --constant=x\nkernel scale(")
    for subject in (wanted.subject, scale):
        assert isinstance(subject, KernelSubject)
        same = subject_of(row_for(subject))
        assert same == subject
        assert same.title == subject.title


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("", "its row does not say what was tuned"),
        ("matmul --speed=9 4x4:4x4", "an unknown option --speed"),
        ("matmul --dt=f32,bf16 4x4:4x4", "its words name several kernels"),
        ("dance 4x4", "unknown driver 'dance'"),
        ("kernel /nowhere/a.tw", "cannot read the kernel file /nowhere/a.tw"),
    ],
)
def test_rows_that_say_nothing(problem: str, said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        subject_of(row("PlainConfig()", problem=problem))
    assert said in str(caught.value)


def test_the_command_replays(tilewright: Command, tmp_path: Path) -> None:
    file, figures = tmp_path / "a.db", tmp_path / "a.json"
    options = ("--threads", "1", "--budget", "1 trial", "--jobs", "1", "--db", str(file))
    assert tilewright("tune", "matmul", *options, "16x32:32x48").code == 0
    with Database(file) as database:
        (first, *_) = database.rows()
        database.add(replace(first, generator="older"))
    done = tilewright("tune", "--replay", str(file), "--budget", "2s", "--json", str(figures))
    assert done.code == 0
    assert done.err == (
        "SKIPPED (it is of another generator: older) row 2: matmul --dt=f32 16x32:32x48\n"
    )
    assert "1 the default, 1 skipped" in done.out
    assert "beside the default: 1.000x now, 1.000x then" in done.out
    rows = json.loads(figures.read_text())["rows"]
    assert [row["verdict"] for row in rows] == [SAME, SKIPPED]
    assert rows[0]["times"][DEFAULT]["median"] > 0
    # PyTorch is optional.
    assert rows[0]["peers"] or "PyTorch" in rows[0]["no_peer"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--replay", "{}/none.db"), "none.db"),
        (("--replay", "{}/empty.db"), "has no winner to measure again"),
        (("--replay", "{}/a.txt"), "SQLite cannot use"),
        (("--replay", "{}/empty.db", "--db", "b.db"), "a replay takes no --db"),
        (("--replay", "{}/empty.db", "--report", "b.html"), "a replay takes no --report"),
        (("--replay", "{}/empty.db", "--set", "resnet_50"), "a replay takes no --set"),
        (("--replay", "{}/empty.db", "--budget", "3 trials"), "a replay has no trials"),
        (("conv", "--replay", "{}/empty.db"), "a replay takes no driver"),
    ],
)
def test_what_is_refused(
    tilewright: Command, arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    with Database(tmp_path / "empty.db"):
        pass
    (tmp_path / "a.txt").write_text("not a database, by any means\n" * 100)
    done = tilewright("tune", *(word.format(tmp_path) for word in arguments))
    assert (done.code, done.out) == (2, "")
    assert said in done.err and "cure: " in done.err
