"""Graphs that are compiled again: their cut from disk, kernels made by other processes."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from graph_texts import CONTROL, transformer
from needs import needs_x86
from tilewright.engine import compile as engine_compile
from tilewright.engine.disk_cache import open_disk_cache
from tilewright.graph import stored, workers
from tilewright.graph.cutting import cut_graph, launches
from tilewright.graph.graph import Graph
from tilewright.graph.parts import compile_groups, packable
from tilewright.graph.program import GraphProgram, compile_graph
from tilewright.ir.constants import digest_of
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel


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
    found = stored._read(stored._written(cut, graph), tw.parse_kernel(text))
    assert found is not None
    assert stored._data(found) == stored._data(cut)
    assert list(map(to_text, found.kernels)) == list(map(to_text, cut.kernels))
    for one, other in zip(launches(found.steps), launches(cut.steps), strict=True):
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

    tasks = workers.Tasks(list(zip(cut.kernels, packable(cut, ()), strict=True)))
    with workers.helping(tasks, len(cut.kernels), "x86", done):
        assert one.wait(60)
        mine = [place for place, _ in tasks.rest()]
    assert len(mine) + len(told) == len(cut.kernels)
    assert open_disk_cache().stats().entries == len(told)
    progress: list[tuple[int, int]] = []
    groups = compile_groups(cut, "x86", 2, (), lambda *now: progress.append(now))
    assert sum(each.compiled.from_cache for each in groups) >= len(told)
    assert progress[-1] == (len(groups), len(groups))
