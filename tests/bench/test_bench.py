"""Benchmarks: what they compute from times, and that all of it runs. No time is asserted."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from measurements import PEAKS, ROW
from tilewright.bench import benchmark as benchmarking
from tilewright.bench.benchmark import FindPeers, Row, benchmark, net_ratio
from tilewright.bench.peer import find_peers, no_peers
from tilewright.bench.report import (
    SCHEMA,
    RowLines,
    as_json,
    geometric_mean,
    print_table,
    summary_line,
)
from tilewright.bench.roofline import Line, plot, plot_format, roofs
from tilewright.bench.torch_tensors import Peers
from tilewright.dtypes import f32, s8, u8
from tilewright.engine import compile_kernel
from tilewright.errors import UnsupportedError
from tilewright.measure import rounds as timing
from tilewright.measure.rounds import Measured
from tilewright.measure.verdict import Conditions, Timing
from tilewright.ops.op import Op
from tilewright.problems import (
    parse,
)
from tilewright.targets.x86.assemble import host_cpu
from tilewright.testing.case import Case

ROWS = [ROW, replace(ROW, name="second", ratio=0.5), replace(ROW, peer=None, ratio=None)]


NOISY = replace(ROW, name="third", ratio=8.0, net_ratio=3.0, noise=("others had the cores", "b"))


def test_summary() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    line = "peer oneDNN: geometric mean 1.000, worst 0.500 (second), of 2"
    assert summary_line(ROWS) == line
    assert summary_line(ROWS[2:]) == "1 measured, nothing to compare with"
    assert summary_line([]) == "0 measured, nothing to compare with"
    assert summary_line([*ROWS, NOISY]) == (
        "peer oneDNN: geometric mean 2.000, worst 0.500 (second), of 3; "
        "without what calls cost 3.000, of 1; 1 noisy, without them 1.000"
    )
    # Where all are noisy, a median may be anything.
    assert summary_line([replace(NOISY, best_ratio=3.0), replace(NOISY, best_ratio=12.0)]) == (
        "peer oneDNN: geometric mean of the least times 6.000, of 2, which are all noisy; "
        "of the medians 8.000"
    )


def table(rows: list[Row], width: int | None = None, doubts: tuple[str, ...] = ()) -> list[str]:
    """Its lines; with a ``width``, as on a terminal."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=width is not None)
    print_table(rows, PEAKS, console, doubts)
    # Terminals get bold letters.
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()


def test_table() -> None:
    lines = table(ROWS)
    assert lines[0].endswith(
        "1 thread; measured peaks: f32 100, bf16 200, int8 400 GFLOP/s; "
        "L1 200, L2 100, L3 50, DRAM 20 GB/s"
    )
    assert len(lines) == 2 + len(ROWS) + 1
    titles = "case ms spread peer ms ratio x torch.mm GFLOP/s GB/s % peak"
    assert lines[1].split() == titles.split()
    assert lines[2].split() == [
        "first",
        "2.0000",
        "0.0%",
        "4.0000",
        "2.000",
        "2.500",
        "50.0",
        "1.0",
        "50.0",
    ]
    assert table(ROWS, doubts=("L3 above L2",))[1] == "doubtful peaks: L3 above L2"


def test_what_the_table_says_of_noise_and_of_missing_peers() -> None:
    alone = replace(ROWS[2], no_peer="PyTorch has no [such] thing")
    lines = table([ROW, NOISY, alone, alone])
    assert "noisy" in lines[1].split()
    assert [line.split().count("noisy") for line in lines[2:6]] == [0, 1, 0, 0]
    assert lines[7:] == [
        "noisy: third: others had the cores; b",
        "no peer: first and 1 more: PyTorch has no [such] thing",
    ]
    many = table([NOISY] * 13)
    assert sum(line.startswith("noisy: ") for line in many) == 1
    assert (
        many[-1] == "noisy: third: others had the cores; b; and 12 more, whose reasons --json has"
    )


def test_what_multiplies_is_said_once() -> None:
    said = "fma_s32x8 (8 products at a time); not vpdpbusd_512 (64 products at a time): u8"
    rows = [replace(ROW, instruction=said), ROW, replace(ROW, instruction=said)]
    assert table(rows)[-1] == f"instruction: first and 1 more: {said}"


