"""ONNX models whose dims have names: compiled once, and right for all sizes."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from needs import OPENCL, needs_x86
from tilewright.errors import ArgumentError, ProblemError, UnsupportedError
from tilewright.graph.open_program import OpenGraphProgram

onnx = pytest.importorskip("onnx")
parser: Any = import_module("onnx.parser")
reference: Any = import_module("onnx.reference")

ATTENTION = """
layer (int64[batch, length] words, T[batch, length] mask) => (T[batch, length, 16] y) {
  shape = Shape (words)
  b = Gather (shape, zero)
  n = Gather (shape, one)
  places = Range (zero, n, one)
  embedded = Gather (table, words)
  placed = Gather (positions, places)
  x = Add (embedded, placed)
  b1 = Unsqueeze (b, first)
  n1 = Unsqueeze (n, first)
  split = Concat <axis = 0> (b1, n1, heads)
  merged = Concat <axis = 0> (b1, n1, width)
  q = MatMul (x, wq)
  k = MatMul (x, wk)
  v = MatMul (x, wv)
  q1 = Reshape (q, split)
  k1 = Reshape (k, split)
  v1 = Reshape (v, split)
  q2 = Transpose <perm = [0, 2, 1, 3]> (q1)
  k2 = Transpose <perm = [0, 2, 3, 1]> (k1)
  v2 = Transpose <perm = [0, 2, 1, 3]> (v1)
  scores = MatMul (q2, k2)
  bias = Unsqueeze (mask, middle)
  biased = Add (scores, bias)
  weights = Softmax <axis = -1> (biased)
  attended = MatMul (weights, v2)
  turned = Transpose <perm = [0, 2, 1, 3]> (attended)
  rows = Reshape (turned, merged)
  summed = Add (x, rows)
  y = LayerNormalization (summed, scale)
}
"""
IMAGES = """
net (T[n, 3, h, w] x) => (T[n, 5] y) {
  a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0, b0)
  b = Relu (a)
  c = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (b)
  d = Conv <pads = [1, 1, 1, 1]> (c, w1)
  e = Add (c, d)
  f = GlobalAveragePool (e)
  g = Flatten (f)
  y = Gemm <transB = 1> (g, w2, b2)
}
"""
CACHE = """
step (T[batch, 1, 8] x, T[batch, past, 8] old, T[batch, past_and_one] mask)
  => (T[batch, 1, 8] y, T[batch, all, 8] new) {
  new = Concat <axis = 1> (old, x)
  turned = Transpose <perm = [0, 2, 1]> (new)
  scores = MatMul (x, turned)
  bias = Unsqueeze (mask, one)
  biased = Add (scores, bias)
  weights = Softmax (biased)
  y = MatMul (weights, new)
}
"""
WHOLE = {
    "zero": 0,
    "none": np.zeros(0, np.float32),
    "one": 1,
    "first": [0],
    "middle": [1, 2],
    "width": [16],
    "heads": [2, 8],
    "minus": [-1],
    "two": [2],
    "ones": [1],
    "halves": np.array([1, 1, 1, 0.5], np.float32),
    "most": [2**62],
    "least": [-(2**62)],
    "ends": [0, -1],
    "far": [50],
    "four": [4],
    "amounts": [2, 3],
    "steps": [1] * 50 + [2] * 60,
}
REAL = {
    "table": (9, 16),
    "positions": (80, 16),
    "wq": (16, 16),
    "wk": (16, 16),
    "wv": (16, 16),
    "scale": (16,),
    "w0": (16, 3, 3, 3),
    "b0": (16,),
    "w1": (16, 16, 3, 3),
    "w2": (5, 16),
    "b2": (5,),
    "w": (1, 12, 4),
    "r": (1, 12, 3),
    "row": (4,),
    "zeros": (4,),
}


def model(text: str, wide: bool = False) -> Any:
    """The model of ``text`` in f32, or in f64; constants are those that it names."""
    text = re.sub(r"\bT\b", "double" if wide else "float", text)
    result = parser.parse_model('<ir_version: 9, opset_import: ["" : 18]>' + text)
    for info in result.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            # (The text has no way to say these.)
            if dim.dim_param == "past_and_one":
                dim.dim_param = "past + 1"
            elif dim.dim_param == "unnamed":
                dim.ClearField("dim_param")
    used = {name for node in result.graph.node for name in node.input}
    type_, generator = np.float64 if wide else np.float32, np.random.default_rng(3)
    arrays = {name: np.asarray(value) for name, value in WHOLE.items()}
    for name, shape in REAL.items():
        arrays[name] = (generator.normal(size=shape) * 0.3).astype(np.float32).astype(type_)
    taken = used - {info.name for info in result.graph.input}
    chosen = [(name, array) for name, array in arrays.items() if name in taken]
    result.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in chosen)
    return result


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def words(*shape: int) -> Any:
    return np.random.default_rng(1).integers(0, 9, shape)


def right(program: Any, text: str, **arrays: Any) -> None:
    """What the program gives is what ONNX's reference says of the model in f64."""
    values = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in arrays.items()}
    wanted = reference.ReferenceEvaluator(model(text, wide=True)).run(None, values)
    found = program(**arrays)
    results = list(found.values()) if isinstance(found, dict) else [found]
    assert len(results) == len(wanted)
    for result, exact in zip(results, wanted, strict=True):
        assert result.shape == exact.shape
        np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-5)


