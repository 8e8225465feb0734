"""StableHLO programs as graphs: their results against numpy, and what is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import (
    ArgumentError,
    ParseError,
    ProblemError,
    Span,
    TilewrightError,
    UnsupportedError,
)
from tilewright.frontends.stablehlo import from_stablehlo
from tilewright.frontends.stablehlo.checks import Check, units_apart
from tilewright.frontends.stablehlo.operations import HANDLERS

X = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


def main(operations: str, takes: str, gives: str, returned: str) -> str:
    many = f"({gives})" if "," in gives else gives
    head = f"func.func @main({takes}) -> {many} {{\n"
    return f"{head}{operations}\nreturn {returned} : {gives}\n}}\n"


def results(text: str, *inputs: Any, target: str = "interpreter") -> list[Any]:
    graph = from_stablehlo(text)
    result = tw.compile(graph, target=target)(*inputs)
    return [result] if len(graph.outputs) == 1 else [result[name] for name in graph.results]


def unary(name: str, type_: str, given: Any, result: str | None = None, settings: str = "") -> Any:
    types = f"({type_}) -> {result or type_}"
    text = main(
        f"%0 = stablehlo.{name} %a{settings} : {types}", f"%a: {type_}", result or type_, "%0"
    )
    return results(text, given)[0]


def binary(name: str, type_: str, a: Any, b: Any) -> Any:
    text = f"%0 = stablehlo.{name} %a, %b : {type_}"
    return results(main(text, f"%a: {type_}, %b: {type_}", type_, "%0"), a, b)[0]


def einsum(equation: str, result: str) -> str:
    config = f'{{einsum_config = "{equation}"}}'
    types = f"(tensor<4x3xf32>, tensor<3xf32>) -> {result}"
    text = f'%0 = "stablehlo.einsum"(%a, %b) {config} : {types}'
    return main(text, "%a: tensor<4x3xf32>, %b: tensor<3xf32>", result, "%0")


@pytest.mark.parametrize(
    ("equation", "result"),
    [("ij,j->i", "4"), ("ij,k->ki", "3x4"), ("ij,j->", ""), ("ij,k->j", "3")],
)
def test_sums_of_products_by_names(equation: str, result: str) -> None:
    """Dims of one operand alone are summed, too."""
    b = np.arange(3, dtype=np.float32) + 1
    type_ = f"tensor<{result}xf32>" if result else "tensor<f32>"
    found = results(einsum(equation, type_), X, b)[0]
    np.testing.assert_allclose(found, np.einsum(equation, X, b), rtol=1e-6)


def test_equations_that_do_not_fit() -> None:
    with pytest.raises(ProblemError, match="the equation 'ijk,j->i', where 'ijk' is f32"):
        from_stablehlo(einsum("ijk,j->i", "tensor<4xf32>"))


def test_a_layer_on_x86() -> None:
    text = main(
        """
%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
  : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
%1 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<5xf32>) -> tensor<4x5xf32>
%2 = stablehlo.add %0, %1 : tensor<4x5xf32>
%3 = call @relu(%2) : (tensor<4x5xf32>) -> tensor<4x5xf32>
""",
        "%a: tensor<4x3xf32>, %b: tensor<3x5xf32>, %c: tensor<5xf32>",
        "tensor<4x5xf32>",
        "%3",
    )  # as programs print it
    text += """
func.func private @relu(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = stablehlo.constant dense<0.0> : tensor<4x5xf32>
  %1 = stablehlo.maximum %x, %0 : tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}