def test_a_table_that_is_not_on_a_terminal_is_printed_a_row_at_a_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = RowLines(["first", "a longer name"], PEAKS)
    assert capsys.readouterr().out == ""
    lines.add(ROW)
    _, titles, first = capsys.readouterr().out.splitlines()
    lines.add(replace(NOISY, name="a longer name"))
    (second,) = capsys.readouterr().out.splitlines()
    assert titles.index("ratio") + len("ratio") == first.index("2.000 ") + len("2.000")
    assert second.index("8.000") == first.index("2.000 ") and " noisy " in second
    assert first.endswith("x torch.mm: 2.500")
    lines.end(["L3 above L2"])
    assert capsys.readouterr().out.splitlines() == [
        "doubtful peaks: L3 above L2",
        summary_line([ROW, NOISY]),
        "noisy: a longer name: others had the cores; b",
    ]


FULL = replace(
    NOISY,
    name='resnet_50:res2a_branch2b"[3x3]"',
    ms=1234.5678,
    peer_ms=9876.5432,
    best_ratio=7.654,
    spread=0.123,
    peer_spread=0.456,
    gflops=4321.0,
    gbytes_per_second=77.7,
    peak_percent=98.7,
    level="DRAM",
    compile_cold_ms=1e3,
    compile_cached_ms=2.5,
    call_us=13.25,
    peer_call_us=157.5,
)


def test_a_narrow_table_loses_columns_and_no_digits() -> None:
    figures = {
        *("1234.5678", "9876.5432", "8.000", "12.3%", "45.6%", "7.654", "3.000", "0.004"),
        *("4321.0", "77.7", "98.7", "1000", "2.5", "13.25", "157.50"),
    }
    widest = table([FULL])
    assert figures <= set(widest[2].split())
    for width in (160, 120, 100, 80, 60, 40):
        lines = [line.rstrip() for line in table([FULL], width)]
        assert max(map(len, lines)) <= width
        last = next(i for i, line in enumerate(lines) if line.startswith("peer oneDNN"))
        first = next(i for i, line in enumerate(lines) if line.split()[:1] == ["case"])
        # The name may be broken, and stands to the left.
        cells = [cell for line in lines[first + 1 : last] for cell in line.split()]
        shown = [cell for cell in cells if cell[0].isdigit() and cell[-1] in "0123456789%"]
        assert set(shown) <= figures, width
        assert {"1234.5678", "8.000", "noisy"} <= set(cells), width
        assert "".join(lines[last:]).count("no room for") == 1
    assert {"9876.5432", "98.7", "12.3%"} <= set(table([FULL], 80)[3].split())


def test_json() -> None:
    result = json.loads(json.dumps(as_json([*ROWS, NOISY], PEAKS, doubts=["L3 above L2"])))
    assert set(result) == {
        *("schema", "date", "machine", "torch", "threads", "peaks", "complete", "rows", "summary")
    }
    assert result["schema"] == SCHEMA
    assert result["peaks"]["gflops"] == dict(PEAKS.gflops)
    assert result["peaks"]["doubts"] == ["L3 above L2"]
    assert result["rows"][0]["ratio"] == 2.0
    assert [row["noisy"] for row in result["rows"]] == [False, False, False, True]
    assert result["rows"][3]["noise"] == ["others had the cores", "b"]
    assert result["summary"] == {
        "compared": 3,
        "peer": "oneDNN",
        "geometric_mean": pytest.approx(2.0),
        "worst": 0.5,
        "worst_case": "second",
        "net_compared": 1,
        "net_geometric_mean": pytest.approx(3.0),
        "noisy": 1,
        "quiet_geometric_mean": 1.0,
        "best_geometric_mean": None,
    }


