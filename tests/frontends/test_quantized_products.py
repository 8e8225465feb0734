"""Products of quantized tensors, as ONNX and StableHLO say them, against float64."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import UnsupportedError
from tilewright.graph.passes.pipeline import optimized

onnx = pytest.importorskip("onnx")
reference: Any = import_module("onnx.reference")
helper = onnx.helper
RNG = np.random.default_rng


def model(nodes: list[Any], shapes: dict[str, Any], **constants: Any) -> Any:
    """A model of x and y, of u8 or f32 by their ``shapes`` (type, sizes)."""
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", *shapes["x"])],
        [helper.make_tensor_value_info("y", *shapes["y"])],
        [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def results(graph: Any, x: Any) -> Any:
    """What a graph of a product of integers gives."""
    text = str(optimized(graph.kernel, check=True))
    assert "add= s32(" in text and "f32 add=" not in text
    return tw.compile(graph, target="interpreter")(x)


def next_to(got: Any, place: Any) -> None:
    """That ``got``, of u8, are the integers next to ``place``: either about halfway."""
    wanted = np.clip(np.rint(place), 0, 255)
    is_tie = np.abs(np.abs(place - np.floor(place)) - 0.5) < 1e-3
    assert np.all(np.abs(got - wanted) <= is_tie)
    assert len(np.unique(wanted)) > 15


def settings(count: int, seed: int) -> tuple[Any, Any]:
    """Scales and zero points of channels."""
    rng = RNG(seed)
    scales = rng.uniform(0.2, 2, count).astype(np.float32) / 100
    return scales, rng.integers(-9, 9, count).astype(np.int8)


def convolved(x: Any, w: Any) -> Any:
    """The convolution with (O, C, 3, 3) weights and padding of 1, in float64."""
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    return np.einsum("nchwij,ocij->nohw", windows, w)


def test_quantized_convolutions_with_scales_of_channels() -> None:
    rng = RNG(0)
    x = rng.integers(0, 256, (2, 4, 5, 6)).astype(np.uint8)
    w = rng.integers(-128, 128, (5, 4, 3, 3)).astype(np.int8)
    scales, zeros = settings(5, 1)
    bias = rng.integers(-9999, 9999, 5).astype(np.int32)
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    result = model(
        [helper.make_node("QLinearConv", names, ["y"], pads=[1, 1, 1, 1])],
        {"x": (2, x.shape), "y": (2, (2, 5, 5, 6))},
        sx=np.float32(0.05),
        zx=np.uint8(99),
        w=w,
        sw=scales,
        zw=zeros,
        sy=np.float32(0.5),
        zy=np.uint8(120),
        b=bias,
    )
    sums = convolved(x - 99.0, w - zeros.astype(float)[:, None, None, None])
    sums += bias[:, None, None]
    factors = np.float64(np.float32(0.05)) * scales.astype(float)[:, None, None] / 0.5
    next_to(results(tw.from_onnx(result), x), sums * factors + 120)


def of_matrices(scales: Any, zeros: Any, w: Any, shape: tuple[int, ...]) -> Any:
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    return model(
        [helper.make_node("QLinearMatMul", names, ["y"])],
        {"x": (2, shape), "y": (2, (*shape[:-1], w.shape[-1]))},
        sx=np.float32(0.05),
        zx=np.uint8(99),
        w=w,
        sw=scales,
        zw=zeros,
        sy=np.float32(0.5),
        zy=np.uint8(120),
    )


def test_quantized_products_with_scales_of_columns() -> None:
    rng = RNG(0)
    x = rng.integers(0, 256, (2, 7, 24)).astype(np.uint8)
    w = rng.integers(-128, 128, (24, 6)).astype(np.int8)
    scales, zeros = settings(6, 1)
    exact = (x - 99.0) @ ((w - zeros.astype(float)) * scales)
    place = exact * np.float64(np.float32(0.05)) / 0.5 + 120
    next_to(results(tw.from_onnx(of_matrices(scales, zeros, w, x.shape)), x), place)


def test_scales_of_no_columns_are_refused() -> None:
    scales, zeros = settings(12, 1)
    w = np.ones((2, 24, 6), np.int8)
    result = of_matrices(scales.reshape(2, 1, 6), zeros.reshape(2, 1, 6), w, (2, 7, 24))
    with pytest.raises(UnsupportedError, match="scales"):
        tw.from_onnx(result)


def test_biases_of_32_bits_are_dequantized() -> None:
    rng = RNG(0)
    x = rng.normal(size=(2, 4, 5, 6)).astype(np.float32) * 3
    w = rng.integers(-128, 128, (5, 4, 3, 3)).astype(np.int8)
    scales, _ = settings(5, 1)
    bias = rng.integers(-(2**14), 2**14, 5).astype(np.int32)
    node = helper.make_node
    result = model(
        [
            node("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
            node("DequantizeLinear", ["q", "sx", "zx"], ["a"]),
            node("DequantizeLinear", ["w", "sw"], ["b"], axis=0),
            node("DequantizeLinear", ["bias", "sb"], ["c"], axis=0),
            node("Conv", ["a", "b", "c"], ["y"], pads=[1, 1, 1, 1]),
        ],
        {"x": (1, x.shape), "y": (1, (2, 5, 5, 6))},
        sx=np.float32(0.0625),
        zx=np.uint8(99),
        w=w,
        sw=scales,
        bias=bias,
        sb=scales * np.float32(0.0625),
    )
    got = results(tw.from_onnx(result), x)
    a = (np.clip(np.rint(x / 0.0625) + 99, 0, 255) - 99) * 0.0625
    exact = convolved(a, w * scales.astype(float)[:, None, None, None])
    exact += (bias * scales.astype(float) * 0.0625)[:, None, None]
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-4)
    (wanted,) = reference.ReferenceEvaluator(result).run(None, {"x": x})
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


def test_quantized_types_of_stablehlo() -> None:
    rng = RNG(0)
    x = rng.integers(0, 256, (7, 24)).astype(np.uint8)
    scales = "0.01:-3, 0.0234375:0, 0.005:7"
    a, b = "7x24x!quant.uniform<u8:f32, 0.05:99>", f"24x3x!quant.uniform<i8:f32:1, {{{scales}}}>"
    c = "7x3x!quant.uniform<u8:f32, 0.5:120>"
    w = rng.integers(-128, 128, (24, 3)).astype(np.int8)
    text = f"""
func.func @main(%x: tensor<7x24xui8>) -> tensor<7x3xui8> {{
  %0 = stablehlo.bitcast_convert %x : (tensor<7x24xui8>) -> tensor<{a}>
  %1 = stablehlo.constant dense<{w.tolist()}> : tensor<24x3xi8>
  %2 = stablehlo.bitcast_convert %1 : (tensor<24x3xi8>) -> tensor<{b}>
  %3 = "stablehlo.dot_general"(%0, %2) <{{dot_dimension_numbers = #stablehlo.dot<
    lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>}}>
    : (tensor<{a}>, tensor<{b}>) -> tensor<{c}>
  %4 = stablehlo.bitcast_convert %3 : (tensor<{c}>) -> tensor<7x3xui8>
  return %4 : tensor<7x3xui8>
}}
"""
    exact = (x - 99.0) @ ((w - [-3.0, 0.0, 7.0]) * np.array([0.01, 0.0234375, 0.005]))
    next_to(results(tw.from_stablehlo(text), x), exact * 0.05 / 0.5 + 120)