"""
    b, c = np.full((3, 5), 0.5, np.float32), np.arange(5, dtype=np.float32)
    expected = np.maximum(X @ b + c, 0)
    for target in ("interpreter", "x86"):
        (result,) = results(text, X, b, c, target=target)
        np.testing.assert_allclose(result, expected, 1e-6)
    graph = from_stablehlo(text)
    assert graph.inputs == ("a", "b", "c") and graph.outputs == ("result0",)
    assert "compute v3" not in str(graph.kernel)  # calls become part of the graph


def test_integers() -> None:
    a = np.array([7, -7, 7, -7, 5, -128], np.int8)
    b = np.array([2, 2, -2, -2, 0, -1], np.int8)
    type_ = "tensor<6xi8>"
    assert binary("divide", type_, a, b).tolist() == [3, -3, -3, 3, -1, -128]
    assert binary("remainder", type_, a, b).tolist() == [1, -1, 1, -1, 5, 0]
    assert binary("shift_right_logical", type_, a, abs(b)).tolist() == [1, 62, 1, 62, 5, 64]
    assert binary("power", type_, a, np.array([2, 3, 0, -1, 1, 2], np.int8)).tolist() == [
        49, -87, 1, 0, 5, 0,
    ]  # fmt: skip
    big = np.array([2**62, -(2**63)], np.int64)
    assert binary("add", "tensor<2xi64>", big, big).tolist() == [-(2**63), 0]
    flags = np.array([True, True, False])
    other = np.array([True, False, False])
    assert binary("add", "tensor<3xi1>", flags, other).tolist() == [True, True, False]
    assert unary("popcnt", "tensor<6xi8>", a).tolist() == [3, 6, 3, 6, 2, 1]
    nibbles = np.array([7, -8, 3], np.int8)
    assert binary("add", "tensor<3xi4>", nibbles, nibbles).tolist() == [-2, 0, 6]


def test_floats() -> None:
    x = np.array([-2.5, -0.5, 0.5, 1.5, 2.5, np.inf], np.float32)
    assert unary("round_nearest_afz", "tensor<6xf32>", x).tolist() == [-3, -1, 1, 2, 3, np.inf]
    assert unary("round_nearest_even", "tensor<6xf32>", x).tolist() == [-2, -0, 0, 2, 2, np.inf]
    result = unary("reduce_precision", "tensor<6xf32>", x * 1.001, settings=", format = e5m2")
    assert result.tolist() == [-2.5, -0.5, 0.5, 1.5, 2.5, np.inf]
    text = main(
        "%0 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<3xf32>, tensor<3xf32>)"
        " -> tensor<3xi1>",
        "%a: tensor<3xf32>, %b: tensor<3xf32>",
        "tensor<3xi1>",
        "%0",
    )
    a = np.array([-0.0, np.nan, 1.0], np.float32)
    b = np.array([0.0, 1.0, np.nan], np.float32)
    assert results(text, a, b)[0].tolist() == [True, False, True]
    small = np.array([1e-6, -1e-6], np.float32)
    np.testing.assert_allclose(
        unary("exponential_minus_one", "tensor<2xf32>", small), np.expm1(small), 1e-6
    )


def test_complex_numbers_have_a_last_dim_of_two() -> None:
    z = np.array([1 + 2j, -3 + 0.5j, 0.25 - 4j], np.complex64)
    w = np.array([2 - 1j, 1 + 1j, -0.5 + 3j], np.complex64)
    type_ = "tensor<3xcomplex<f32>>"

    def pairs(x: Any) -> Any:
        return np.stack([x.real, x.imag], -1)

    for name, expected in (("add", z + w), ("multiply", z * w), ("divide", z / w), ("power", z**w)):
        result = binary(name, type_, pairs(z), pairs(w))
        np.testing.assert_allclose(result, pairs(expected), 2e-6, 2e-6)
    for name, expected in (("exponential", np.exp(z)), ("sqrt", np.sqrt(z)), ("tanh", np.tanh(z))):
        np.testing.assert_allclose(unary(name, type_, pairs(z)), pairs(expected), 2e-6, 2e-6)
    np.testing.assert_allclose(unary("abs", type_, pairs(z), "tensor<3xf32>"), abs(z), 1e-6)


def test_views() -> None:
    text = main(
        """
