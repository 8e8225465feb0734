"""The benchmark on NVIDIA GPUs: what it makes of measurements, which here are invented; and, where
PyTorch is installed, its side of the work, on the host. Nothing here runs on a GPU.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from checkout import ROOT
from commands import Command
from tilewright.bench import gpu
from tilewright.bench.benchmark import Row
from tilewright.bench.floor import rated_peaks
from tilewright.bench.gpu import Bench, Device, TorchBench, gpu_row, open_device
from tilewright.bench.torch_work import make_tensors, reference
from tilewright.cli import benchmarking
from tilewright.dtypes import bf16, f32
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.errors import CompilationError, DeviceError, UnsupportedError
from tilewright.measure.rounds import Measured
from tilewright.measure.verdict import Conditions, Timing
from tilewright.ops.op import Op
from tilewright.problems import Direction, Unary, parse
from tilewright.targets.registry import find_target
from tilewright.testing.case import Case

SCRIPT = ROOT / "benchmarks" / "nvidia.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nvidia_benchmark", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def measured(**times: Timing) -> Measured:
    return Measured(times, Conditions(1, 1), ())


class Invented:
    """Stands for a GPU: whatever the kernel, the same times."""

    def __init__(self, fault: str | None = None) -> None:
        self.wrong = fault

    def describe(self) -> dict[str, str]:
        return {"gpu": "Invented"}

    def fault(self, kernel: CompiledKernel) -> str | None:
        return self.wrong

    def times(self, kernel: CompiledKernel, seconds: float) -> Measured:
        return measured(ours=Timing(0.002, 0.001, 0.1, 0.0, 9), cuDNN=Timing(0.003, 0.002, 0, 0, 9))


def small(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that compiles quickly, for the host."""
    cases = [
        run.Work("first", Case(parse("matmul", "16x16:16x16"))),
        run.Work("second", Case(parse("conv", 'ic16ih6oc16kh3ph1n"net:layer"'))),
    ]
    monkeypatch.setattr(run, "works", lambda: iter(cases))
    monkeypatch.setattr(run, "TARGET", "x86")


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run = script()

    def none(name: str) -> None:
        raise DeviceError("there is no NVIDIA GPU", why="the driver finds no device")

    monkeypatch.setattr(run, "open_device", none)
    assert run.main([]) == 2
    assert capsys.readouterr().err == (
        "no benchmark: there is no NVIDIA GPU\n  why: the driver finds no device\n"
    )


def test_the_work() -> None:
    works = list(script().works())
    assert len({work.label for work in works}) == len(works)
    groups = [work.group for work in works]
    assert {name: groups.count(name) for name in groups} == {
        "matmul": 2,
        **dict.fromkeys(("forward", "nchw_bias_relu", "by_data", "by_weights"), 20),
        "depthwise": 10,
        "grouped": 1,
        "conv3d": 7,
    }
    for work in works:
        op = work.case.op().resolved()
        assert all(type_ is bf16 for _, type_ in op.types), work.label


def test_table_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = script()
    small(run, monkeypatch)
    file = tmp_path / "out.json"
    assert run.main(["--json", str(file)], Invented) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "gpu Invented"
    line = r"\[2/2, \d+ s\] second net:layer: 2\.000 ms, 0 TFLOP/s, 1\.50 x cuDNN"
    assert re.search(line, out)
    assert "peer cuDNN: geometric mean 1.500, worst 1.500" in out
    assert "first: geometric mean 1.500, worst 1.500, of 1" in out
    result = json.loads(file.read_text())
    assert set(result) == {"date", "machine", "rows", "failed", "out_of_time", "summary"}
    assert result["machine"] == {"gpu": "Invented"}
    assert [row["name"] for row in result["rows"]] == ["first 16x16:16x16", "second net:layer"]
    first = result["rows"][0]
    assert (first["ms"], first["best_ms"], first["peer_ms"]) == (2.0, 1.0, 3.0)
    assert first["gflops"] == pytest.approx(2 * 16**3 / 0.002 * 1e-9)
    assert first["bytes"] == 3 * 16 * 16 * 4
    assert first["compile_cold_ms"] > 0
    assert result["summary"]["compared"] == 2 and not result["failed"]