def test_roofs_are_clipped() -> None:
    slopes, ceilings = roofs(PEAKS, 0.5, 50.0)
    assert [line.name for line in slopes] == ["L1", "L2", "L3", "DRAM"]
    # 400 GFLOP/s are reached with 2 FLOPs for each byte of L1, 20 for each of DRAM.
    assert slopes[0] == Line("L1", (0.5, 100.0), (2.0, 400.0))
    assert slopes[3] == Line("DRAM", (0.5, 10.0), (20.0, 400.0))
    assert ceilings[0] == Line("f32", (0.5, 100.0), (50.0, 100.0))
    assert ceilings[2] == Line("int8", (2.0, 400.0), (50.0, 400.0))
    # What is no roof there is not drawn.
    slopes, ceilings = roofs(PEAKS, 0.1, 1.0)
    assert [line.name for line in ceilings] == ["f32"]
    assert [line.name for line in roofs(PEAKS, 4.0, 50.0)[0]] == ["L3", "DRAM"]


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plot_format(tmp_path / "roofline.svg") == "svg"
    named = [ROW, replace(NOISY, name="$second$"), replace(ROWS[2], name="alone", flops=0)]
    text = plot(named, PEAKS, "svg").decode()
    assert "<svg" in text
    assert text.count("<!-- first -->") == 1 and text.count("<!-- $second$ -->") == 1
    assert "<!-- alone -->" not in text  # nothing to draw
    assert f"<!-- {host_cpu()}, 1 thread -->" in text
    for name in ("tilewright", "tilewright, noisy", "peer", "peer, noisy", "DRAM", "bf16"):
        assert f"<!-- {name} -->" in text
    assert b"<svg" in plot([], PEAKS, "svg")
    for name in ("roofline.xyz", "roofline"):
        with pytest.raises(UnsupportedError, match=f"cannot draw {name}[^$]*there is no format"):
            plot_format(tmp_path / name)


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


def test_a_row_says_why_there_is_no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "BATCH_SECONDS", 1e-5)

    def row(peers: FindPeers) -> Row:
        op = Case(parse("eltwise", "8x4")).op()
        return benchmark(
            op, "", lambda op: compile_kernel(op, threads=1), PEAKS, seconds=0, peers=peers
        )

    def refused(op: Op, threads: int) -> Peers:
        raise UnsupportedError("there is no such thing", cure="ask for another")

    def failing() -> None:
        raise RuntimeError("could not create a primitive\nat line 5")

    def broken(op: Op, threads: int) -> Peers:
        raise RuntimeError("no kernel for it")

    assert row(refused).no_peer == "there is no such thing"
    assert row(lambda op, threads: {"a": [failing]}).no_peer == (
        "PyTorch says: could not create a primitive"
    )
    assert row(broken).no_peer == "PyTorch says: no kernel for it"
    monkeypatch.setattr("tilewright.bench.torch_tensors.load_torch", lambda: None)
    assert row(find_peers).no_peer == "PyTorch is not installed"
    result = row(lambda op, threads: {"a": [failing, lambda: None], "b": [lambda: None]})
    assert result.no_peer is None and result.peer == "a" and list(result.other_peers) == ["b"]
    assert result.peer_call_us is not None and result.peer_call_us > 0


def test_what_a_row_adds_to_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(shape: str, seconds: float, others: float | None) -> Row:
        times = {"ours": Timing(seconds, seconds, 0.0, 0.0, 9)}
        result = Measured(times, Conditions(2, 1, others), ("the clock moved by 12%",))
        monkeypatch.setattr(benchmarking, "measure", lambda *_, **__: result)
        op = Case(parse("eltwise", shape)).op()
        compile = partial(compile_kernel, threads=1)
        return benchmark(op, "", compile, PEAKS, peers=no_peers)

    clock = ("the clock moved by 12%",)
    # 8 MiB from the L3 take 0.17 ms.
    quiet = row("1024x1024", 1e-3, 0.1)
    assert (quiet.level, quiet.noise) == ("L3", clock)
    assert quiet.peak_percent == pytest.approx(100 * 2**23 / 50e9 / 1e-3)
    assert row("1024x1024", 1e-3, 1.25).noise == (
        *clock,
        "others used 1.2 of 2 cores, and L3 with them",
    )
    assert row("1024x1024", 1e-3, None).noise == clock
    assert row("64x64", 1e-3, 1.25).noise == clock  # in a cache of its own
    assert row("1024x1024", 1e-4, 0.0).noise == (
        *clock,
        "168% of a peak: the peak was measured too low",
    )


def test_what_is_left_without_calls() -> None:
    row = replace(ROW, ms=0.1, peer_ms=0.3)
    assert net_ratio(row, 20e-6, 100e-6) == pytest.approx(0.2 / 0.08)
    # The rest would be the difference of two like numbers.
    assert net_ratio(row, 90e-6, 100e-6) is net_ratio(row, 20e-6, 290e-6) is None
    assert net_ratio(row, None, 1e-6) is net_ratio(row, 1e-6, None) is None
    assert net_ratio(replace(row, peer_ms=None), 1e-6, 1e-6) is None