%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
%1 = stablehlo.reshape %0 : (tensor<3x4xf32>) -> tensor<2x6xf32>
%2 = stablehlo.slice %1 [0:2, 1:6:2] : (tensor<2x6xf32>) -> tensor<2x3xf32>
%3 = stablehlo.reverse %2, dims = [1] : tensor<2x3xf32>
%4 = stablehlo.constant dense<9.0> : tensor<f32>
%5 = stablehlo.pad %3, %4, low = [1, -1], high = [0, 1], interior = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<3x5xf32>
%6 = stablehlo.iota dim = 1 : tensor<3x2xf32>
%7 = stablehlo.concatenate %5, %6, dim = 1 : (tensor<3x5xf32>, tensor<3x2xf32>) -> tensor<3x7xf32>
""",  # noqa: E501  # as programs print it
        "%a: tensor<4x3xf32>",
        "tensor<3x7xf32>",
        "%7",
    )
    part = X.T.reshape(2, 6)[:, 1:6:2][:, ::-1]
    expected = np.full((3, 7), 9, np.float32)
    expected[1:, 1] = part[:, 1]
    expected[1:, 3] = part[:, 2]
    expected[:, 5], expected[:, 6] = 0, 1
    np.testing.assert_array_equal(results(text, X)[0], expected)


REDUCE = """
%s = stablehlo.constant dense<-1.0e9> : tensor<f32>
%i = stablehlo.iota dim = 1 : tensor<4x3xi32>
%z = stablehlo.constant dense<0> : tensor<i32>
%0:2 = stablehlo.reduce(%a init: %s), (%i init: %z) across dimensions = [1] : (tensor<4x3xf32>, tensor<4x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
 reducer(%x: tensor<f32>, %y: tensor<f32>) (%k: tensor<i32>, %l: tensor<i32>) {
  %c = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %v = stablehlo.select %c, %x, %y : tensor<i1>, tensor<f32>
  %p = stablehlo.select %c, %k, %l : tensor<i1>, tensor<i32>
  stablehlo.return %v, %p : tensor<f32>, tensor<i32>
}
"""  # noqa: E501  # as JAX prints it


def test_reductions() -> None:
    text = main(REDUCE, "%a: tensor<4x3xf32>", "tensor<4xf32>, tensor<4xi32>", "%0#0, %0#1")
    x = X[:, ::-1] * np.array([[1], [-1], [1], [-1]], np.float32)
    values, places = results(text, np.ascontiguousarray(x))
    np.testing.assert_array_equal(values, x.max(1))
    np.testing.assert_array_equal(places, x.argmax(1))
    window = main(
        """
%z = stablehlo.constant dense<0.0> : tensor<f32>
%0 = "stablehlo.reduce_window"(%a, %z) <{padding = dense<[[3, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 4, 1>}> ({
^bb0(%x: tensor<f32>, %y: tensor<f32>):
  %s = stablehlo.add %x, %y : tensor<f32>
  stablehlo.return %s : tensor<f32>
}) : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
""",  # noqa: E501  # as JAX prints it
        "%a: tensor<4x3xf32>",
        "tensor<4x3xf32>",
        "%0",
    )
    np.testing.assert_allclose(results(window, X)[0], np.cumsum(X, 0))
    # Of narrow floats, each step rounds: 256 + 1 is 256, and again.
    narrow = np.zeros((4, 3), ml_dtypes.bfloat16)
    narrow[:, 0] = 256, 1, 1, 2
    result = results(window.replace("f32", "bf16"), narrow)[0].astype(np.float32)
    assert result[:, 0].tolist() == [256, 256, 256, 258]


def test_select_and_scatter() -> None:
    text = main(
        """
%z = stablehlo.constant dense<0.0> : tensor<f32>
%0 = "stablehlo.select_and_scatter"(%a, %s, %z) <{window_dimensions = array<i64: 2, 1>, window_strides = array<i64: 2, 1>}> ({
^bb0(%x: tensor<f32>, %y: tensor<f32>):
  %c = stablehlo.compare GE, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %c : tensor<i1>
}, {
^bb0(%x: tensor<f32>, %y: tensor<f32>):
  %c = stablehlo.add %x, %y : tensor<f32>
  stablehlo.return %c : tensor<f32>
}) : (tensor<4x3xf32>, tensor<2x3xf32>, tensor<f32>) -> tensor<4x3xf32>
""",  # noqa: E501  # as JAX prints it
        "%a: tensor<4x3xf32>, %s: tensor<2x3xf32>",
        "tensor<4x3xf32>",
        "%0",
    )
    x = np.array([[1, 5, 2], [1, 4, 3], [9, 0, 0], [8, 1, 0]], np.float32)
    source = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    expected = np.array([[1, 2, 0], [0, 0, 3], [4, 0, 6], [0, 5, 0]], np.float32)
    np.testing.assert_array_equal(results(text, x, source)[0], expected)


def test_control_flow() -> None:
    text = main(
        """
%0 = stablehlo.constant dense<0> : tensor<i32>
%1 = stablehlo.constant dense<1> : tensor<i32>
%2:2 = stablehlo.while(%i = %0, %x = %a) : tensor<i32>, tensor<3xf32>
 cond {
  %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %c : tensor<i1>
 } do {
  %j = stablehlo.add %i, %1 : tensor<i32>
  %y = stablehlo.add %x, %x : tensor<3xf32>
  stablehlo.return %j, %y : tensor<i32>, tensor<3xf32>
 }
%3 = stablehlo.compare EQ, %2#0, %1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
%4 = "stablehlo.if"(%3) ({
  stablehlo.return %a : tensor<3xf32>
}, {
  %n2 = stablehlo.negate %2#1 : tensor<3xf32>
  stablehlo.return %n2 : tensor<3xf32>
}) : (tensor<i1>) -> tensor<3xf32>
""",
        "%a: tensor<3xf32>, %n: tensor<i32>",
        "tensor<3xf32>",
        "%4",
    )
    x = np.array([1, 2, 3], np.float32)
    graph = tw.compile(from_stablehlo(text), target="x86")
    for count, factor in ((0, -1), (1, 1), (3, -8)):
        expected = x * factor
        np.testing.assert_array_equal(results(text, x, np.array(count, np.int32))[0], expected)
        np.testing.assert_array_equal(graph(x, np.array(count, np.int32)), expected)


def test_dynamic_operations_whose_shapes_constants_decide() -> None:
    text = main(
        """
%0 = stablehlo.get_dimension_size %a, dim = 0 : (tensor<4x3xf32>) -> tensor<i32>
%1 = stablehlo.constant dense<2> : tensor<i32>
%2 = stablehlo.multiply %0, %1 : tensor<i32>
%3 = stablehlo.reshape %2 : (tensor<i32>) -> tensor<1xi32>
%4 = stablehlo.constant dense<3> : tensor<1xi32>
%5 = stablehlo.concatenate %4, %3, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
%6 = stablehlo.dynamic_iota %5, dim = 1 : (tensor<2xi32>) -> tensor<?x?xf32>
""",
        "%a: tensor<4x3xf32>",
        "tensor<?x?xf32>",
        "%6",
    )
    expected = np.broadcast_to(np.arange(8, dtype=np.float32), (3, 8))
    np.testing.assert_array_equal(results(text, X)[0], expected)


OPEN = main(
    """
%0 = stablehlo.convert %n : (tensor<i64>) -> tensor<i32>
%1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
%2 = stablehlo.dynamic_broadcast_in_dim %x, %1, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
%3 = stablehlo.add %a, %2 : tensor<?xf32>
""",  # noqa: E501  # as JAX prints it
    "%n: tensor<i64>, %a: tensor<?xf32>, %x: tensor<f32>",
    "tensor<?xf32>",
    "%3",
)


def test_open_sizes_that_arguments_say() -> None:
    graph = from_stablehlo(OPEN, arguments={"n": 3, "a": (3,)})
    assert graph.inputs == ("a", "x")
    a = np.array([1, 2, 3], np.float32)
    result = tw.compile(graph, target="interpreter")(a, np.array(0.5, np.float32))
    np.testing.assert_array_equal(result, a + 0.5)
    for arguments, message in (
        ({"n": 3, "a": (4,)}, "at the same places"),
        ({"n": 3, "a": (3, 1)}, "not of the shape"),
        ({"n": 3, "a": (-1,)}, "not of the shape"),
        ({"n": 3, "a": (3,), "b": 1}, "has no argument 'b'"),
        ({"n": 3, "a": (3,), "x": 1}, "what decides sizes are integers"),
    ):
        with pytest.raises(ProblemError, match=message):
            from_stablehlo(OPEN, arguments=arguments)


def test_quantized_types() -> None:
    q = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>"
    wide = "tensor<4x!quant.uniform<i8:f32, 0.25>>"
    text = main(
        f"""
%0 = stablehlo.uniform_quantize %a : (tensor<4xf32>) -> {q}
%1 = "stablehlo.add"(%0, %0) : ({q}, {q}) -> {wide}
%2 = stablehlo.bitcast_convert %0 : ({q}) -> tensor<4xi8>
%3 = stablehlo.uniform_dequantize %1 : ({wide}) -> tensor<4xf32>
""",
        "%a: tensor<4xf32>",
        "tensor<4xi8>, tensor<4xf32>",
        "%2, %3",
    )
    stored, floats = results(text, np.array([0.6, -0.25, 100.0, -7.1], np.float32))
    assert stored.tolist() == [4, 3, 127, -11]
    assert floats.tolist() == [1.0, 0.0, 31.75, -14.0]
    axis = "tensor<2x2x!quant.uniform<i8:f32:1, {0.5, 2.0:1}>>"
    text = main(
        f"%0 = stablehlo.uniform_quantize %a : (tensor<2x2xf32>) -> {axis}\n"
        f"%1 = stablehlo.bitcast_convert %0 : ({axis}) -> tensor<2x2xi8>",
        "%a: tensor<2x2xf32>",
        "tensor<2x2xi8>",
        "%1",
    )
    result = results(text, np.array([[1, 1], [3, 7]], np.float32))[0]
    assert result.tolist() == [[2, 1], [6, 5]]  # 1 / 2 is rounded to even


def test_checks() -> None:
    text = """
func.func @main() {
  %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = stablehlo.add %0, %0 : tensor<2xf32>
  check.expect_eq_const %1, dense<[2.0, 4.0]> : tensor<2xf32>
  %2 = stablehlo.constant dense<[2.0, 4.5]> : tensor<2xf32>
  stablehlo.custom_call @check.expect_close(%1, %2) : (tensor<2xf32>, tensor<2xf32>) -> ()
  return
}
"""
    graph = from_stablehlo(text)
    result = tw.compile(graph, target="interpreter")()
    first, second = graph.checks
    assert first.fault(result) is None
    assert second.fault(result) == "1 of 2 elements differ: at [1] it is 4.0, expected 4.5"
    assert (second.kind, second.ulps, second.span.line) == ("close", 3, 7)


def test_units_apart() -> None:
    a = np.array([1.0, 0.0, -1e-45, 1.0], np.float32)
    b = np.array([np.nextafter(np.float32(1), np.float32(2)), -0.0, 1e-45, -1.0], np.float32)
    assert units_apart(a, b).tolist()[:3] == [1, 0, 2]
    assert units_apart(a, b)[3] > 2e9
    nan = np.array([np.nan, np.nan], np.float32)
    check = Check("close", ("a",), ("b",), Span("x", 0, 1))
    assert check.fault({"a": nan, "b": nan}) is None
    assert check.fault({"a": nan, "b": a[:2]}) is not None


A = "%a: tensor<2xf32>"
REFUSED: dict[str, tuple[str, type[TilewrightError], str]] = {
    "unknown": ('%0 = "stablehlo.foo"(%a) : (tensor<2xf32>) -> tensor<2xf32>', UnsupportedError,
                "stablehlo.foo is not translated"),
    "devices": ("%0 = stablehlo.replica_id : tensor<ui32>", UnsupportedError, "several devices"),
    "custom call": ("%0 = stablehlo.custom_call @cublas(%a) : (tensor<2xf32>) -> tensor<2xf32>",
                    UnsupportedError, "custom call @cublas"),
    "shapes": ('%b = stablehlo.constant dense<1.0> : tensor<3xf32>\n%0 = "stablehlo.add"(%a, %b)'
               " : (tensor<2xf32>, tensor<3xf32>) -> tensor<2xf32>", ProblemError,
               "broadcast them"),
    "result": ('%0 = "stablehlo.abs"(%a) : (tensor<2xf32>) -> tensor<3xf32>', ProblemError,
               "of type tensor<2xf32>, not tensor<3xf32>"),
    "elements": ('%b = stablehlo.constant dense<1> : tensor<2xi32>\n%0 = "stablehlo.add"(%a, %b)'
                 " : (tensor<2xf32>, tensor<2xi32>) -> tensor<2xf32>", ProblemError,
                 "one element type"),
    "count": ('%0 = "stablehlo.add"(%a) : (tensor<2xf32>) -> tensor<2xf32>', ProblemError,
              "takes 2 operands"),
    "kind": ('%0 = "stablehlo.xor"(%a, %a) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>',
             UnsupportedError, "not defined on f32"),
    "attribute": ('%0 = "stablehlo.transpose"(%a) {permutation = array<i64: 1>}'
                  " : (tensor<2xf32>) -> tensor<2xf32>", ProblemError, "an order of the 1 dims"),
    "no dims": ('%b = stablehlo.constant dense<[[1], [2]]> : tensor<2x1xi64>\n%0 = '
                '"stablehlo.broadcast_in_dim"(%b) : (tensor<2x1xi64>) -> tensor<2x2x2xi64>',
                ProblemError, "broadcast_dimensions of .* is not a list of 2 numbers"),
    "no such attribute": ('%0 = "stablehlo.abs"(%a) {dimension_s = 1} : (tensor<2xf32>) -> '
                          "tensor<2xf32>", ProblemError, "has no attribute 'dimension_s'"),
    "missing": ('%0 = "stablehlo.transpose"(%a) : (tensor<2xf32>) -> tensor<2xf32>', ProblemError,
                "permutation of stablehlo.transpose"),
    "shape from data": ("%0 = stablehlo.dynamic_iota %n, dim = 0"
                        " : (tensor<1xi32>) -> tensor<?xf32>",
                        UnsupportedError, "depends on data"),
    "recursion": ("%0 = call @main(%a, %n) : (tensor<2xf32>, tensor<1xi32>) -> tensor<2xf32>",
                  UnsupportedError, "calls itself"),
    "callee": ("%0 = call @g(%a) : (tensor<2xf32>) -> tensor<2xf32>", ProblemError,
               "a function of this module"),
    "element": ("%0 = stablehlo.convert %a : (tensor<2xf32>) -> tensor<2xf8E3M4>",
                UnsupportedError, "nothing computes on f8E3M4"),
    "region": ('%s = stablehlo.constant dense<0.0> : tensor<f32>\n%0 = "stablehlo.reduce"(%a, %s)'
               " <{dimensions = array<i64: 0>}> ({\n^bb0(%x: tensor<f32>):\n  stablehlo.return %x"
               " : tensor<f32>\n}) : (tensor<2xf32>, tensor<f32>) -> tensor<f32>", ProblemError,
               "takes 1 values, not 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    operations, kind, message = REFUSED[name]
    text = main(operations, f"{A}, %n: tensor<1xi32>", "tensor<2xf32>", "%a")
    with pytest.raises(kind, match=message) as caught:
        from_stablehlo(text)
    assert caught.value.span is not None and caught.value.cure


def test_one_number_takes_no_memory_whatever_its_size() -> None:
    text = "%c = stablehlo.constant dense<1.0> : tensor<4000000x1000000xf32>\n"
    text += "%0 = stablehlo.slice %c [7:8, 0:2] : (tensor<4000000x1000000xf32>) -> tensor<1x2xf32>"
    text = main(text, A, "tensor<1x2xf32>", "%0")
    assert not from_stablehlo(text).constants
    assert results(text, np.zeros(2, np.float32))[0].tolist() == [[1.0, 1.0]]


def test_refused_arguments() -> None:
    with pytest.raises(ArgumentError, match="is no program of StableHLO"):
        from_stablehlo(b"func.func")  # type: ignore[arg-type]  # what is checked
    with pytest.raises(UnsupportedError, match=r"%a is of type tensor<\*xf32>"):
        from_stablehlo(main("", "%a: tensor<*xf32>", "tensor<*xf32>", "%a"))
    with pytest.raises(ProblemError, match=r"there is no function @f"):
        from_stablehlo(main("", A, "tensor<2xf32>", "%a"), function="f")
    with pytest.raises(UnsupportedError, match=r"@main returns nothing"):
        from_stablehlo("func.func @main() { return }")
    with pytest.raises(ParseError, match=r"model\.mlir:1:1"):
        from_stablehlo("x", file="model.mlir")


ANNOTATED = """
module {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  "sdy.mesh"() <{mesh = #sdy.mesh<["x"=2]>, sym_name = "other"}> : () -> ()
  func.func @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
      -> tensor<4xf32> {
    %0 = sdy.sharding_constraint %x <@mesh, [{"x", ?}]> : tensor<4xf32>
    %1 = "sdy.sharding_constraint"(%0) <{sharding = #sdy.sharding<@mesh, [{}]>}>
      : (tensor<4xf32>) -> tensor<4xf32>
    %2 = stablehlo.add %0, %1 : tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}
"""


def test_how_tensors_lie_over_devices_says_nothing() -> None:
    program = tw.compile(tw.from_stablehlo(ANNOTATED), target="interpreter")
    np.testing.assert_array_equal(program(np.arange(4, dtype=np.float32)), [0, 2, 4, 6])
    broken = ANNOTATED.replace("<@mesh, [{}]>}>", "<@mesh, [{}]>")
    with pytest.raises(ParseError):
        tw.from_stablehlo(broken)


TAKEN = (1, 2, 3)


@pytest.mark.parametrize("count", range(6))
def test_any_number_of_operands_is_taken_or_refused(count: int) -> None:
    outcomes = set()
    for name in HANDLERS:
        operands, types = ", ".join(["%a"] * count), ", ".join(["tensor<4x3xf32>"] * count)
        for attributes in ("", "{dimension = 0 : i64}", "{dimensions = array<i64: 0>}"):
            text = f'%0 = "{name}"({operands}) {attributes} : ({types}) -> tensor<4x3xf32>'
            try:
                from_stablehlo(main(text, "%a: tensor<4x3xf32>", "tensor<4x3xf32>", "%0"))
                outcomes.add("taken")
            except TilewrightError:
                outcomes.add("refused")
    assert "refused" in outcomes and ("taken" in outcomes) == (count in TAKEN)