def test_cases_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = script()
    small(run, monkeypatch)
    file = tmp_path / "out.json"
    wrong = Invented("7 of 9 elements differ")
    assert run.main(["--json", str(file), "--only", "layer"], lambda: wrong) == 1
    out, err = capsys.readouterr()
    assert re.search(r"\[1/1, \d+ s\] second net:layer: FAILED", out)
    assert "7 of 9 elements differ" in err
    assert "cure: see where: tilewright verify --target x86 conv" in err
    (reason,) = json.loads(file.read_text())["failed"].values()
    assert reason.startswith("CompilationError: the kernel is wrong on the device")
    # Any other error ends its case only.
    broken = Invented()
    monkeypatch.setattr(broken, "times", lambda *_: 1 // 0)
    assert run.main([], lambda: broken) == 1
    assert capsys.readouterr().err.count("ZeroDivisionError") == 2


def test_out_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = script()
    small(run, monkeypatch)
    file = tmp_path / "out.json"
    assert run.main(["--seconds", "-1", "--json", str(file)], Invented) == 0
    assert capsys.readouterr().err.count("OUT OF TIME") == 2
    assert len(json.loads(file.read_text())["out_of_time"]) == 2
    assert run.main(["--only", "nothing"], Invented) == 1
    assert "nothing is called 'nothing'" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        script().main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "python benchmarks/nvidia.py --only matmul,forward --json h200.json" in out
    assert "conv3d" in out


# PyTorch's side, on the host.

NHWC = ("axb", "any", "axb")
WORK = [
    Case(parse("matmul", "33x20:20x17"), (bf16,) * 3),
    Case(parse("conv", "mb2ic8ih7oc12kh3ph1"), (bf16,) * 3, NHWC),
    Case(parse("conv", "mb2ic3ih9oc8kh3sh2ph1"), (bf16,) * 3, NHWC),
    Case(parse("conv", "g8mb2ic8ih7oc8kh3ph1"), (bf16,) * 3, NHWC),
    Case(parse("conv", "g2mb2ic8ih7oc12kh3ph1dh1"), (bf16,) * 3, NHWC),
    Case(parse("conv", "mb1ic4id5ih6iw7oc8kd3kh3kw3pd1ph1pw1"), (bf16,) * 3, NHWC),
    Case(
        parse("conv", "mb2ic8ih7oc12kh3ph1"),
        *((bf16,) * 3, ("abx", "any", "abx"), Direction.FWD_B),
        bias=bf16,
        post_ops=(Unary("relu"),),
    ),
    Case(parse("conv", "mb2ic8ih7oc12kh3sh2ph1"), (bf16,) * 3, NHWC, Direction.BWD_D),
    Case(parse("conv", "mb2ic8ih7oc12kh3ph1"), (bf16,) * 3, ("axb",) * 3, Direction.BWD_W),
    Case(
        parse("conv", "g2mb2ic8ih7oc12kh3ph1"), (bf16,) * 3, ("axb", "abx", "axb"), Direction.BWD_W
    ),
    Case(
        parse("conv", "mb2ic8ih7oc12kh3ph1"), (bf16,) * 3, ("axb",) * 3, Direction.BWD_WB, bias=bf16
    ),
]
OTHERS = [
    tw.pool("mb2ic4ih8kh2sh2"),
    tw.reduce("5x17:5x1", algorithm="max"),
    tw.reduce("33x8:1x8", algorithm="mean", dtype="bf16"),
    tw.elementwise("4x33", "tanh"),
    tw.elementwise("4x33:4x1", "mul"),
    tw.reorder("4x33", dtype=("f32", "bf16")),
    tw.softmax("4x33"),
    tw.layer_norm("4x33"),
    tw.gather("7x5:4"),
    tw.scan("4x33", axis=1),
]
OPS = [*(case.op() for case in WORK), *OTHERS]


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_a_kernel_beside_float64_in_torch(op: Op) -> None:
    torch = pytest.importorskip("torch")
    bench = TorchBench(torch, on_host=True)
    kernel = compile_kernel(op, "x86", threads=1)
    assert bench.fault(kernel) is None

    class Wrong:
        """Changes one element behind the kernel's back."""

        what, packed, pack = kernel.what, kernel.packed, kernel.pack

        def __call__(self, **arrays: Any) -> None:
            kernel(**arrays)
            result = arrays[next(a.name for a in op.arguments if a.access != "in")]
            result[(-1,) * result.dim()] += 3

    fault = bench.fault(Wrong())  # type: ignore[arg-type]
    assert fault is not None and "elements differ from float64, the first at" in fault


@pytest.mark.parametrize("op", [case.op() for case in WORK], ids=repr)
def test_the_peer_computes_the_same(op: Op) -> None:
    torch = pytest.importorskip("torch")
    op = op.resolved()
    tensors = make_tensors(torch, op, "cpu", exact=True, seed=3)
    wanted = list(reference(torch, op, tensors).values())
    calls = [call for calls in gpu.peers(torch, op, tensors).values() for call in calls]
    assert calls and wanted
    for call in calls:
        result = call()
        for got, want in zip(result if len(wanted) > 1 else [result], wanted, strict=True):
            assert bool((got.double() == want.to(torch.bfloat16).double()).all())


def test_what_torch_has_not() -> None:
    torch = pytest.importorskip("torch")
    blocked = Case(parse("reorder", "2x16x8x8"), tags=("nchw", "nChw16c")).op()
    with pytest.raises(UnsupportedError, match="dst has blocks"):
        make_tensors(torch, blocked, "cpu", exact=True, seed=0)
    with_bias = tw.matmul("4x5:5x6", epilogue=[tw.bias()]).resolved()
    tensors = make_tensors(torch, with_bias, "cpu", exact=True, seed=0)
    with pytest.raises(UnsupportedError, match="PyTorch's side has no matmul with an epilogue"):
        reference(torch, with_bias, tensors)
    with pytest.raises(UnsupportedError, match="has tensors of one type"):
        gpu.peers(torch, Case(parse("matmul", "4x5:5x6"), (bf16, bf16, f32)).op(), tensors)


def test_a_torch_without_cuda() -> None:
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: False),
        version=SimpleNamespace(cuda=None),
        __version__="2.0",
    )
    with pytest.raises(DeviceError, match=r"it is 2\.0, for CUDA \(none\)"):
        TorchBench(torch)


