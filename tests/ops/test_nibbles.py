"""Weights of 4 bits: what they are in memory, where they may stand, and what kernels compute."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from interpreted import Interpreted
from skips import lacking
from tilewright.conversions import convert
from tilewright.dtypes import DType, bf16, boolean, dtype, f32, f64, s4, s8, s32, s64, u4, u8
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError, UnsupportedError
from tilewright.ir.buffer import buffer
from tilewright.ir.expr import binary, cast, const, unary, var
from tilewright.ops.op import Op, accumulator_of
from tilewright.problems import ZeroPoint, parse
from tilewright.problems.knobs import parse_types
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.runtime.arrays import describe
from tilewright.targets.registry import find_target
from tilewright.testing.case import Case
from tilewright.testing.verify import Status, verify

pytestmark = pytest.mark.usefixtures("own_cache")

TYPES = ["f32:s4:f32", "bf16:u4:bf16", "u8:s4:s32", "f32:u4:f32", "bf16:s4:f32", "s8:u4:s8"]


def compiled(op: Op) -> CompiledKernel:
    return tw.compile(op, threads=1)


def test_what_they_are() -> None:
    assert (s4.bits, s4.bytes, s4.lowest, s4.highest) == (4, 1, -8, 7)
    assert (u4.bits, u4.bytes, u4.lowest, u4.highest) == (4, 1, 0, 15)
    assert dtype("int4") is s4 and dtype(ml_dtypes.uint4) is u4
    assert parse_types("f32:s4:bf16") == (f32, s4, bf16)
    assert buffer("b", s4, (3, 5)).bytes == 15


@pytest.mark.parametrize("source", [s4, u4], ids=str)
def test_the_upper_bits_do_not_matter(source: DType) -> None:
    codes = np.arange(256, dtype=np.uint8).view(source.numpy)
    wanted = np.tile(np.arange(16), 16)
    wanted = wanted if source is u4 else (wanted ^ 8) - 8
    for target in (f64, f32, bf16, s64, s32, s8):
        np.testing.assert_array_equal(convert(codes, source, target).astype(np.int64), wanted)
    np.testing.assert_array_equal(convert(codes, source, boolean), wanted != 0)


def test_constants_wrap_and_saturate() -> None:
    assert [cast(s4, const(n)).value for n in (7, 8, 15, -9)] == [7, -8, -1, 7]
    assert [cast(u4, const(n)).value for n in (15, 16, -1)] == [15, 0, 15]
    assert [cast(s4, const(x)).value for x in (7.9, 99.0, -99.0)] == [7, 7, -8]
    assert cast(s4, const(9, u4)).value == -7


def test_nothing_is_computed_on_them() -> None:
    x = var("x", s4)
    with pytest.raises(TypeError, match="add: not defined on s4; cast it"):
        binary("add", x, x)
    with pytest.raises(TypeError, match="neg: not defined on s4; cast it"):
        unary("neg", x)


def test_accumulators() -> None:
    assert accumulator_of(f32, s4) is f32
    assert accumulator_of(bf16, u4) is f32
    assert accumulator_of(u8, s4) is s32


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize(
    ("driver", "text"), [("matmul", "5x19:19x18"), ("conv", "mb1ic5ih4oc18kh3ph1")]
)
@pytest.mark.parametrize("compile", [Interpreted, compiled], ids=["naive", "compiled"])
def test_verified(driver: str, text: str, types: str, compile: Any) -> None:
    case = Case(parse(driver, text), parse_types(types))
    assert verify(case.op(), compile).status is Status.PASSED


@pytest.mark.parametrize("level", ["sse42", "avx2", "avx512", "avx512_vnni", "avx512_bf16"])
@pytest.mark.parametrize("types", TYPES)
def test_every_level(level: str, types: str) -> None:
    case = Case(parse("matmul", "5x24:24x35"), parse_types(types))
    target = f"x86:{level}"
    if not find_target(target).runs_here:
        lacking(f"this processor does not run {target}")
    verdict = verify(case.op(), lambda op: tw.compile(op, target=target, threads=1))
    assert verdict.status is Status.PASSED, verdict


@pytest.mark.parametrize("tag", ["hwio", "OIhw4i16o", "oihw"])
def test_weights_in_a_given_layout(tag: str) -> None:
    case = Case(parse("conv", "mb1ic6ih5oc19kh3ph1"), (f32, s4, f32), tags=("any", tag, "any"))
    assert verify(case.op(), compiled).status is Status.PASSED


def _arrays(weights: DType, seed: int = 3) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    src = rng.integers(-4, 5, (6, 40)).astype(np.float32)
    codes = rng.integers(0, 256, (40, 24), dtype=np.uint8)  # the upper bits too are random
    return src, codes.view(weights.numpy), np.exp2(rng.integers(-2, 2, 24)).astype(np.float32)


def test_dequantized_by_scales() -> None:
    op = tw.matmul(
        "6x40:40x24",
        dtype={"src": "f32", "weights": "s4", "dst": "f32"},
        epilogue=[tw.scale("weights", policy="per_oc")],
    )
    kernel = compiled(op)
    src, weights, scales = _arrays(s4)
    got = kernel(src=src, weights=kernel.pack("weights", weights), weights_scale=scales)
    wanted = src.astype(np.float64) @ weights.astype(np.float64) * scales
    np.testing.assert_array_equal(got, wanted)


def test_zero_points() -> None:
    case = Case(
        parse("matmul", "6x40:40x24"), (f32, u4, f32), zero_points=(ZeroPoint("weights", value=8),)
    )
    assert verify(case.op(), compiled).status is Status.PASSED


def test_dot_products_apply() -> None:
    op = tw.matmul("32x64:64x64", dtype="u8:s4:s32")
    config, _ = choose.choose(Start.of(op), find_target("x86:avx512_vnni").machine)
    assert "vpdpbusd" in repr(config)
    op = tw.matmul("32x64:64x64", dtype="bf16:u4:bf16")
    config, _ = choose.choose(Start.of(op), find_target("x86:avx512_bf16").machine)
    assert "vdpbf16ps" in repr(config)


def test_arrays() -> None:
    _, weights, _ = _arrays(u4)
    info = describe(weights)
    assert (info.dtype, info.shape, info.strides) == (u4, (40, 24), (24, 1))
    kernel = compiled(tw.matmul("6x40:40x24", dtype="f32:u4:f32"))
    with pytest.raises(ArgumentError, match="int4"):
        kernel.pack("weights", weights.astype(np.int8))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tw.matmul("4x5:5x6", dtype="f32:f32:s4"), "matmul takes no s4 here"),
        (lambda: tw.matmul("4x5:5x6", dtype="s4:s4:s32"), "matmul takes no s4 here"),
        (lambda: tw.convolution("ic4ih5oc6kh3", dtype="u8:s8:u4"), "conv takes no u4 here"),
        (
            lambda: tw.convolution("ic4ih5oc6kh3", dtype="f32:s4:f32", direction="bwd_weights"),
            "conv takes no s4 here",
        ),
        (lambda: tw.reorder("4x5", dtype="s4:f32"), "reorder takes no s4 here"),
        (lambda: tw.elementwise("4x5", "relu", dtype="u4"), "eltwise takes no u4 here"),
        (
            lambda: tw.matmul("4x5:5x6", epilogue=[tw.bias(dtype="s4")]),
            "matmul takes no s4 here",
        ),
    ],
)
def test_refusals(make: Any, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        make()


def test_a_refusal_in_full() -> None:
    with pytest.raises(UnsupportedError) as refused:
        tw.matmul("4x5:5x6", dtype="f32:f32:u4")
    assert str(refused.value) == (
        "matmul takes no u4 here\n"
        "  where: dst\n"
        "  why: only weights that are read, of convolution and matmul, may have 4 bits\n"
        "  cure: use u8"
    )


def test_gradients_of_data_read_weights() -> None:
    op: Op = tw.convolution("mb1ic5ih4oc6kh3ph1", dtype="f32:s4:f32", direction="bwd_data")
    assert verify(op, compiled).status is Status.PASSED
