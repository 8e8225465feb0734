"""Benchmarks: what they compute from times, and that all of it runs. No time is asserted."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tilewright.bench import measure as timing
from tilewright.bench.benchmark import Row, benchmark
from tilewright.bench.peaks import Peaks, measure_peaks
from tilewright.bench.peer import find_peers, no_peers
from tilewright.bench.report import SCHEMA, as_json, geometric_mean, print_table, summary_line
from tilewright.bench.roofline import plot, plot_format
from tilewright.bench.torch_tensors import load_torch, window_of
from tilewright.dtypes import bf16, f32, f64, s8, u8
from tilewright.engine import compile_kernel
from tilewright.errors import UnsupportedError
from tilewright.problems import Direction, Unary, parse
from tilewright.testing.case import Case

PEAKS = Peaks(
    1,
    {"f32": 100.0, "bf16": 200.0, "int8": 400.0},
    {"L1": 200.0, "L2": 100.0, "L3": 50.0, "DRAM": 20.0},
    {"L1": 2**15, "L2": 2**20, "L3": 2**25},
)
ROW = Row(
    case="conv --dt=f32 ic3",
    name="first",
    ms=2.0,
    best_ms=1.9,
    gflops=50.0,
    gbytes_per_second=1.0,
    peak_percent=50.0,
    level="",
    peer="oneDNN",
    peer_ms=4.0,
    ratio=2.0,
    other_peers={"torch.mm": 5.0},
    flops=100_000_000,
    bytes=2_000_000,
)
ROWS = [ROW, replace(ROW, name="second", ratio=0.5), replace(ROW, peer=None, ratio=None)]


def test_summary() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert summary_line(ROWS) == ("peer oneDNN: geometric mean 1.000, worst 0.500 (second), of 2")
    assert summary_line(ROWS[2:]) == "1 measured, nothing to compare with"
    assert summary_line([]) == "0 measured, nothing to compare with"


def test_table() -> None:
    stream = io.StringIO()
    print_table(ROWS, PEAKS, Console(file=stream))
    text = stream.getvalue()
    assert "measured peaks: f32 100, bf16 200, int8 400 GFLOP/s" in text
    assert "x torch.mm" in text
    lines = text.splitlines()
    assert len(lines) == 2 + len(ROWS) + 1
    assert lines[2].split()[:5] == ["first", "2.0000", "4.0000", "2.000", "2.500"]


def test_json() -> None:
    found = json.loads(json.dumps(as_json(ROWS, PEAKS)))
    assert set(found) == {
        *("schema", "date", "machine", "torch", "threads", "peaks", "complete", "rows", "summary")
    }
    assert found["schema"] == SCHEMA
    assert found["peaks"]["gflops"] == dict(PEAKS.gflops)
    assert found["rows"][0]["ratio"] == 2.0
    assert found["summary"] == {
        "compared": 2,
        "peer": "oneDNN",
        "geometric_mean": 1.0,
        "worst": 0.5,
        "worst_case": "second",
    }


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plot_format(tmp_path / "roofline.svg") == "svg"
    assert b"<svg" in plot(ROWS, PEAKS, "svg")
    for name in ("roofline.xyz", "roofline"):
        with pytest.raises(UnsupportedError, match=f"cannot draw {name}[^$]*there is no format"):
            plot_format(tmp_path / name)


def test_peaks_by_type() -> None:
    assert [PEAKS.of(type_) for type_ in (f32, bf16, u8, s8, f64)] == [100, 200, 400, 400, 100]


def test_peaks_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.bench.peaks._SECONDS", 1e-4)
    peaks = measure_peaks(2)
    assert peaks.threads == 2
    assert set(peaks.bandwidth) == {"L1", "L2", "L3", "DRAM"}
    assert all(value > 0 for value in (*peaks.gflops.values(), *peaks.bandwidth.values()))


def test_sides_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAUSED_BATCH_SECONDS", "PAUSE_SECONDS", "WARM_SECONDS"):
        monkeypatch.setattr(timing, name, 0.0)
    calls: list[str] = []
    found = timing.measure(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0.0
    )
    assert set(found) == {"a", "b"}
    assert found["a"].rounds == found["b"].rounds == timing.MIN_ROUNDS
    assert found["a"].best <= found["a"].median
    # Each round: one call that is not timed, and one that is.
    assert "".join(calls[-8:]) == "aabbaabb"


@pytest.mark.parametrize(
    "case",
    [
        Case(parse("conv", "mb1ic16ih8oc16kh3ph1")),
        Case(parse("matmul", "16x16:16x16"), (u8, s8, f32)),
        Case(parse("reorder", "2x16x8x8"), tags=("nchw", "nChw16c")),
    ],
    ids=lambda case: case.driver,
)
def test_a_benchmark(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "BATCH_SECONDS", 1e-5)
    row = benchmark(
        case.op(),
        case.arguments(),
        lambda op: compile_kernel(op, threads=1),
        PEAKS,
        seconds=0.0,
        peers=no_peers,
    )
    assert row.case == case.arguments()
    assert row.ms > 0 and row.best_ms <= row.ms
    assert row.peer is None and row.ratio is None
    assert row.flops == case.problem.valid_flops
    assert row.gflops == pytest.approx(row.flops / row.ms / 1e6)
    assert row.level == ("L1" if case.driver == "reorder" else "")
    assert row.compile_cold_ms is not None and row.compile_cold_ms > 0
    assert row.call_us is not None and row.bound_call_us is not None
    json.dumps(row.as_json())


def test_padding_that_pytorch_has() -> None:
    def padding(descriptor: str) -> Any:
        problem: Any = parse("conv", descriptor)
        window = window_of(problem)
        return None if window is None else window["padding"]

    assert padding("ic3ih8oc3kh3ph1") == [1, 1]
    assert padding("ic3ih224oc64kh7sh2ph3") == [3, 3]  # one row behind is never reached
    assert padding("ic3iw8oc3kw3pw1") == [0, 1]  # in 2D
    assert padding("ic8ih8oc8oh8kh2ph0") is None


@pytest.mark.skipif(load_torch() is None, reason="PyTorch is not installed")
@pytest.mark.parametrize(
    ("case", "names"),
    [
        (Case(parse("conv", "mb1ic8ih6oc4kh3ph1")), ["oneDNN"]),
        (Case(parse("conv", "mb1ic8ih6oc4kh3ph1"), direction=Direction.BWD_D), ["oneDNN"]),
        (Case(parse("conv", "mb1ic8iw6oc4kw3"), direction=Direction.BWD_WB), ["oneDNN"]),
        (Case(parse("conv", "mb1ic8ih6oc4kh3"), (u8, s8, f32)), ["oneDNN"]),
        (Case(parse("conv", "mb1ic8ih6oc4kh3"), tags=("nchw", "any", "nchw")), ["oneDNN"]),
        (Case(parse("conv", "ic8ih6oc4kh3"), (f64,) * 3), []),
        (Case(parse("matmul", "8x4:4x16")), ["oneDNN", "torch.mm"]),
        (Case(parse("matmul", "8x4:4x16"), (u8, s8, f32)), ["oneDNN"]),
        (Case(parse("matmul", "2x8x4:2x4x16")), ["torch.matmul"]),
        (Case(parse("pool", "mb1ic8ih6kh2")), ["torch"]),
        (Case(parse("reduce", "8x4:8x1"), algorithm="mean"), ["torch"]),
        (
            Case(parse("eltwise", "8x4"), algorithm="linear:2:1", post_ops=(Unary("relu"),)),
            ["torch"],
        ),
        (Case(parse("eltwise", "8x4"), algorithm="mish"), []),
        (Case(parse("binary", "8x4:1x4"), algorithm="mul"), ["torch"]),
        (Case(parse("reorder", "2x16x4x4"), tags=("nchw", "nChw16c")), ["torch"]),
        (Case(parse("reorder", "2x15x4x4"), tags=("nchw", "nChw16c")), []),
    ],
)
def test_peers(case: Case, names: list[str]) -> None:
    op = case.op().resolved()
    peers = find_peers(op, threads=1)
    assert list(peers) == names
    result = next(t for t in op.tensors if t.access != "in")
    elements = 1
    for size in result.shape:
        elements *= size
    for call in (call for calls in peers.values() for call in calls):
        made = call()
        made = [each for each in made if each is not None] if isinstance(made, tuple) else [made]
        assert elements in [each.numel() for each in made]