class Cuda:
    """Stands for ``torch.cuda``: a replayed graph takes a millisecond for each of its calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self.graphs: list[Any] = []
        cuda = self

        class Graph:
            calls = 0

            def replay(self) -> None:
                cuda.now += self.calls

        class Event:
            at = 0.0

            def __init__(self, enable_timing: bool) -> None: ...

            def record(self, stream: Any) -> None:
                self.at = cuda.now

            def synchronize(self) -> None: ...

            def elapsed_time(self, end: Any) -> float:
                return float(end.at - self.at)

        self.CUDAGraph, self.Event = Graph, Event
        self.Stream = lambda: "stream"

    def is_available(self) -> bool:
        return True

    def stream(self, stream: Any) -> Any:
        return nullcontext()

    def synchronize(self) -> None: ...

    def graph(self, graph: Any, stream: Any) -> Any:
        assert stream == "stream"
        self.graphs.append(graph)
        graph.calls = 8
        return nullcontext()


def test_graphs_are_timed() -> None:
    torch = pytest.importorskip("torch")
    cuda = Cuda()

    class Torch:
        def __getattr__(self, name: str) -> Any:
            return cuda if name == "cuda" else getattr(torch, name)

    op = WORK[0].op()
    kernel = compile_kernel(op, "x86", threads=1)
    bound: list[Any] = []

    class Kernel:
        what, signature, packed, pack = kernel.what, kernel.signature, (), None
        target, config = kernel.target, kernel.config

        def bind(self, stream: Any, **tensors: Any) -> Any:
            assert stream == "stream"
            bound.append(tensors)
            return lambda: None

    bench = TorchBench(Torch())
    bench._device = "cpu"
    times = bench.times(Kernel(), 0.01).times  # type: ignore[arg-type]
    # Eight sets of arrays, one graph for each side, a millisecond a call.
    assert len({tensors["src"].data_ptr() for tensors in bound}) == 8
    assert len(cuda.graphs) == 2
    assert set(times) == {"ours", "cuBLAS"}
    assert times["ours"].median == times["cuBLAS"].median == pytest.approx(1e-3)


def test_a_row_on_a_device_has_a_roof() -> None:
    """That of the peak figures in the machine's data: no device says more."""
    op = Case(parse("matmul", "256x256:256x256"), (bf16,) * 3).op()
    row = gpu_row(op, "case", "label", lambda op: compile_kernel(op, "nvidia:sm_80"), Invented())
    rates = compile_kernel(op, "nvidia:sm_80").target.machine.rates
    assert rates is not None and row.floor_ms is not None
    assert row.floor_ms == pytest.approx(1e3 * 3 * 2 * 256**2 / rates.memory)
    assert row.level == "DRAM" and row.peak_percent == pytest.approx(100 * row.floor_ms / 2.0)