def compiled(text: str, target: str) -> OpenGraphProgram:
    program = tw.compile(tw.from_onnx(model(text)), target=target, threads=1)
    assert isinstance(program, OpenGraphProgram)
    return program


TARGETS = [pytest.param("x86", marks=needs_x86), OPENCL]


@needs_x86
def test_attention_of_any_batch_and_length_is_compiled_once() -> None:
    program = compiled(ATTENTION, "x86")
    for shape in ((2, 16), (3, 33), (2, 64), (4, 7)):
        mask = np.where(drawn(*shape) < 1, 0, -9).astype(np.float32)
        right(program, ATTENTION, words=words(*shape), mask=mask)
    assert not program.closed


@needs_x86
def test_a_batch_of_one_is_compiled_once_for_all_lengths() -> None:
    program = compiled(CACHE, "x86")
    for past in (12, 5, 40, 21):
        right(program, CACHE, x=drawn(1, 1, 8), old=drawn(1, past, 8), mask=drawn(1, past + 1))
    assert program.closed == ({"batch_size": 1},)


@pytest.mark.parametrize("target", TARGETS)
def test_images_of_any_size_are_compiled_once(target: str) -> None:
    program = compiled(IMAGES, target)
    for n, h, w in ((2, 16, 17), (3, 19, 16), (5, 33, 20), (2, 8, 9)):
        right(program, IMAGES, x=drawn(n, 3, h, w))
    assert not program.closed


@needs_x86
def test_a_cache_that_grows_is_compiled_once() -> None:
    """The mask's length is an expression of another name."""
    program = compiled(CACHE, "x86")
    for past in (4, 5, 6, 30):
        right(program, CACHE, x=drawn(2, 1, 8), old=drawn(2, past, 8), mask=drawn(2, past + 1))
    assert not program.closed
    with pytest.raises(ArgumentError, match="mask"):
        program(x=drawn(2, 1, 8), old=drawn(2, 5, 8), mask=drawn(2, 5))


