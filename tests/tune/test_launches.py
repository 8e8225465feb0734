"""Launches of kernels in Python as subjects of a search."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import (
    ArgumentError,
    KernelError,
    ScheduleError,
    TuningError,
    UnsupportedError,
)
from tilewright.lang.launch import Launch
from tilewright.lang.ranges import Grid
from tilewright.lang.tuned import LaunchConfig
from tilewright.tune import launch_subject as module
from tilewright.tune.database import Database
from tilewright.tune.launch_subject import Launched, LaunchSubject, launch_subject
from tilewright.tune.launches import LaunchPoints

TERMS = tw.tunable("TERMS", (4, 2, 3, 8))


@tw.kernel(local=tw.tunable("LOCAL", (16, 32)))
def partial(scale: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    """Each work-item takes TERMS elements; a range that 3 does not divide leaves some out."""
    first = tw.global_id(0) * TERMS
    for k in tw.static_range(TERMS):
        y[first + k] = x[first + k] * scale


FEW = tw.tunable("FEW", (2, 3, 4))


@tw.kernel(local=16)
def skipping(scale: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    """Of three elements it forgets the last."""
    first = tw.global_id(0) * FEW
    for k in tw.static_range(FEW):
        if FEW != 3 or k < 2:
            y[first + k] = x[first + k] * scale


@tw.kernel
def told(x: tw.array("s32", 1), least: tw.constant = tw.tunable("LEAST", (0, 3))):
    i = tw.global_id(0)
    assert i >= least, "too small"
    print("here", i)
    x[i] += i


def _subject(folder: Path, items: int = 512) -> LaunchSubject:
    x, y = np.arange(items, dtype=np.float32), np.zeros(items, np.float32)
    count = lambda chosen: items // chosen["TERMS"] // 32 * 32  # noqa: E731
    return launch_subject(Launched(partial, Launch(Grid(count), (2.0, x, y), threads=1)), folder)


def _config(**chosen: Any) -> LaunchConfig:
    return LaunchConfig(tunables={"LOCAL": 16, "TERMS": 4} | chosen)


@pytest.mark.parametrize("interpreted", [True, False])
def test_points_are_built_checked_and_called(
    interpreted: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By other processes, which have no function; against the interpreter, or the first guess."""
    if not interpreted:
        monkeypatch.setattr(module, "_MOST_INTERPRETED", 1)
    result = _subject(tmp_path)
    subject = pickle.loads(pickle.dumps(result))
    assert subject == result and hash(subject) == hash(result)
    assert subject.title == "partial by 128 work-items"
    assert subject.default() == _config()
    for point in (subject.default(), _config(LOCAL=32, TERMS=8)):
        built = subject.build(point)
        assert built.fault(0) is None
        assert built.schedule.startswith("# ")
        call = built.call(0)
        call()
        call()
    fault = subject.build(_config(TERMS=3)).fault(0)
    assert fault is not None and "y[480] is 0, expected 960" in fault


def test_arguments_stay_as_they_are(tmp_path: Path) -> None:
    x = np.zeros(8, np.int32)
    subject = launch_subject(Launched(told, Launch(Grid(8), (x,))), tmp_path)
    built = subject.build(subject.default())
    assert built.fault(0) is None
    assert not x.any()


def test_copies_lie_as_their_originals(tmp_path: Path) -> None:
    x = np.arange(2048, dtype=np.int32)[5:1000]
    subject = launch_subject(Launched(told, Launch(Grid(995), (x,))), tmp_path)
    for _ in range(3):
        passed = subject.build(subject.default())._passed()
        assert (passed["x"] == x).all()
        assert (passed["x"].ctypes.data - x.ctypes.data) % 4096 == 0


def test_messages_and_assertions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    subject = launch_subject(Launched(told, Launch(Grid(8), (np.zeros(8, np.int32),))), tmp_path)
    assert subject.build(subject.default()).fault(0) is None
    assert capsys.readouterr().out == ""
    with pytest.raises(KernelError, match="an assertion does not hold: too small"):
        subject.build(LaunchConfig(tunables={"LEAST": 3})).fault(0)


def test_points_that_are_no_launches(tmp_path: Path) -> None:
    """Only they are refused, with what the launch would say."""
    x, y = np.ones(48, np.float32), np.zeros(48, np.float32)
    subject = launch_subject(Launched(partial, Launch(Grid(16), (2.0, x, y), threads=1)), tmp_path)
    with pytest.raises(ScheduleError, match=r"the local size \(32,\) does not divide"):
        subject.build(_config(LOCAL=32))
    with pytest.raises(ScheduleError, match="not among the points"):
        subject.build(_config(LOCAL=64))