def test_the_command(tilewright: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`tilewright bench` takes its rows from the GPU that is there, of whatever op."""
    machine = find_target("nvidia:sm_80").machine
    assert machine.rates is not None

    def opened(device: Bench) -> None:
        peaks = rated_peaks(machine, machine.rates, device.describe())  # type: ignore[arg-type]
        monkeypatch.setattr(benchmarking, "open_device", lambda *_, **__: Device(device, peaks))

    file = tmp_path / "out.json"
    words = ("bench", "softmax", "--target", "nvidia:sm_80", "--json", str(file), "8x64")
    opened(Invented())
    ended = tilewright(*words)
    assert ended.code == 0, ended.err
    assert "gpu Invented; peak figures: " in ended.out and "peer cuDNN" in ended.out
    result = json.loads(file.read_text())
    assert result["machine"]["gpu"] == "Invented" and result["complete"]
    assert result["peaks"]["gbytes_per_second"] == {"DRAM": 1e-9 * machine.rates.memory}
    assert [row["ms"] for row in result["rows"]] == [2.0]
    assert tilewright(*words, "--peer", "x86").err.startswith("tilewright: x86 is no peer of a GPU")
    opened(Invented("3 elements differ"))
    ended = tilewright(*words)
    assert ended.code == 1 and "the kernel is wrong on the device" in ended.err
    kernel = tmp_path / "copy.tw"
    kernel.write_text("kernel copy(in a: f32[8], out c: f32[8]):\n  for i in 8:\n    c[i] = a[i]\n")
    ended = tilewright("bench", "kernel", "--target", "nvidia:sm_80", str(kernel))
    assert ended.code == 2 and "kernels from files are not timed on a GPU" in ended.err


def test_devices_are_those_whose_peaks_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_device("x86") is None
    monkeypatch.setattr(gpu, "load_torch", lambda: None)
    with pytest.raises(DeviceError, match="PyTorch is not installed"):
        open_device("nvidia:sm_80")


def test_what_cannot_be_checked_is_marked() -> None:
    class Unchecked(Invented):
        def fault(self, kernel: CompiledKernel) -> str | None:
            raise UnsupportedError("PyTorch's side has no such thing")

    op = WORK[0].op()
    row = gpu_row(op, "case", "label", lambda op: compile_kernel(op, "x86"), Unchecked())
    assert row.noise == ("its result was not checked on the device",)
    assert row.no_peer == "PyTorch's side has no such thing"


def test_a_row_without_a_peer() -> None:
    class Alone(Invented):
        def times(self, kernel: CompiledKernel, seconds: float) -> Measured:
            return measured(ours=Timing(0.002, 0.001, 0.1, 0.0, 9))

    op = WORK[0].op()

    def compile(op: Any) -> CompiledKernel:
        return compile_kernel(op, "x86", threads=1)

    row = gpu_row(op, "case", "label", compile, Alone())
    assert isinstance(row, Row) and row.peer is None and row.ratio is None
    with pytest.raises(CompilationError, match="the kernel is wrong on the device"):
        gpu_row(op, "case", "label", compile, Invented("all of it"))


def test_results_that_torch_has_not_are_no_reference() -> None:
    torch = pytest.importorskip("torch")
    op = tw.layer_norm("4x33", statistics=True).resolved()
    tensors = make_tensors(torch, op, "cpu", exact=True, seed=0)
    with pytest.raises(UnsupportedError, match=r"PyTorch has 1 of the 3 results"):
        reference(torch, op, tensors)