SMALL = {
    "slices": "y = Slice (x, ones, minus, first, two)",
    "backwards": "y = Slice (x, most, least, first, minus)",
    "expand": (
        "s = Shape (x) o = ConstantOfShape <value = int64[1] {1}> (two) e = Equal (s, minus)"
        " to = Where (e, o, s) z = Expand (row, to) y = Add (x, z)"
    ),
    "zeros": (
        "s = Shape (x) z = ConstantOfShape (s) c = CastLike (z, x) y = Concat <axis = 0> (x, c)"
    ),
    "sizes as data": "s = Shape (x) f = CastLike (s, x) t = ReduceSum (f) y = Div (x, t)",
    "halves": (
        "s = Shape <end = 1> (x) h = Div (s, two) p = Slice (x, h, s, first)"
        " q = ReduceMean (p) y = Add (x, q)"
    ),
    "rows": "s = Concat <axis = 0> (minus, two) y = Reshape (x, s)",
    "padding": "p = Concat <axis = 0> (first, first, two, first) y = Pad (x, p)",
    "sums": "y = CumSum (x, zero)",
    "repeated": "t = Concat <axis = 0> (two, two) y = Tile (x, t)",
    "norm": "y = LpNormalization <axis = 0> (x)",
    "ceil": (
        "a = Unsqueeze (x, first) b = Transpose <perm = [0, 2, 1]> (a)"
        " y = MaxPool <kernel_shape = [2], strides = [3], ceil_mode = 1> (b)"
    ),
    "steps": "a = Unsqueeze (x, ones) y, h, c = LSTM <hidden_size = 3> (a, w, r)",
    "picked": "y = Gather (x, ends)",
    "means": (
        "a = Unsqueeze (x, first) b = Transpose <perm = [0, 2, 1]> (a)"
        " y = AveragePool <kernel_shape = [3], strides = [2], pads = [1, 1]> (b)"
    ),
    "looked up": (
        "s = Shape <end = 1> (x) g = Gather (steps, s) f = CastLike (g, x) y = Mul (x, f)"
    ),
    "truncated": (
        "s = Shape <end = 1> (x) d = Sub (s, width) e = Mod <fmod = 1> (d, two)"
        " f = CastLike (e, x) y = Mul (x, f)"
    ),
    "no axes": (
        "s = Shape (x) t = ReduceSum <noop_with_empty_axes = 1> (s) f = CastLike (t, x)"
        " m = ReduceMax (f) y = Div (x, m)"
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_nodes_of_open_sizes(name: str) -> None:
    dims = ", ".join(f"o{n}" for n in range({"ceil": 3, "means": 3, "steps": 4}.get(name, 2)))
    text = f"net (T[n, 4] x) => (T[{dims}] y) {{ {SMALL[name]} }}"
    program = compiled(text, "interpreter")
    for n in (7, 4, 13, 1):
        right(program, text, x=drawn(n, 4))
    if name == "ceil":
        # The last window would begin after the image: there is one less.
        with pytest.raises(UnsupportedError, match="y has another shape for these sizes"):
            program(x=drawn(12, 4))


def test_places_beyond_an_open_size_are_moved_inside() -> None:
    program = compiled("net (T[n, 4] x) => (T[a, b] y) { y = Gather (x, far) }", "interpreter")
    for n in (7, 60):
        x = drawn(n, 4)
        np.testing.assert_array_equal(program(x=x), x[min(50, n - 1)][None])


def test_elements_are_left_out_of_an_open_size() -> None:
    text = "net (T[n, 4] x) => (T[a, b] y) { y = Slice (x, four, most, first) }"
    program = compiled(text, "interpreter")
    for n in (9, 5, 4, 70):
        right(program, text, x=drawn(n, 4))
    with pytest.raises(ArgumentError, match=r"y would have the shape \[-1, 4\]"):
        program(x=drawn(3, 4))


def test_more_elements_than_an_open_size_has_are_not_reflected() -> None:
    text = 'net (T[n] x) => (T[a] y) { y = Pad <mode = "reflect"> (x, amounts) }'
    program = compiled(text, "interpreter")
    for n in (4, 9):
        right(program, text, x=drawn(n))
    with pytest.raises(ProblemError, match="too few elements to reflect"):
        program(x=drawn(3))


def test_arrays_without_elements() -> None:
    text = "net (T[n, m] x) => (T[a, b] y) { y = Softmax (x) }"
    program = compiled(text, "interpreter")
    for shape in ((3, 0), (0, 0), (0, 3), (3, 5)):
        right(program, text, x=drawn(*shape))


def test_a_size_that_is_calculated_and_is_no_number() -> None:
    made = model("net (T[n] x, T[m] z, T[unnamed] v) => (T[a] y) { y = Relu (x) }")
    made.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "n // (m - 1)"
    graph = tw.from_onnx(made)
    assert [param.name for param in graph.kernel.scalars] == ["n_size", "m_size"]
    with pytest.raises(UnsupportedError, match="a size of 'v' cannot be calculated"):
        tw.from_onnx(made, sizes={"m": 1})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("y = Resize (x, none, halves)", "resized along a size that calls pass"),
        (
            "s, y = Scan (zeros, x) <num_scan_inputs = 1,"
            " body = turn (T[4] a, T[4] b) => (T[4] c, T[4] d) { c = Add (a, b) d = Add (a, b) }>",
            "how often a loop is unrolled is a size that calls pass",
        ),
    ],
)
def test_what_cannot_be_open_is_refused_by_name(text: str, said: str) -> None:
    shape, dims = ("1, 1, 8, n", "a, b, c, d") if "Resize" in text else ("n, 4", "a, b")
    result = model(f"net (T[{shape}] x) => (T[{dims}] y) {{ {text} }}")
    with pytest.raises(UnsupportedError, match=said) as raised:
        tw.from_onnx(result)
    assert raised.value.where is not None and raised.value.where.startswith("node")
    assert "sizes={'n_size': ...}" in str(raised.value)
    tw.from_onnx(result, sizes={"n": 6})


