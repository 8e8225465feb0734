"""Graphs that are compiled again: their cut from disk, kernels made by other processes."""

from __future__ import annotations

import gc
import json
import struct
import sys
import threading
import weakref
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from graph_texts import CONTROL, transformer
from needs import needs_x86
from tilewright.engine import choosing
from tilewright.engine import compile as engine_compile
from tilewright.engine.choosing import predicted_seconds
from tilewright.engine.disk_cache import open_disk_cache
from tilewright.graph import reporting, stored, workers
from tilewright.graph.compiling import Divided, compile_divided, compile_graph
from tilewright.graph.cutting import cut_graph
from tilewright.graph.graph import Graph
from tilewright.graph.parts import compile_groups, packable
from tilewright.graph.preparing import prepare
from tilewright.graph.program import GraphProgram
from tilewright.ir.constants import digest_of
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.runtime.steps import launches
from tilewright.targets.registry import find_target


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches that are empty."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    monkeypatch.setenv("TILEWRIGHT_THREADS", "2")
    monkeypatch.setattr(stored, "_memory", {})
    monkeypatch.setattr(engine_compile, "_memory", {})


@pytest.mark.parametrize("text", [CONTROL, transformer(1)], ids=["control", "transformer"])
def test_a_cut_comes_back_as_it_was(text: str) -> None:
    graph = tw.parse_kernel(text)
    cut = cut_graph(graph)
    result = stored._read(stored._written(cut, graph), tw.parse_kernel(text))
    assert result is not None
    assert stored._data(result) == stored._data(cut)
    assert list(map(to_text, result.kernels)) == list(map(to_text, cut.kernels))
    for one, other in zip(launches(result.steps), launches(cut.steps), strict=True):
        assert (one.span and one.span.line) == (other.span and other.span.line) or not one.computes


def test_damaged_cuts_are_made_again() -> None:
    graph = tw.parse_kernel(transformer(1))
    written = stored._written(cut_graph(graph), graph)
    data = json.loads(zlib.decompress(written[8:]))

    def read(**changed: object) -> object:
        head = zlib.compress(json.dumps(data | changed).encode())
        return stored._read(struct.pack("<Q", len(head)) + head, graph)

    assert read() is not None
    assert read(kernels="kernel k(") is None
    assert read(between="") is None
    assert read(steps=[{"kernel": 99, "buffers": [], "computes": []}]) is None
    assert read(steps=[{"kernel": 0, "buffers": [0], "computes": []}]) is None
    assert read(graph=to_text(graph).replace("in x:", "in z:")) is None
    assert read(constants=[["sha256:", "f32", 3]]) is None
    assert stored._read(b"nothing", graph) is None
    assert stored._read(b"more than nothing", graph) is None


