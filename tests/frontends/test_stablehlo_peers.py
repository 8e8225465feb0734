"""StableHLO as other compilers' files spell it, and operations that only they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from tilewright.errors import ParseError, ProblemError
from tilewright.frontends.stablehlo import from_stablehlo, parse_module

RNG = np.random.default_rng(3)


def function(operations: str, takes: dict[str, str], gives: list[str]) -> str:
    """``main`` with results %0, %1 and so on, where several are %0#0, %0#1."""
    head = ", ".join(f"%{name}: {type_}" for name, type_ in takes.items())
    many = len(gives) > 1
    returned = ", ".join(f"%0#{n}" if many else "%0" for n in range(len(gives)))
    types = ", ".join(gives)
    return (
        f"func.func @main({head}) -> ({types}) {{\n{operations}\nreturn {returned} : {types}\n}}\n"
    )


def run(text: str, *inputs: Any) -> list[Any]:
    graph = from_stablehlo(text)
    result = tw.compile(graph, target="interpreter")(*inputs)
    return [result] if len(graph.outputs) == 1 else [result[name] for name in graph.results]


@pytest.mark.parametrize("operation", ["cf.br ^bb1(%x : tensor<f32>)", "linalg.yield %x : f32"])
def test_operations_that_programs_are_lowered_to(operation: str) -> None:
    text = f"func.func @main(%x: tensor<f32>) -> tensor<f32> {{\n{operation}\n}}"
    with pytest.raises(ParseError, match="is none of StableHLO's operations"):
        from_stablehlo(text)


X, F = "tensor<2x3x4xf32>", "tensor<3xf32>"
SETTINGS = "{epsilon = 1.0e-02 : f32, feature_index = 1 : i64}"


def over_channels(values: Any) -> Any:
    return values.reshape(1, 3, 1)


def test_batch_norm_inference() -> None:
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    scale, shift, mean = (RNG.standard_normal(3).astype(np.float32) for _ in range(3))
    variance = np.abs(RNG.standard_normal(3)).astype(np.float32)
    names = dict.fromkeys("smvo", F)
    text = function(
        f'%0 = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v) {SETTINGS} : '
        f"({X}, {F}, {F}, {F}, {F}) -> {X}",
        {"x": X} | names,
        [X],
    )
    (result,) = run(text, x, scale, mean, variance, shift)
    s, m, v, o = map(over_channels, (scale, mean, variance, shift))
    np.testing.assert_allclose(result, (x - m) / np.sqrt(v + 0.01) * s + o, 2e-6, 2e-6)


