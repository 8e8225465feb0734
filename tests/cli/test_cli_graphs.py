"""Graphs on the command line: read from files, verified, shown, timed, profiled."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from graph_texts import CONTROL, transformer
from graphs import expected_softmax, graph, numbers, run
from measurements import PEAKS
from needs import needs_opencl, needs_x86
from tilewright.cli import graphs, profiling
from tilewright.graph.library import library
from tilewright.graph.passes.pipeline import PASSES
from tilewright.graph.program import GraphProgram
from tilewright.problems.library import SoftmaxProblem
from tilewright.targets.registry import find_target
from tilewright.tensor.contractions import matmul
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to
from tilewright.testing.verify import Status, Verdict

NETWORK = """
module @network {
  func.func public @main(%x: tensor<4x8xf32>, %w: tensor<8x3xf32>) -> tensor<4x3xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
    %1 = stablehlo.tanh %0 : tensor<4x3xf32>
    return %1 : tensor<4x3xf32>
  }
}
"""
CHECKED = """
func.func @right() {
  %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = stablehlo.add %0, %0 : tensor<2xf32>
  check.expect_eq_const %1, dense<[2.0, 4.0]> : tensor<2xf32>
  return
}
// -----
func.func @wrong() {
  %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = stablehlo.multiply %0, %0 : tensor<2xf32>
  check.expect_eq_const %1, dense<[1.0, 5.0]> : tensor<2xf32>
  return
}
// -----
func.func @unknown(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.custom_call @foreign(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, with files of graphs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "control.tw").write_text(CONTROL, encoding="utf-8")
    (tmp_path / "layers.tw").write_text(transformer(1), encoding="utf-8")
    (tmp_path / "wrong.tw").write_text(CONTROL.replace("add= x", "adds x"), encoding="utf-8")
    (tmp_path / "network.mlir").write_text(NETWORK, encoding="utf-8")
    (tmp_path / "checked.mlir").write_text(CHECKED, encoding="utf-8")
    (tmp_path / "model.txt").write_text("", encoding="utf-8")
    return tmp_path


@needs_x86
def test_verify(folder: Path, tilewright: Command) -> None:
    ended = tilewright("verify", "graph", "control.tw", "wrong.tw", "model.txt", "layers.tw")
    assert ended.code == 2  # not all of it is a graph
    first, second, third, fourth, last = ended.lines
    assert first == "PASSED graph control.tw"
    assert second.startswith("REFUSED (") and ", at wrong.tw:" in second
    assert second.endswith(") graph wrong.tw")
    assert third == (
        "REFUSED (model.txt is no file of a graph that is known: its name ends in '.txt') "
        "graph model.txt"
    )
    assert fourth == "PASSED graph layers.tw"
    assert last == "2 passed, 0 failed, 2 refused"


CALL = """module {
  func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @foreign(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


@needs_x86
def test_how_refusals_end(folder: Path, tilewright: Command) -> None:
    """The place is that of `tw.from_stablehlo`; what does not parse is bad input, what is not
    supported was not verified."""
    (folder / "call.mlir").write_text(CALL, encoding="utf-8")
    (folder / "torn.mlir").write_text(CALL.replace("xf32>)", "xf32)"), encoding="utf-8")
    alone = tilewright("verify", "graph", "call.mlir")
    assert alone.code == 1 and "no graph was run" in alone.err
    assert alone.lines[0].startswith("REFUSED (the custom call @foreign is not translated: ")
    assert alone.lines[0].endswith(", at call.mlir:3:10) graph call.mlir")
    assert tilewright("verify", "graph", "call.mlir", "network.mlir").code == 0
    torn = tilewright("verify", "graph", "torn.mlir", "network.mlir")
    assert torn.code == 2 and ", at torn.mlir:2:" in torn.lines[0]
    with pytest.raises(tw.TilewrightError) as caught:
        tw.from_stablehlo((folder / "torn.mlir").read_text(encoding="utf-8"))
    assert caught.value.span is not None
    assert f", at torn.mlir:{caught.value.span.line}:" in torn.lines[0]


@pytest.mark.parametrize("name", ["nope.onnx", "nope.tw", "nope.mlir:main", "nope"])
def test_a_file_that_is_not_there_is_bad_input(
    folder: Path, tilewright: Command, name: str
) -> None:
    ended = tilewright("verify", "graph", "control.tw", name)
    assert ended.code == 2
    assert f"cannot read {name.partition(':')[0]}" in ended.err


def test_verify_what_a_gpu_would_run(folder: Path, tilewright: Command) -> None:
    ended = tilewright(
        *("verify", "graph", "--target", "nvidia:sm_80", "--on", "interpreter", "--random", "2"),
        "control.tw",
    )
    assert ended.lines == [
        "PASSED graph control.tw",
        "PASSED graph --seed=1 control.tw",
        "2 passed, 0 failed, 0 refused",
    ]


@needs_x86
def test_stablehlo_is_verified_by_its_own_checks(folder: Path, tilewright: Command) -> None:
    for words in ((), ("--target", "nvidia:sm_80", "--on", "interpreter")):
        ended = tilewright("verify", "graph", *words, "network.mlir", "checked.mlir")
        assert ended.code == 1
        network, right, wrong, unknown, last = ended.lines
        assert network == "PASSED graph network.mlir"
        assert right == "PASSED graph checked.mlir:right"
        assert wrong == (
            "FAILED (line 12: 1 of 2 elements differ: at [1] it is 4.0, expected 5.0) "
            "graph checked.mlir:wrong"
        )
        assert unknown.startswith("REFUSED (") and unknown.endswith("graph checked.mlir:unknown")
        assert last == "2 passed, 1 failed, 1 refused"
    assert tilewright("verify", "graph", "checked.mlir:right").code == 0
    none = tilewright("verify", "graph", "checked.mlir:none")
    assert none.code == 2 and "checked.mlir has no function 'none'" in none.out
    shown = tilewright("show", "graph", "--stage", "program", "network.mlir").lines
    assert len([line for line in shown if line.startswith("0: contraction")]) == 1


BITS = """
kernel bits(in x: f32[4], out y: f32[4]):
  compute bits(i in 4):
    v = x[i]
    y[i] = bitcast(f32, bitcast(u32, v) and u32(2147483647))
"""
# In f32, 1e8 + v - 1e8 is a multiple of 8.
STEPS = """
kernel steps(in x: f32[64], out y: f32[64]):
  compute steps(i in 64):
    v = x[i]
    y[i] = v * 20.0 + 1e8 - 1e8
"""


@needs_x86
def test_float64_says_what_is_right(folder: Path, tilewright: Command) -> None:
    (folder / "bits.tw").write_text(BITS, encoding="utf-8")
    (folder / "steps.tw").write_text(STEPS, encoding="utf-8")
    bits, steps, last = tilewright("verify", "graph", "bits.tw", "steps.tw").lines
    assert bits == (
        "PASSED (in its own types: it looks at bits, which float64 has others of) graph bits.tw"
    )
    assert re.match(r"PASSED \(in its own types: float64 differs, on \w+: y\[\d+\] is ", steps)
    assert last == "2 passed, 0 failed, 0 refused"


def test_numbers_without_dims_are_verified(folder: Path, tilewright: Command) -> None:
    """Their memory came back with a dim, as numpy's `ascontiguousarray` gives it."""
    path = folder / "scaled.tw"
    path.write_text(SCALED, encoding="utf-8")
    ended = tilewright("verify", "graph", "--target", "interpreter", "scaled.tw")
    assert ended.lines[0] == "PASSED graph scaled.tw"


SCALED = """
kernel scaled(in a: f32[], in x: f32[8], out y: f32[8]):
  compute scaled(i in 8):
    y[i] = a[] * x[i]
"""


def test_one_that_fails(folder: Path, tilewright: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Verdict(Status.FAILED, "on integers: y[0] is 1, expected 2")
    monkeypatch.setattr(graphs, "verify_on", lambda *_: wrong)
    ended = tilewright("verify", "graph", "control.tw")
    assert ended.code == 1
    assert ended.lines == [
        "FAILED (on integers: y[0] is 1, expected 2) graph control.tw",
        "0 passed, 1 failed, 0 refused",
    ]


@needs_x86
def test_show(folder: Path, tilewright: Command) -> None:
    every = tilewright("show", "graph", "control.tw").out
    assert [line for line in every.splitlines() if line.startswith("# stage")] == [
        "# stage graph",
        *(f"# stage {pass_.name}" for pass_ in PASSES),
        "# stage kernels",
        "# stage program",
    ]
    assert tw.parse_kernel(tilewright("show", "graph", "--stage", "shared", "control.tw").out)
    kernels = tilewright("show", "graph", "--stage", "kernels", "control.tw").out
    assert "# kernel 4, launched as\n#   back, nothing, add\nkernel reduction(" in kernels
    for text in kernels.partition("\n")[2].split("\n\n"):
        assert tw.parse_kernel(text).arrays
    program = tilewright("show", "graph", "--stage", "program", "control.tw").lines
    assert program[1] == "arena of 640 bytes; at most 640 live at once"
    assert "  3: contraction 3 (q, p, a)  # zero, product" in program
    assert program[-2:] == ["else:", "  9: elementwise 9 (p, y)  # halves, turned"]
    assert "vmovups" in tilewright("show", "graph", "--stage", "asm", "control.tw").out
    config = tilewright("show", "graph", "--stage", "config", "control.tw").out
    assert "# kernel 3, contraction\nContractionConfig(" in config


# (Times are whatever they are.)
GROUPS = """# graph groups.tw
group kernel predicted us measured us by what it computes
0 elementwise 0 T T L first, second
1 elementwise 1 T T L turned

decided of why
one kernel first + second saves about T us

from to KiB buffer why they are apart
0 1 6.0 t no dim is shared by all computes
"""
GROUPED = """kernel net(in x: f32[64, 24], out y: f32[64, 24]):
  alloc r: f32[64, 24]
  compute first(m in 64, n in 24):
    a = x[m, n]
    r[m, n] = exp(a)
  alloc t: f32[64, 24]
  compute second(m in 64, n in 24):
    a = r[m, n]
    t[m, n] = a * a
  compute turned(m in 64, n in 24):
    a = t[63 - m, 23 - n]
    y[m, n] = a
"""


@needs_x86
def test_groups_as_text_and_as_json(folder: Path, tilewright: Command) -> None:
    (folder / "groups.tw").write_text(GROUPED, encoding="utf-8")
    words = ("show", "graph", "--stage", "groups", "--measure", "--json", "g.json", "groups.tw")
    ended = tilewright(*words)
    assert ended.code == 0, ended.err
    text = re.sub(r" +", " ", ended.out)
    text = re.sub(r"(elementwise \d) [\d.]+ [\d.]+ \w+", r"\1 T T L", text)
    assert re.sub(r"about [\d.]+", "about T", text) == GROUPS
    written = json.loads((folder / "g.json").read_text())
    assert written["machine"]["cpu"] and written["date"] and written["target"] == "x86"
    (figures,) = written["graphs"]
    assert figures["graph"] == "graph groups.tw" and figures["sizes"] == {}
    first, second = figures["groups"]
    for group in (first, second):
        times = group.pop("predicted"), group.pop("measured")
        assert all(time > 0 for time in times) and group.pop("limit")
        assert all(f"{1e6 * time:.1f}" in ended.out for time in times)
    assert first == {"group": 0, "kernel": "elementwise 0", "computes": ["first", "second"]}
    assert second == {"group": 1, "kernel": "elementwise 1", "computes": ["turned"]}
    (decision,) = figures["decisions"]
    assert decision.pop("why") in ended.out
    assert decision == {"what": "first + second", "how": "one kernel"}
    (boundary,) = figures["boundaries"]
    assert boundary.pop("why") == "no dim is shared by all computes"
    assert boundary == {"producer": 0, "consumer": 1, "buffer": "t", "bytes": 6144}
    assert figures["ways"] == []


@needs_x86
def test_measured_groups_of_sizes_that_calls_pass(folder: Path, tilewright: Command) -> None:
    """Those for some sizes, which are said."""
    text = re.sub(r"\bn\b", "k", GROUPED).replace("63 - m", "n - 1 - m").replace("64", "n")
    text = text.replace("net(", "net(n: s64 in 64..512, ")
    (folder / "open.tw").write_text(text, encoding="utf-8")
    words = ("show", "graph", "--stage", "groups", "--measure", "--json", "g.json", "open.tw")
    ended = tilewright(*words)
    assert ended.code == 0, ended.err
    (figures,) = json.loads((folder / "g.json").read_text())["graphs"]
    n = figures["sizes"]["n"]
    assert ended.lines[1] == f"for n = {n}:"
    assert [group["measured"] > 0 for group in figures["groups"]] == [True, True]
    assert figures["boundaries"][0]["bytes"] == n * 24 * 4


def test_every_stage_of_a_graph_computes_the_same(folder: Path, tilewright: Command) -> None:
    values = {"x": numbers(6, 8), "w": numbers(8, 5), "b": numbers(5)}
    (folder / "softmax.tw").write_text(str(graph(copying_softmax, **values)), encoding="utf-8")
    every = tilewright("show", "graph", "--stage", "all", "softmax.tw").out
    stages = dict(stage.split("\n", 1) for stage in every.split("# stage ")[1:])
    names = ("graph", *(pass_.name for pass_ in PASSES))
    assert list(stages) == [*names, "kernels", "program"]
    wanted = expected_softmax(*values.values())
    for name in names:
        kernel = tw.parse_kernel(stages[name])
        np.testing.assert_allclose(run(kernel, **values)[0], wanted, 1e-5, 1e-6)
        one = tilewright("show", "graph", "--stage", name, "softmax.tw").out
        assert one.partition("\n")[2].rstrip() == stages[name].rstrip()


def copying_softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """`softmax` of copies, with something twice."""
    builder = x.builder
    bias = builder.materialize(broadcast_to(b, (x.shape[0], w.shape[1])), "bias")
    y = elementwise(lambda a, c: a + c, matmul(x, w), bias, name="add")
    parts = [library(builder, SoftmaxProblem(y.shape), src=y)["dst"] for _ in range(2)]
    return elementwise(lambda a, c: (a + c) * 0.5, *parts, name="both")


@needs_x86
def test_bench_and_profile(
    folder: Path, tilewright: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "peaks_of", lambda *_: PEAKS)
    words = ("--seconds", "0.01", "--json", "b.json", "--peer", "x86", "layers.tw")
    header, row = tilewright("bench", "graph", *words).lines
    assert header.split()[:6] == ["graph", "ms", "spread", "x86", "ms", "ratio"]
    assert row.split()[0] == "layers.tw" and row.split()[5:7] == ["8", "11"]
    (figures,) = json.loads((folder / "b.json").read_text())["graphs"]
    assert figures["cold_seconds"] > 0 and figures["cached_seconds"] > 0
    assert sum(kernel["runs"] for kernel in figures["kernels"]) == figures["launches"] == 11
    assert set(figures["seconds"]) == {"ours", "x86"}
    written = ("--trace", "t.json", "--json", "p.json")
    ended = tilewright("profile", "graph", "--calls", "2", *written, "layers.tw")
    assert ended.code == 0
    figures = json.loads((folder / "p.json").read_text())
    assert figures["calls"] == 2 and figures["machine"]["cpu"] and figures["date"]
    (graph,) = figures["graphs"]
    assert sum(kernel["runs"] for kernel in graph["kernels"]) == 11
    title, header, *rows, last, file = ended.lines
    assert (title, file.partition(":")[0]) == ("# graph layers.tw", "t.json")
    assert header.split() == [
        "kernel",
        "runs",
        "us",
        "%",
        "predicted",
        "us",
        "floor",
        "us",
        "of",
        "it",
        "by",
        "first",
        "of",
    ]
    assert len(rows) == 8 and last.split()[:2] == ["all", "11"]
    assert sum(int(line.split()[2]) for line in rows) == 11
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    launches = [event for event in events if event["ph"] == "X"]
    assert len(launches) == 11
    assert launches[1]["name"] == "l0_iq_z, l0_iq_p, l0_iq_y"
    assert launches[1]["args"]["at"].startswith("layers.tw:")


@needs_opencl
def test_profile_of_an_opencl_device(folder: Path, tilewright: Command) -> None:
    """Its launches are timed one by one; what runs on this processor has that one's roofline."""
    words = ("--target", "spirv", "--calls", "2", "--trace", "t.json", "network.mlir")
    _, header, row, last, file = tilewright("profile", "graph", *words).lines
    assert row.split()[:3] == ["contraction", "0", "1"] and last.split()[:2] == ["all", "1"]
    assert header.startswith("kernel") and file.startswith("t.json")
    assert ("%" in row) == find_target("spirv").on_processor
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    (launch,) = [event for event in events if event["ph"] == "X"]
    assert launch["dur"] > 0 and launch["args"]["at"].startswith("network.mlir:")


def test_refusals(folder: Path, tilewright: Command) -> None:
    for words, said in (
        (("verify", "graph"), "there is nothing to do"),
        (("verify", "graph", "--dt", "f32", "control.tw"), "graph takes no --dt"),
        (("verify", "graph", "--set", "n=3", "control.tw"), "a graph in text takes no --set"),
        (("verify", "graph", "--against", "torch", "control.tw"), "graph takes no --against"),
        (("show", "graph", "--page", "x.html", "control.tw"), "graph takes no --page"),
        (("show", "graph", "--measure", "control.tw"), "graph takes no --measure"),
        (("show", "graph", "--stage", "graph", "--json", "x", "control.tw"), "takes no --json"),
        (("show", "conv", "--measure", "ic4oc4ih4kh1"), "conv takes no --measure"),
        (("show", "graph", "--stage", "nothing", "control.tw"), "there is no stage 'nothing'"),
        (("show", "graph", "wrong.tw"), "wrong.tw:"),
        (("show", "graph", "--constant", "x", "network.mlir"), "takes no --constant"),
        (("show", "graph", "none.mlir"), "cannot read none.mlir"),
        (("show", "graph", "none.tw"), "cannot read none.tw"),
        (("bench", "graph", "--plot", "x.svg", "control.tw"), "graph takes no --plot"),
        (("bench", "graph", "--peer", "cuda", "control.tw"), "there is no target 'cuda'"),
        (("profile", "graph", "--target", "interpreter", "control.tw"), "makes no program"),
        (("profile", "conv", "ic4oc4ih4kh1"), "there is no profile of conv"),
        (("check", "graph", "control.tw"), "unknown driver 'graph'"),
    ):
        ended = tilewright(*words)
        assert ended.code == 2 and said in ended.err + ended.out, words


@needs_x86
def test_models_of_onnx(folder: Path, tilewright: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnx.reference")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    infos = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", (4, 8)), ("w", (8, 3)), ("y", (4, 3)))
    ]
    graph = onnx.helper.make_graph([node], "product", infos[:2], infos[2:])
    onnx.save(onnx.helper.make_model(graph), "model.onnx")
    Path("broken.onnx").write_bytes(b"nothing")
    ended = tilewright("verify", "graph", "model.onnx", "broken.onnx", "model.onnx:x")
    assert ended.lines[0] == "PASSED graph model.onnx"
    assert ended.lines[1].startswith("REFUSED (broken.onnx cannot be read as a model")
    assert "has no part 'x'" in ended.lines[2]
    assert "contraction" in tilewright("show", "graph", "--stage", "program", "model.onnx").out
    run = onnx.reference.ReferenceEvaluator.run
    evaluator = "onnx.reference.ReferenceEvaluator.run"
    # ONNX's own reference is asked, too.
    monkeypatch.setattr(evaluator, lambda *values: [1.5 * value for value in run(*values)])
    ended = tilewright("verify", "graph", "model.onnx")
    assert ended.code == 1 and re.match(
        r"FAILED \(y: \d+ of 12 elements differ, the first at .* by ONNX's reference",
        ended.lines[0],
    )
    monkeypatch.setattr(evaluator, lambda *values: 1 // 0)
    ended = tilewright("verify", "graph", "model.onnx")
    assert ended.code == 0
    assert ended.lines[0].startswith("PASSED (ONNX's reference evaluator does not run the model")


def test_graphs_that_nobody_can_run_here(folder: Path, tilewright: Command) -> None:
    ended = tilewright("profile", "graph", "--target", "nvidia:sm_70", "control.tw")
    assert ended.code == 2 and "do not run here" in ended.err
    result = tw.compile(tw.parse_kernel(transformer(1)), "nvidia:sm_70", threads=1)
    assert isinstance(result, GraphProgram) and not result.target.runs_here
