"""Traces of queues: what ran when, on which thread, and what waited for what."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from queue_kernels import step
from tilewright.errors import ArgumentError, QueueError
from tilewright.queues import State

N = 64


def events_of(path: Path, kind: str) -> list[dict[str, Any]]:
    events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event["ph"] == kind]


def test_what_ran_and_what_it_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with tw.Queue("x86") as queue:
        x = queue.buffer(np.zeros(N, np.int32))
        with queue.trace(path):
            first = queue.host_task(lambda values: values.fill(1), x)
            queue.submit(step, (N,), N, x)
            with queue.fusion() as fusion:
                queue.submit(step, (N,), N, x)
                queue.submit(step, (N,), N, x)
        assert fusion.report.fused and first.state is State.DONE
    ran = events_of(path, "X")
    names = [event["name"] for event in ran]
    assert names == ["host task <lambda>", "step", "the fusion of step, step"]
    for before, after in itertools.pairwise(ran):
        assert before["ts"] + before["dur"] < after["ts"] + 1e-3
        assert before["args"]["place"].startswith(f"{__file__}:")
    threads = {event["tid"]: event["args"]["name"] for event in events_of(path, "M")}
    assert threads[0] == "x86"
    assert all(threads[event["tid"]].startswith("tilewright-queues-") for event in ran)
    for start, end in arrows(path):
        # Arrows lead from the end of a command to the beginning of one that waited for it.
        assert any(0 <= e["ts"] + e["dur"] - start["ts"] < 0.002 for e in ran)
        assert end["ts"] in [event["ts"] for event in ran]


def arrows(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Both ends of each arrow of a trace, which is checked against the format: what each kind of
    event has to have, of which type, and what viewers bind it to."""
    events = json.loads(path.read_text())["traceEvents"]
    number = (int, float)
    common = {"ph": str, "name": str, "ts": number, "pid": int, "tid": int}
    own: dict[str, dict[str, Any]] = {
        "M": {"args": dict},
        "X": {"cat": str, "dur": number, "args": dict},
        "s": {"cat": str, "id": int},  # Perfetto takes numbers only
        "f": {"cat": str, "id": int, "bp": str},
    }
    for event in events:
        kinds = {**common, **own[event["ph"]]}
        assert event.keys() == kinds.keys(), event
        assert all(isinstance(event[name], kind) for name, kind in kinds.items()), event
        assert event["ts"] >= 0 and event.get("dur", 0) >= 0
    threads = {e["tid"] for e in events if e["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["tid"] for event in slices} <= threads
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    assert starts.keys() == ends.keys()
    assert len(starts) + len(ends) == sum(event["ph"] in "sf" for event in events)
    for event in (*starts.values(), *ends.values()):
        (at,) = (
            e
            for e in slices
            if e["tid"] == event["tid"] and e["ts"] <= event["ts"] < e["ts"] + e["dur"]
        )
        assert at is not None and event.get("bp", "e") == "e"
    return [(start, ends[name]) for name, start in starts.items()]


def test_traces_follow_the_format(tmp_path: Path) -> None:
    """With an arrow to each of two commands, from a fusion, and into one."""
    path = tmp_path / "trace.json"
    with tw.Queue("x86") as queue, queue.trace(path):
        x, y = (queue.buffer(np.zeros(N, np.int32)) for _ in range(2))
        with x.host("write"):
            queue.submit(step, (N,), N, x)
            with queue.fusion(require=True):
                queue.submit(step, (N,), N, x)
                queue.submit(step, (N,), N, y)
            queue.submit(step, (N,), N, x)
            queue.fill(y, 1)
    assert len(arrows(path)) == 3
    (fused,) = (e for e in events_of(path, "X") if e["name"].startswith("the fusion of"))
    assert fused["args"]["place"].startswith(f"{__file__}:")


def test_an_arrow_for_what_certainly_waits(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with tw.Queue("x86") as queue:
        trace = queue.trace(path)
        x = queue.buffer(np.zeros(N, np.int32))
        with x.host("read_write"):
            queue.submit(step, (N,), N, x)
            queue.submit(step, (N,), N, x)
        queue.wait()
        trace.write()
        assert [event["ph"] for event in events_of(path, "s")] == ["s"]


def test_a_command_that_failed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    queue = tw.Queue("x86")
    queue.trace(path)
    queue.host_task(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        queue.close()
    (event,) = events_of(path, "X")
    assert event["args"]["failed"] == "ZeroDivisionError: division by zero"


def test_refusals(tmp_path: Path) -> None:
    with tw.Queue("x86", profile=False) as queue, pytest.raises(QueueError, match="profile=True"):
        queue.trace(tmp_path / "trace.json")
    with tw.Queue("x86") as queue:
        trace = queue.trace(tmp_path / "none" / "trace.json")
        with pytest.raises(ArgumentError, match="the trace cannot be written"):
            trace.write()
        queue.trace(tmp_path / "trace.json")