@needs_x86
def test_another_process_would_find_all(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tw.parse_kernel(CONTROL)
    first = compile_graph(graph, "x86", 2)
    assert not first.from_cache
    monkeypatch.setattr(stored, "_memory", {})
    monkeypatch.setattr(engine_compile, "_memory", {})
    monkeypatch.setattr(stored, "cut_graph", None)
    again = compile_graph(Graph(tw.parse_kernel(CONTROL)), "x86", 2)
    assert again.from_cache and isinstance(again, GraphProgram)
    arrays = {"a": np.eye(8, dtype=np.float32), "limit": np.ones(1, np.float32)}
    for name, wanted in first(**arrays).items():
        np.testing.assert_array_equal(again(**arrays)[name], wanted)


@needs_x86
def test_constants_that_passes_made_are_kept(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.arange(64, dtype=np.float32)
    digest = digest_of(table)
    text = f"""
kernel k(constant table: f32[64] = {digest}, in x: f32[64], out y: f32[64]):
  alloc twice: f32[64]
  compute double(i in 64):
    t = table[63 - i]
    twice[i] = t * 2.0
  compute add(i in 64):
    a = x[i]
    t = twice[i]
    y[i] = a + t
"""
    graph = tw.parse_kernel(text, constants={digest: table})
    x = np.ones(64, np.float32)
    first = compile_graph(graph, "x86", 1)
    np.testing.assert_array_equal(first(x), x + 2 * table[::-1])
    monkeypatch.setattr(stored, "_memory", {})
    monkeypatch.setattr(stored, "cut_graph", None)
    again = compile_graph(graph, "x86", 1)
    np.testing.assert_array_equal(again(x), x + 2 * table[::-1])
    assert isinstance(again, GraphProgram) and len(again.launches) == 1


DIVIDED = """
kernel k(in x: f32[8], in w: f32[8], in scale: f32[8], out y: f32[8], out z: f32[8]):
  alloc v: f32[8]
  compute v(i in 8):
    a = w[7 - i]
    b = scale[i]
    v[i] = exp(a) * b
  compute y(i in 8):
    a = x[i]
    b = v[i]
    c = w[i]
    y[i] = a + b + c
  compute z(i in 8):
    a = x[7 - i]
    b = v[7 - i]
    z[i] = a - b
"""


def called(made: Divided, arrays: dict[str, Any]) -> dict[str, Any]:
    """The results of both parts."""
    known = dict(arrays)
    if made.before is not None:
        results = made.before.signature.results
        names = [name for name in made.before.signature.names if name not in results]
        result = made.before(**{name: known[name] for name in names})
        known |= result if len(results) > 1 else {results[0]: result}
    known |= {name: known[source] for name, source in made.constant.items()}
    program = made.program
    taken = [name for name in program.signature.names if name not in program.signature.results]
    return dict(program(**{name: program.pack(name, known[name]) for name in taken}))


@needs_x86
def test_a_divided_graph_is_kept(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes no pass over it."""
    graph, constant = tw.parse_kernel(DIVIDED), {"w", "scale"}
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(8).astype(np.float32) for name in ("x", "w", "scale")}
    result = np.exp(values["w"][::-1]) * values["scale"]
    wanted = {"y": values["x"] + result + values["w"], "z": (values["x"] - result)[::-1]}
    first = compile_divided(graph, constant, "x86", 1)
    assert first.before is not None
    monkeypatch.setattr(stored, "_memory", {})
    monkeypatch.setattr(engine_compile, "_memory", {})
    for name in ("prepare", "optimized", "cut_graph"):
        monkeypatch.setattr(stored, name, None)
    again = compile_divided(tw.parse_kernel(DIVIDED), constant, "x86", 1)
    assert again.program.from_cache and again.constant == first.constant
    for divided in (first, again):
        for name, found in called(divided, values).items():
            np.testing.assert_allclose(found, wanted[name], 1e-5, 1e-6)
    with pytest.raises(TypeError):  # other arguments are constant: it is another entry
        compile_divided(graph, {"w"}, "x86", 1)


def test_damaged_parts_are_made_again() -> None:
    graph, constant = tw.parse_kernel(DIVIDED), {"w", "scale"}
    result = prepare(graph, constant)
    assert result.before is not None
    cuts = cut_graph(result.kernel), cut_graph(result.before)
    whole = stored.PreparedCut(cuts[0], result.constant, cuts[1])

    def read(payload: bytes, names: set[str] = constant, text: str = DIVIDED) -> object:
        return stored._read_prepared(payload, tw.parse_kernel(text), names)

    def written(**changed: Any) -> bytes:
        return stored._written_prepared(replace(whole, **changed), graph)

    assert read(written()) is not None
    assert read(written(), names={"w"}) is None
    assert read(written(before=None)) is None
    assert read(written(cut=cuts[1])) is None and read(written(before=cuts[0])) is None
    assert read(written(constant={**result.constant, "x": "w", "q": "w"})) is None
    assert read(written(constant={**result.constant, "v": "z"})) is None
    assert read(written(), text=DIVIDED.replace("in x: f32[8]", "in x: f32[9]")) is None
    assert read(written(), text=DIVIDED.replace("out y: f32[8]", "out y: f32[9]")) is None
    data = written()
    assert all(read(data[:length]) is None for length in range(0, len(data), 7))
    size = struct.unpack_from("<Q", data)[0]
    for head in (
        b"[]",
        b"{}",
        b'{"constant": 3, "sizes": []}',
        b'{"constant": {}, "sizes": ["a"]}',
    ):
        assert read(struct.pack("<Q", len(head)) + head + data[8 + size :]) is None


def several() -> Kernel:
    lines = [f"  alloc t{n}: f32[64]" for n in range(6)]
    for n in range(6):
        source = "x" if n == 0 else f"t{n - 1}"
        lines += [f"  compute c{n}(i in 64):", f"    v = {source}[63 - i]"]
        lines += [f"    t{n}[i] = v * {float(n + 2)}"]
    lines += ["  compute last(i in 64):", "    v = t5[i]", "    y[i] = v"]
    return tw.parse_kernel("kernel k(in x: f32[64], out y: f32[64]):\n" + "\n".join(lines) + "\n")


@needs_x86
def test_processes_compile_side_by_side(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """This one waits until the other has made some, and finds them in the cache."""
    monkeypatch.setattr(workers, "_FEWEST", 2)
    cut = cut_graph(several())
    told: list[int] = []
    one = threading.Event()

    def done() -> None:
        told.append(1)
        one.set()

    tasks = list(zip(cut.kernels, packable(cut, ()), strict=True))
    with workers.Helpers() as helpers, helpers.at(tasks, "x86", 2, done) as left:
        assert one.wait(60)
        mine = [place for place, _ in left.rest()]
    assert len(mine) + len(told) == len(cut.kernels)
    assert open_disk_cache().stats().entries == len(told)
    progress: list[tuple[int, int]] = []
    with workers.Helpers() as helpers:
        groups = compile_groups(cut, "x86", 2, (), lambda *now: progress.append(now), helpers)
    assert sum(group.compiled.from_cache for group in groups) >= len(told)
    assert progress[-1] == (len(groups), len(groups))


def test_tasks_that_somebody_has_begun_are_left_to_them() -> None:
    tasks = [(kernel, ()) for kernel in [several()] * 5]
    left = workers.Tasks(tasks, {1: "other", 3: "this"})
    assert next(left.rest("this"))[0] == 3
    assert next(left.rest("other", last_first=True))[0] == 1
    left = workers.Tasks(tasks, {1: "other", 3: "this"})
    assert [number for number, _ in left.rest("other", last_first=True)] == [1, 4, 2, 0, 3]
    assert not list(left.rest())


@needs_x86
def test_processes_predict_side_by_side(fresh: None) -> None:
    """What another process has predicted is asked for no more, and compiled by that process."""
    machine = find_target("x86").machine
    cut = cut_graph(several())
    tasks = list(zip(cut.kernels, packable(cut, ()), strict=True))
    with workers.Helpers() as helpers:
        helpers.predict(tasks, machine, "x86")  # none has begun
        assert open_disk_cache().stats().entries == 0
        helpers._start(1)
        assert helpers._spare[0]._working.wait(60)
        helpers.predict(tasks, machine, "x86")
        entries = open_disk_cache().stats().entries
        assert entries == len({to_text(kernel) for kernel in cut.kernels}) > 1
        there = list(helpers._scheduled)
        choosing._seconds.clear()
        assert all(predicted_seconds(kernel, machine, names) for kernel, names in tasks)
        assert open_disk_cache().stats().entries == entries
        with helpers.at(tasks, "x86", 2, lambda: None) as left:
            assert len(left._begun) == len(there)


@needs_x86
def test_a_process_that_ends_leaves_the_rest_to_others(fresh: None) -> None:
    machine = find_target("x86").machine
    cut = cut_graph(several())
    tasks = list(zip(cut.kernels, packable(cut, ()), strict=True))
    with workers.Helpers() as helpers:
        helpers._start(1)
        assert helpers._spare[0]._working.wait(60)
        process = helpers._spare[0]._process
        assert process is not None
        process.kill()
        helpers.predict(tasks, machine, "x86")
        progress: list[tuple[int, int]] = []
        groups = compile_groups(cut, "x86", 2, (), lambda *now: progress.append(now), helpers)
    assert len(groups) == len(cut.kernels) and progress[-1][0] >= len(groups) - 1


def test_a_bar_appears_before_any_kernel_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "_PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with reporting.long_compilation("reading the graph") as bar:
        assert bar._timer is not None
        bar._timer.join()
        assert bar._bar.tasks[0].description == "reading the graph"
        with reporting.long_compilation() as inner:
            assert inner is bar and bar._bar.tasks[0].description == "cutting the graph"
        assert bar._bar is not None
        bar(1, 3)
        assert (bar._bar.tasks[0].completed, bar._bar.tasks[0].total) == (1, 3)
    assert bar._bar is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    with reporting.long_compilation() as quiet:
        quiet(1, 3)
        assert quiet._timer is None and quiet._bar is None


class _Cycle:
    """Garbage, which only Python's search finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """The tests' own setting freezes."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_many_compilations_leave_garbage_to_be_found(unfrozen: None) -> None:
    """To freeze begins a count anew: garbage of between was never looked for."""
    left = list[weakref.ref[_Cycle]]()
    for _ in range(400):
        with reporting.long_compilation():
            pass
        cycles = [_Cycle() for _ in range(600)]
        left += map(weakref.ref, cycles)
        del cycles
    assert sum(cycle() is not None for cycle in left) < len(left) // 2


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_there_is_frozen_once_it_was_looked_at(unfrozen: None, fails: bool) -> None:
    with suppress(ValueError), reporting.long_compilation():
        gc.collect(1)
        assert gc.get_freeze_count() == 0
        gc.collect()
        assert gc.get_freeze_count() > 0
        if fails:
            raise ValueError
    assert gc.get_freeze_count() == 0
    gc.freeze()
    with reporting.long_compilation():
        gc.collect()
    assert gc.get_freeze_count() > 0


def test_a_prediction_that_is_interrupted_begins_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is told to stop waited until all were predicted."""

    def interrupted(*_: object) -> float:
        raise KeyboardInterrupt

    class Helper(workers._Helper):
        def __init__(self) -> None:
            self.jobs = list[workers._Job]()

        def work(self, job: workers._Job) -> workers._Begun:
            self.jobs.append(job)
            return workers._Begun(job)

        def finish(self) -> None:
            pass

    monkeypatch.setattr(workers, "predicted_seconds", interrupted)
    cut = cut_graph(several())
    tasks = list(zip(cut.kernels, packable(cut, ()), strict=True))
    with pytest.raises(KeyboardInterrupt), workers.Helpers() as helpers:
        helpers._spare.append(helper := Helper())
        helpers.predict(tasks, find_target("x86").machine, "x86")
    assert not list(helper.jobs[0].tasks.rest())