def test_what_cannot_be_tuned(tmp_path: Path) -> None:
    @tw.kernel
    def plain(x: tw.array("f32", 1)):
        x[tw.global_id(0)] = 1.0

    x = np.zeros(8, np.float32)
    with pytest.raises(ArgumentError, match="plain has nothing to tune"):
        launch_subject(Launched(plain, Launch(Grid(8), (x,))), tmp_path)
    with pytest.raises(ArgumentError, match="the local size"):  # of the first guess
        launch_subject(Launched(partial, Launch(Grid(8), (1.0, x, x))), tmp_path)


def test_a_space() -> None:
    points = LaunchPoints({"A": (2, 1), "B": ("x", "y", "z")})
    everything = list(points.points())
    assert points.count() == len(set(everything)) == 6
    first = everything[0]
    assert first == LaunchConfig(tunables={"A": 2, "B": "x"})
    near = set(points.neighbours(first))
    assert len(near) == 3
    rng = Random(3)
    assert {points.mutated(first, rng) for _ in range(60)} == near
    assert {points.drawn(rng) for _ in range(100)} == set(everything)
    assert points.by_prediction(rng, 6) == everything
    assert len(points.by_prediction(rng, 3)) <= 3
    mixed = {points.crossed(first, everything[-1], rng) for _ in range(60)}
    assert {repr(config.tunables) for config in mixed} == {
        "{'A': 2, 'B': 'x'}",
        "{'A': 1, 'B': 'z'}",
        "{'A': 2, 'B': 'z'}",
        "{'A': 1, 'B': 'x'}",
    }
    assert points.values(first) == {"A": 2, "B": "x"}
    assert points.predicted(first) is None


def test_autotune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong values cost themselves only; launches take the fastest from then on."""
    path = tmp_path / "tuned.db"
    x, y = np.arange(768, dtype=np.float32), np.zeros(768, np.float32)
    count = lambda chosen: 768 // chosen["FEW"]  # noqa: E731
    call = {"range": count, "arguments": (2.0, x, y), "threads": 1}
    tw.autotune(skipping, budget="8 trials", jobs=1, database=path, **call)
    assert not y.any()
    with Database(path) as database:
        rows = {row.config: row for row in database.rows()}
    assert {config: row.outcome for config, row in rows.items()} == {
        "LaunchConfig(tunables={'FEW': 2})": "correct",
        "LaunchConfig(tunables={'FEW': 3})": "correctness",
        "LaunchConfig(tunables={'FEW': 4})": "correct",
    }
    assert all(row.title == "skipping by 384 work-items" for row in rows.values())
    best = min((r for r in rows.values() if r.times), key=lambda row: row.seconds or 0.0)
    chosen = skipping.tuned(count, 2.0, x, y, threads=1)
    assert best.config == repr(LaunchConfig(tunables=chosen))
    assert "a search in this process: row" in skipping.explain(count, 2.0, x, y, threads=1)
    # Another process asks the database; as does this one, where it remembers nothing.
    code = "import sys, numpy as np; from test_launches import skipping; "
    code += "x, y = np.arange(768, dtype=np.float32), np.zeros(768, np.float32); "
    code += "count = lambda chosen: 768 // chosen['FEW']; "
    code += "print(skipping.explain(count, 2.0, x, y, threads=1, database=sys.argv[1])); "
    code += "skipping.launch(count, 2.0, x, y, threads=1, database=sys.argv[1]); "
    code += "assert (y == 2 * x).all()"
    said = subprocess.run(
        [sys.executable, "-c", code, path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"chosen by: row {best.number} of the database {path}" in said
    skipping.launches = type(skipping.launches)(skipping)
    assert "the first of those" in skipping.explain(count, 2.0, x, y, threads=1)
    monkeypatch.setenv("TILEWRIGHT_DB", str(path))
    said = skipping.explain(count, 2.0, x, y, threads=1)
    assert f"chosen by: row {best.number} of the database {path}" in said
    skipping.launch(count, 2.0, x, y, threads=1)
    assert (y == 2 * x).all()


def test_what_autotune_is_told() -> None:
    x = np.ones(48, np.float32)
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (tw.matmul("2x3:3x4"), {"range": 8}, "a range and arguments are given for a Matmul"),
        (partial, {"arguments": (x,)}, r"no range is given[^$]*arguments=\(scale, x, y,\)"),
        (partial, {"range": 8, "arguments": x}, "arguments=a ndarray is given"),
        (partial, {"range": 8, "arguments": (x,)}, "1 arguments are given for 3 parameters"),
    ]
    for what, options, said in refused:
        with pytest.raises(ArgumentError, match=said):
            tw.autotune(what, **options)
    with pytest.raises(UnsupportedError, match="kernels for interpreter cannot be timed"):
        tw.autotune(partial, "interpreter", range=16, arguments=(1.0, x, x))
    with pytest.raises(TuningError, match=r"default of told[^$]*out of bounds"):
        tw.autotune(told, range=9, arguments=(np.zeros(8, np.int32),), budget="2 trials", jobs=1)