def test_batch_norm_training_and_its_gradient() -> None:
    x, back = (RNG.standard_normal((2, 3, 4)) for _ in range(2))
    scale, shift = (RNG.standard_normal(3) for _ in range(2))
    text = function(
        f'%0:3 = "stablehlo.batch_norm_training"(%x, %s, %o) {SETTINGS} : '
        f"({X}, {F}, {F}) -> ({X}, {F}, {F})",
        {"x": X, "s": F, "o": F},
        [X, F, F],
    )
    result, mean, variance = run(text, *(array.astype(np.float32) for array in (x, scale, shift)))
    center, spread = x.mean((0, 2)), x.var((0, 2))

    def normalized(values: Any, factor: Any, offset: Any) -> Any:
        m, v = values.mean((0, 2), keepdims=True), values.var((0, 2), keepdims=True)
        parts = (values - m) / np.sqrt(v + 0.01)
        return parts * over_channels(factor) + over_channels(offset)

    np.testing.assert_allclose(result, normalized(x, scale, shift), 1e-5, 1e-5)
    np.testing.assert_allclose(mean, center, 1e-5, 1e-6)
    np.testing.assert_allclose(variance, spread, 1e-5)
    text = function(
        f'%0:3 = "stablehlo.batch_norm_grad"(%x, %s, %m, %v, %g) {SETTINGS} : '
        f"({X}, {F}, {F}, {F}, {X}) -> ({X}, {F}, {F})",
        {"x": X, "s": F, "m": F, "v": F, "g": X},
        [X, F, F],
    )
    value = (x, scale, center, spread, back)
    results = run(text, *(array.astype(np.float32) for array in value))
    # Gradients by differences, in f64.
    for place, values in enumerate((x, scale, shift)):
        wanted = np.zeros(values.shape)
        for index in np.ndindex(values.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [array.copy() for array in (x, scale, shift)]
                moved[place][index] += step
                ends.append((normalized(*moved) * back).sum())
            wanted[index] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(results[place], wanted, 2e-4, 2e-5)


def test_torch_index_select() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    text = (
        '%0 = "stablehlo.torch_index_select"(%x, %i) {{dim = {} : i64, batch_dims = {} : i64}} : {}'
    )
    places = np.array([[2, 0], [1, 9]], np.int32)
    index = "tensor<2x2xi32>"
    types = f"({X}, {index}) -> tensor<2x2x2x4xf32>"
    gives = ["tensor<2x2x2x4xf32>"]
    (result,) = run(function(text.format(1, 0, types), {"x": X, "i": index}, gives), x, places)
    assert (result == x[:, np.minimum(places, 2)]).all()
    types = f"({X}, {index}) -> tensor<2x2x4xf32>"
    gives = ["tensor<2x2x4xf32>"]
    (result,) = run(function(text.format(1, 1, types), {"x": X, "i": index}, gives), x, places)
    assert (result == np.stack([x[n, np.minimum(places[n], 2)] for n in range(2)])).all()


def test_unary_einsum() -> None:
    x = RNG.integers(0, 9, (2, 3, 4)).astype(np.float32)
    text = '%0 = "stablehlo.unary_einsum"(%x) {einsum_config = "abc->cb"} : '
    (result,) = run(function(f"{text}({X}) -> tensor<4x3xf32>", {"x": X}, ["tensor<4x3xf32>"]), x)
    assert (result == np.einsum("abc->cb", x)).all()


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ("chlo.broadcast_add %a, %b", np.add),
        ("chlo.broadcast_subtract %a, %b {broadcast_dimensions = array<i64: 1>}", np.subtract),
        ('"chlo.broadcast_maximum"(%a, %b)', np.maximum),
        ("chlo.broadcast_power %a, %b", np.power),
    ],
)
def test_operations_that_broadcast(operation: str, wanted: Any) -> None:
    a = np.abs(RNG.standard_normal((2, 1, 4))).astype(np.float32)
    b = RNG.standard_normal((3, 4) if "dimensions" not in operation else 3).astype(np.float32)
    left, right = "tensor<2x1x4xf32>", f"tensor<{'x'.join(map(str, b.shape))}xf32>"
    text = function(f"%0 = {operation} : ({left}, {right}) -> {X}", {"a": left, "b": right}, [X])
    (result,) = run(text, a, b)
    spread = b[:, None] if b.ndim == 1 else b
    np.testing.assert_allclose(result, wanted(a, spread), 1e-6)


def test_comparing_and_selecting_with_broadcasts() -> None:
    a = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    chosen = (
        "%1 = chlo.broadcast_compare %x, %s {comparison_direction = #chlo<comparison_direction LT>}"
        f" : ({X}, tensor<f32>) -> tensor<2x3x4xi1>\n"
        f"%0 = chlo.broadcast_select %1, %s, %x : (tensor<2x3x4xi1>, tensor<f32>, {X}) -> {X}"
    )
    (result,) = run(
        function(chosen, {"x": X, "s": "tensor<f32>"}, [X]), a, np.array(0.25, np.float32)
    )
    assert (result == np.where(a < 0.25, np.float32(0.25), a)).all()
    with pytest.raises(ProblemError, match="of tensor<2x3x4xf32>, tensor<2xf32>"):
        bad = f"%0 = chlo.broadcast_add %x, %y : ({X}, tensor<2xf32>) -> {X}"
        from_stablehlo(function(bad, {"x": X, "y": "tensor<2xf32>"}, [X]))


RAW = """%0 = "stablehlo.convolution"(%a, %b) {
  batch_group_count = 1 : i64, feature_group_count = 1 : i64,
  dimension_numbers = #stablehlo.conv<raw
    input_batch_dimension = 0, input_feature_dimension = 3, input_spatial_dimensions = [1, 2],
    kernel_input_feature_dimension = 2, kernel_output_feature_dimension = 3,
    kernel_spatial_dimensions = [0, 1], output_batch_dimension = 0,
    output_feature_dimension = 3, output_spatial_dimensions = [1, 2],
  >} : (tensor<1x4x5x2xf32>, tensor<3x2x2x3xf32>) -> tensor<1x2x4x3xf32>"""


