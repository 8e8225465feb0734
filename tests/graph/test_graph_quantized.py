"""Products of quantized factors as integers: what they give, and that they are integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from graphs import graph, run
from needs import needs_x86
from tilewright.dtypes import DType, bf16, f32, s8, u8, u32
from tilewright.graph.graph import Graph
from tilewright.graph.passes.integer_products import integer_products
from tilewright.graph.passes.pipeline import optimized
from tilewright.interpret import run as interpret
from tilewright.ir import Compute, Kernel, walk_stmts
from tilewright.ir.expr import cast, const, maximum, unary
from tilewright.problems.functions import clamped
from tilewright.tensor.contractions import dot_general
from tilewright.tensor.convolution import convolution
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_in_dim, pad

torch = pytest.importorskip("torch")

RNG = np.random.default_rng


def dequantized(x: Tensor, scale: Any, zero: Any, axis: int = 0) -> Tensor:
    """``(x - zero) * scale`` in f32, with numbers or arrays along ``axis``."""
    factors = [along(x, factor, axis) for factor in (scale, zero)]
    return elementwise(lambda q, s, z: (cast(f32, q) - z) * s, x, *factors, name="dequantized")


def along(x: Tensor, value: Any, axis: int) -> Tensor:
    if np.ndim(value) == 0:
        return x.builder.splat(float(value), "f32", x.shape)
    return broadcast_in_dim(x.builder.constant(np.float32(value)), x.shape, (axis,))


def quantized(x: Tensor, scale: float, zero: int, to: DType) -> Tensor:
    def value(v: Any) -> Any:
        return cast(to, clamped(unary("round", v / scale) + float(zero), to.lowest, to.highest))

    return elementwise(value, x, dtype=to, name="quantized")


def integers(rng: np.random.Generator, to: DType, *shape: int) -> np.ndarray[Any, Any]:
    result: np.ndarray[Any, Any] = rng.integers(int(to.lowest), int(to.highest) + 1, shape).astype(
        to.numpy
    )
    return result


def products(kernel: Kernel) -> list[tuple[str, str, str]]:
    """Of each sum of products, the types of its sums and its factors."""
    return [
        (str(stmt.out.buffer.dtype), *(str(o.view.buffer.dtype) for o in stmt.operands[:2]))
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Compute) and stmt.combiner == "add" and len(stmt.operands) == 2
    ]


def floats(kernel: Kernel) -> list[tuple[str, ...]]:
    """Its sums of products of floats."""
    return [product for product in products(kernel) if product[0] == "f32"]


def close(got: Any, exact: Any, scale: float, zero: int, to: DType) -> None:
    """That ``got`` are the integers next to ``exact``: either where that is about halfway."""
    place = exact / scale + zero
    wanted = np.clip(np.rint(place), to.lowest, to.highest)
    got = got.astype(np.float64)
    is_tie = np.abs(np.abs(place - np.floor(place)) - 0.5) < 1e-3
    assert np.all(np.abs(got - wanted) <= is_tie)
    assert len(np.unique(wanted)) > 3  # It is no constant.


# Types, scales and zero points.
FACTORS = [
    (u8, 120, s8, "none"),
    (u8, 0, s8, "none"),
    (s8, -7, s8, "none"),
    (u8, 3, u8, "all"),
    (s8, 5, u8, "each"),
    (s8, 0, s8, "each"),
]


def relu(x: Tensor) -> Tensor:
    return elementwise(lambda v: maximum(v, const(0.0, v.type)), x, name="relu")


def near(x: Any, step: float) -> Any:
    """What f32 makes of a scale, in f64."""
    return x * np.float64(np.float32(step))


@pytest.mark.parametrize("case", range(2 * len(FACTORS)))
def test_convolutions_are_of_integers(case: int) -> None:
    rng, (ta, za, tb, zeros) = RNG(case), FACTORS[case % len(FACTORS)]
    groups = int(rng.choice([1, 2, 8]))
    channels, outputs, taps = (
        8,
        int(rng.choice([8, 16])),
        3 if groups == 8 else int(rng.choice([1, 3])),
    )
    stride, pad = int(rng.choice([1, 2])), int(rng.choice([0, 1, taps // 2]))
    x = integers(rng, ta, 2, channels, 7, int(rng.choice([6, 9])))
    w = integers(rng, tb, outputs, channels // groups, taps, taps)
    scale = rng.uniform(0.5, 1.5, outputs).astype(np.float32) / 200
    zb = {"none": np.zeros(outputs), "all": 128, "each": rng.integers(-9, 9, outputs)}[zeros]
    bias = rng.normal(size=outputs).astype(np.float32)

    def build(x: Tensor) -> Tensor:
        factor = dequantized(x.builder.constant(w), scale, zb)
        sums = convolution(
            dequantized(x, 0.05, za),
            factor,
            strides=(stride,) * 2,
            padding=((pad, pad),) * 2,
            feature_groups=groups,
        )
        shifted = elementwise(lambda v, b: v + b, sums, along(sums, bias, 1))
        return quantized(relu(shifted) if case % 2 else shifted, 0.125, 100, u8)

    after = optimized(graph(build, x=x), check=True)
    assert ("s32", "u8", "s8") in products(after) and not floats(after)
    zeros_b = np.broadcast_to(zb, outputs).reshape(-1, 1, 1, 1)
    exact = torch.nn.functional.conv2d(
        torch.tensor(near(x - float(za), 0.05)),
        torch.tensor((w - zeros_b) * scale.astype(np.float64).reshape(-1, 1, 1, 1)),
        torch.tensor(bias.astype(np.float64)),
        stride=stride,
        padding=pad,
        groups=groups,
    ).numpy()
    (got,) = run(after, x=x)
    close(got, np.maximum(exact, 0) if case % 2 else exact, 0.125, 100, u8)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("case", range(len(FACTORS)))
def test_products_of_matrices_are_of_integers(case: int, batch: tuple[int, ...]) -> None:
    """Without a batch, the second is a constant with scales of columns; with one, neither is."""
    rng, (ta, za, tb, zeros) = RNG(case), FACTORS[case]
    x, w = integers(rng, ta, *batch, 5, 24), integers(rng, tb, *batch, 24, 6)
    scale = rng.uniform(0.5, 1.5, 6).astype(np.float32) / 200 if not batch else 0.005
    zb = {"none": 0, "all": 128, "each": 9 if batch else rng.integers(-9, 9, 6)}[zeros]
    first = len(batch)
    pairs = (tuple(range(first)),) * 2

    def build(x: Tensor, *rest: Tensor) -> Tensor:
        b = (
            dequantized(*rest, scale, zb)
            if rest
            else dequantized(x.builder.constant(w), scale, zb, 1)
        )
        sums = dot_general(dequantized(x, 0.05, za), b, pairs, ((first + 1,), (first,)))
        return quantized(sums, 0.125, -5, s8)

    arrays = {"x": x, "w": w} if batch else {"x": x}
    after = optimized(graph(build, **arrays), check=True)
    assert ("s32", "u8", "s8") in products(after) and not floats(after)
    exact = near(x - float(za), 0.05) @ ((w - np.float64(zb)) * np.float64(np.float32(scale)))
    close(run(after, **arrays)[0], exact, 0.125, -5, s8)


def padded(x: Tensor, low: tuple[int, ...], high: tuple[int, ...]) -> Tensor:
    return pad(x, x.builder.splat(0.0, "f32", ()), low, high)


# Of a product of batches, how many zeros are before and after both factors, of (b, m, k), (b, k, n)
_NONE = (0, 0, 0)
PADDING = {
    "rows": ((0, 1, 0), (0, 2, 0), _NONE, _NONE),
    "batch": ((2, 0, 0), (1, 0, 0), _NONE, _NONE),
    "batches": ((2, 0, 0), (1, 0, 0), (1, 0, 0), (2, 0, 0)),
    "sums": ((0, 0, 1), (0, 0, 2), (0, 2, 0), (0, 1, 0)),
    "columns": (_NONE, _NONE, (0, 0, 2), (0, 0, 1)),
}


@pytest.mark.parametrize("case", PADDING)
def test_zeros_around_either_factor(case: str) -> None:
    """They stand for the number 0, not for the integer."""
    rng, (low, high, low_w, high_w) = RNG(0), PADDING[case]
    x = integers(rng, u8, 2, 5, 24)
    w = integers(rng, s8, 5 if case == "batch" else 2, 24, 6)

    def build(x: Tensor, w: Tensor) -> Tensor:
        a = padded(dequantized(x, 0.5, 3), low, high)
        b = padded(dequantized(w, 0.25, 9), low_w, high_w)
        return dot_general(a, b, ((0,), (0,)), ((2,), (1,)))

    after = optimized(graph(build, x=x, w=w), check=True)
    assert products(after) == [("s32", "u8", "s8")]
    a = np.pad((x - 3.0) * 0.5, list(zip(low, high, strict=True)))
    b = np.pad((w - 9.0) * 0.25, list(zip(low_w, high_w, strict=True)))
    np.testing.assert_allclose(run(after, x=x, w=w)[0], a @ b, rtol=1e-6)


@pytest.mark.parametrize("divided", [False, True])
def test_zeros_around_channels(divided: bool) -> None:
    """They have no scales and zero points of their own."""
    rng = RNG(0)
    x, w = integers(rng, u8, 5, 24), integers(rng, s8, 24, 6)
    scale, zero = rng.uniform(0.5, 1.5, 6).astype(np.float32), integers(rng, s8, 6)

    def build(x: Tensor) -> Tensor:
        b = x.builder.constant(w)
        factors = (along(b, 1 / scale if divided else scale, 1), along(b, zero, 1))

        def value(q: Any, s: Any, z: Any) -> Any:
            whole = cast(f32, q) - z
            return whole / s if divided else whole * s

        b = padded(elementwise(value, b, *factors), (0, 1), (0, 2))
        return dot_general(dequantized(x, 0.5, 3), b, ((), ()), ((1,), (0,)))

    after = optimized(graph(build, x=x), check=True)
    assert products(after) == [("s32", "u8", "s8")]
    exact = np.pad((x - 3.0) * 0.5 @ ((w - zero.astype(float)) * scale), ((0, 0), (1, 2)))
    np.testing.assert_allclose(run(after, x=x)[0], exact, rtol=1e-6, atol=1e-4)


def test_inputs_of_one_type() -> None:
    """One of them is made s8, before all else."""
    rng = RNG(0)
    x, w = integers(rng, u8, 5, 24), integers(rng, u8, 24, 6)

    def build(x: Tensor, w: Tensor) -> Tensor:
        return dot_general(x, w, ((), ()), ((1,), (0,)), accumulator=f32, dtype=f32)

    after = optimized(graph(build, x=x, w=w), check=True)
    assert products(after) == [("s32", "u8", "s8")]
    np.testing.assert_array_equal(run(after, x=x, w=w)[0], x.astype(float) @ w)


@pytest.mark.parametrize(("type_", "zero"), [(u8, 200), (u32, 200), (f32, 2.0**32)])
def test_differences_that_are_no_zero_points(type_: DType, zero: float) -> None:
    """Those of unsigned integers wrap around, and s32 does not have all numbers."""
    rng = RNG(0)
    x, w = integers(rng, u8, 5, 24), integers(rng, s8, 24, 6)

    def build(x: Tensor, w: Tensor) -> Tensor:
        a = elementwise(lambda v: cast(f32, cast(type_, v) - const(zero, type_)), x)
        return dot_general(a, dequantized(w, 1.0, 0), ((), ()), ((1,), (0,)))

    a = (x.astype(type_.numpy) - np.array(zero, type_.numpy)).astype(np.float64)
    (got,) = run(optimized(graph(build, x=x, w=w), check=True), x=x, w=w)
    np.testing.assert_allclose(got, a @ w, rtol=1e-5, atol=1e-5 * np.abs(a).max() * 24 * 128)


def contents(kernel: Kernel) -> dict[str, Any]:
    """The constants of ``kernel`` by name."""
    return {p.name: kernel.constants[p.digest] for p in kernel.arrays if p.digest is not None}


def chain(x: Tensor, w: Any, v: Any, between: DType) -> Tensor:
    """Two convolutions with a sum of what goes in and comes out; between them ``between``."""
    low = -128 if between is s8 else 0
    weights = [dequantized(x.builder.constant(array), 0.004, 0) for array in (w, v)]
    wide = dequantized(quantized(x, 0.0625, low + 100, between), 0.0625, low + 100)
    first = convolution(wide, weights[0], padding=((1, 1), (1, 1)))
    middle = dequantized(quantized(relu(first), 0.0625, low, between), 0.0625, low)
    second = convolution(middle, weights[1])
    total = elementwise(lambda a, b: a + b, second, wide)
    return dequantized(quantized(total, 0.25, low + 90, between), 0.25, low + 90)


@needs_x86
@pytest.mark.parametrize("target", ["interpreter", "x86"])
@pytest.mark.parametrize("between", [u8, s8])
def test_chains_keep_integers_between_kernels(between: DType, target: str) -> None:
    rng = RNG(7)
    x = rng.normal(size=(1, 16, 9, 9)).astype(np.float32) * 3
    w, v = integers(rng, s8, 16, 16, 3, 3), integers(rng, s8, 16, 16, 1, 1)
    kernel = graph(lambda x: chain(x, w, v, between), x=x)
    after = optimized(kernel, check=True)
    assert products(after) == [("s32", "u8", "s8")] * 2
    wanted = np.zeros((1, 16, 9, 9), np.float32)
    interpret(kernel, {"x": x.ravel(), "y": wanted.ravel(), **contents(kernel)})
    (got,) = run(after, target, x=x)
    steps = np.abs(got.astype(np.float64) - wanted) / 0.25
    assert steps.max() <= 1.001 and np.mean(steps > 0.1) < 0.01
    assert len(np.unique(wanted)) > 20
    # Between the kernels there are integers of 8 bits only.
    program = tw.compile(Graph(kernel), target="x86")
    held = {b.dtype.bits for launch in program.launches for b in launch.buffers if b.rank == 4}
    assert held == {8, 32} and len(program.launches) == 3


def test_sums_that_s32_may_not_hold_stay_floats() -> None:
    rng = RNG(0)
    x, w = integers(rng, u8, 2, 90000), integers(rng, s8, 90000, 3)

    def build(x: Tensor) -> Tensor:
        b = dequantized(x.builder.constant(w), 0.01, 0)
        return dot_general(dequantized(x, 0.05, 200), b, ((), ()), ((1,), (0,)))

    kernel = graph(build, x=x)
    assert integer_products(kernel) is kernel
    x, w = x[:, :80000], w[:80000]
    assert products(integer_products(graph(build, x=x))) == [("s32", "u8", "s8")]


def test_scales_of_groups_stay_floats() -> None:
    """Those vary along what is reduced."""
    rng = RNG(0)
    x, w = integers(rng, u8, 2, 24), integers(rng, s8, 24, 3)
    scale = rng.uniform(0.5, 1.5, 24).astype(np.float32)

    def build(x: Tensor) -> Tensor:
        b = dequantized(x.builder.constant(w), scale, 0)
        return dot_general(dequantized(x, 0.05, 200), b, ((), ()), ((1,), (0,)))

    kernel = graph(build, x=x)
    assert integer_products(kernel) is kernel


@pytest.mark.parametrize(("type_", "stays"), [(f32, False), (bf16, True)])
def test_quotients_of_narrow_floats_stay(type_: DType, stays: bool) -> None:
    """A reciprocal in bf16 would be off by a part of 256."""
    rng = RNG(0)
    x, w = integers(rng, u8, 2, 24), integers(rng, s8, 24, 3)

    def build(x: Tensor) -> Tensor:
        b = dequantized(x.builder.constant(w), 0.01, 0)
        sums = dot_general(dequantized(x, 0.05, 3), b, ((), ()), ((1,), (0,)))
        narrow = elementwise(lambda v: cast(type_, v), sums)
        return quantized(narrow, 0.3, 4, u8)

    assert ("/" in str(optimized(graph(build, x=x))).replace("sha256:", "")) == stays