def test_problems_that_open_sizes_make_say_the_cure() -> None:
    ordered = model("net (T[n, 4] x) => (T[a, b] y) { y, i = TopK <axis = 0> (x, two) }")
    less = model("net (T[n] x, T[m] z, T[unnamed] v) => (T[a] y) { y = Relu (v) }")
    less.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "n - m"
    for made in (ordered, less):
        with pytest.raises(UnsupportedError, match=r"sizes=\{'n_size': \.\.\."):
            tw.from_onnx(made)
    tw.from_onnx(ordered, sizes={"n": 6})
    tw.from_onnx(less, sizes={"n": 6, "m": 4})


def test_sizes_that_are_said() -> None:
    relu = model("net (T[n, m] x) => (T[a, b] y) { y = Relu (x) }")
    graph = tw.from_onnx(relu, sizes={"n": 3, "m": 2})
    assert not graph.scalars and graph.kernel.arrays[0].buffer.shape == (3, 2)
    half = tw.from_onnx(relu, sizes={"m": 2})
    assert [param.name for param in half.kernel.scalars] == ["n_size"]
    for sizes, said in (({"q": 3}, "no size 'q'"), ({"n": -1}, "size 'n_size' is -1")):
        with pytest.raises(ArgumentError, match=said):
            tw.from_onnx(relu, sizes=sizes)


def test_dims_without_a_name_are_sizes_of_their_own() -> None:
    """Nothing says that two of them are one."""
    text = "net (T[unnamed, 4] x) => (T[a, b] y) { y = Relu (x) }"
    right(compiled(text, "interpreter"), text, x=drawn(3, 4))
    with pytest.raises(ArgumentError, match=r"x_0_size.*do not broadcast"):
        tw.from_onnx(model("net (T[unnamed] x, T[unnamed] z) => (T[a] y) { y = Add (x, z) }"))


@needs_x86
def test_models_of_open_sizes_on_the_command_line(tmp_path: Path, tilewright: Command) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(model(CACHE), path)
    assert tilewright("verify", "graph", str(path)).lines[0].startswith("PASS")
    sizes = ("--set", "batch_size=2", "--set", "past_size=5")
    shown = tilewright("show", "graph", "--stage", "graph", *sizes, str(path))
    assert "f32[2, 5, 8]" in shown.out and "s64 in" not in shown.out