def test_raw_numbers_of_dims_and_commas_at_the_end() -> None:
    a, b = RNG.standard_normal((1, 4, 5, 2)), RNG.standard_normal((3, 2, 2, 3))
    takes = {"a": "tensor<1x4x5x2xf32>", "b": "tensor<3x2x2x3xf32>"}
    (result,) = run(
        function(RAW, takes, ["tensor<1x2x4x3xf32>"]), a.astype(np.float32), b.astype(np.float32)
    )
    parts = np.lib.stride_tricks.sliding_window_view(a, (3, 2), (1, 2))
    np.testing.assert_allclose(result, np.einsum("nhwcij,ijco->nhwo", parts, b), 1e-5, 1e-5)
    for old, new in (("[1, 2],\n    kernel", "[1, 1],\n    kernel"), (",\n  >", ", size = 3>")):
        with pytest.raises(ParseError):
            parse_module(function(RAW.replace(old, new), takes, ["tensor<1x2x4x3xf32>"]))


MHLO = """%1 = mhlo.constant dense<0.0> : tensor<f32>
%2 = "mhlo.reduce"(%x, %1) ({
^bb0(%p: tensor<f32>, %q: tensor<f32>):
  %s = mhlo.add %p, %q : tensor<f32>
  mhlo.return %s : tensor<f32>
}) {dimensions = dense<[0, 2]> : tensor<2xi64>} : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<3xf32>
%3 = "mhlo.broadcast_in_dim"(%2) {broadcast_dimensions = dense<1> : tensor<1xi64>} :
  (tensor<3xf32>) -> tensor<2x3x4xf32>
%4 = mhlo.compare LT, %x, %3 : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xi1>
%5 = "mhlo.compare"(%x, %3) {comparison_direction = #mhlo<comparison_direction GE>} :
  (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xi1>
%6 = mhlo.or %4, %5 : tensor<2x3x4xi1>
%7 = mhlo.erf %x : tensor<2x3x4xf32>
%0 = mhlo.select %6, %7, %x : tensor<2x3x4xi1>, tensor<2x3x4xf32>"""


def test_mhlos_names() -> None:
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    (result,) = run(function(MHLO, {"x": X}, [X]), x)
    as_stablehlo = MHLO.replace("mhlo.erf", "chlo.erf").replace("mhlo", "stablehlo")
    (wanted,) = run(function(as_stablehlo, {"x": X}, [X]), x)
    assert (result == wanted).all()


def test_attributes_that_mean_nothing_here() -> None:
    text = '%0 = "stablehlo.abs"(%x) {lowering = "vector", tag = [1]} : '
    (result,) = run(function(f"{text}({X}) -> {X}", {"x": X}, [X]), -np.ones((2, 3, 4), np.float32))
    assert (result == 1).all()


def test_assertions_of_shapes() -> None:
    asserted = """%n = stablehlo.constant dense<VALUE> : tensor<i1>
stablehlo.custom_call @shape_assertion(%n) {error_message = "odd", has_side_effect = true} :
  (tensor<i1>) -> ()
%0 = stablehlo.abs %x : tensor<2x3x4xf32>"""
    assert from_stablehlo(function(asserted.replace("VALUE", "true"), {"x": X}, [X])).inputs
    with pytest.raises(ProblemError, match="odd"):
        from_stablehlo(function(asserted.replace("VALUE", "false"), {"x": X}, [X]))


IN_PART = """func.func @good(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @jumps(%x: tensor<2xf32> {a.b = "}"}) -> tensor<2xf32> attributes {c = {}} {
  cf.br ^bb1(%x : tensor<2xf32>)
^bb1(%y: tensor<2xf32>):
  return %y : tensor<2xf32>
}
func.func @calls(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = call @jumps(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


def test_one_function_of_a_file(tmp_path: Path, tilewright: Command) -> None:
    assert from_stablehlo(IN_PART, "good").results == ("result0",)
    for name in (None, "jumps", "calls"):
        with pytest.raises(ParseError, match=r"cf\.br is none of StableHLO's operations"):
            from_stablehlo(IN_PART, name)
    with pytest.raises(ParseError, match=r"found '\{'"):
        from_stablehlo(IN_PART.removesuffix("}\n").replace("cf.br", "{ cf.br"), "good")
    stray = IN_PART.replace("cf.br ^bb1", "stablehlo.abs !! ^bb1")
    assert from_stablehlo(stray, "good").results == ("result0",)
    with pytest.raises(ParseError, match="the character '!' has no meaning here"):
        from_stablehlo(stray, "jumps")
    file = tmp_path / "parts.mlir"
    file.write_text(IN_PART, encoding="utf-8")
    ended = tilewright("verify", "graph", "--on", "interpreter", f"{file}:good")
    assert ended.code == 0 and ended.out.startswith("PASSED")
    ended = tilewright("verify", "graph", "--on", "interpreter", str(file))
    assert sorted(line.partition(" ")[0] for line in ended.lines[:3]) == [
        *("PASSED", "REFUSED", "REFUSED")
    ]
