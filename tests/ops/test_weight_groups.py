"""Weights of a matmul with scales and zero points for groups along K, two of 4 bits to a byte."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from needs import need_device, needs_nvidia, needs_opencl, needs_x86
from skips import lacking
from tilewright.dtypes import f32, u4
from tilewright.errors import ArgumentError, ProblemError, UnsupportedError
from tilewright.ir.printer import to_text
from tilewright.ops.matmul import Matmul
from tilewright.problems import Scale, ZeroPoint
from tilewright.problems.knobs import parse_scales, parse_zero_points
from tilewright.problems.policy import Policy
from tilewright.testing.case import Case
from tilewright.testing.random_problems import random_cases
from tilewright.testing.verify import Status, verify

pytestmark = pytest.mark.usefixtures("own_cache")

PER_GROUP = {"policy": "per_ocic", "group": 32}


def op_of(
    text: str, dtype: str = "f32:u4:f32", *, point: str | None = "u4", **layouts: Any
) -> Matmul:
    """A matmul whose weights have groups of 32."""
    epilogue: list[Any] = [tw.scale("weights", **PER_GROUP)]
    if point is not None:
        epilogue.insert(0, tw.zero_point("weights", dtype=point, **PER_GROUP))
    return tw.matmul(text, dtype=dtype, epilogue=epilogue, **layouts)


def test_the_naive_kernel() -> None:
    text = to_text(op_of("2x64:64x5", "bf16:s4:f32").kernel())
    assert (
        text.splitlines()
        == """\
kernel matmul_fwd_d(
    in src: bf16[2, 64],
    in weights: u8[32, 5],
    in weights_zero_point: u4[2, 5],
    in weights_scale: f32[2, 5],
    out dst: f32[2, 5],
):
  alloc dequantized: f32[64, 5]
  compute dequantize(k in 64, n in 5):
    q = weights[k // 2, n]
    weights_zero_point = weights_zero_point[k // 32, n]
    weights_scale = weights_scale[k // 32, n]
    dequantized[k, n] = (f32(s32(q) << s32(28) - s32(k % 2 * 4) >> s32(28)) - \
f32(weights_zero_point)) * weights_scale
  alloc acc: f32[2, 5] private
  compute init(m in 2, n in 5):
    acc[m, n] = 0.0
  compute main(m in 2, n in 5, k in 64):
    a = src[m, k]
    b = dequantized[k, n]
    acc[m, n] add= f32(a) * b
  compute epilogue(m in 2, n in 5):
    acc = acc[m, n]
    dst[m, n] = acc""".splitlines()
    )


@pytest.mark.parametrize("layout", ["any", "ab", "ba"])
@pytest.mark.parametrize("signed", [False, True], ids=["u4", "s4"])
def test_what_bytes_mean(layout: str, signed: bool) -> None:
    """Against products of numpy, of weights that are unpacked here."""
    rng = np.random.default_rng(3)
    held = rng.integers(0, 256, (32, 9), np.uint8)
    values = {
        "src": rng.integers(-8, 9, (3, 64)).astype(np.float32),
        "weights": held if layout != "ba" else np.ascontiguousarray(held.T).T,
        "weights_zero_point": rng.integers(0, 9, (2, 9)).astype(np.uint8),
        "weights_scale": np.exp2(rng.integers(-2, 2, (2, 9))).astype(np.float32),
    }
    numbers = np.empty((64, 9), np.int64)
    for k, n in np.ndindex(64, 9):
        half = int(held[k // 2, n]) >> 4 * (k % 2) & 15
        numbers[k, n] = half - 16 * (signed and half > 7)
    group = np.arange(64) // 32
    weights = (numbers - values["weights_zero_point"][group]) * values["weights_scale"][group]
    types = f"f32:{'s4' if signed else 'u4'}:f32"
    run = tw.compile(op_of("3x64:64x9", types, point="u8", weights=layout), "x86:avx2")
    if not run.target.runs_here:
        lacking("this processor has no AVX2")
    for name in run.packed:
        values[name] = run.pack(name, values[name])
    assert np.array_equal(run(**values), values["src"].astype(np.float64) @ weights)


@needs_x86
@pytest.mark.parametrize("layout", ["any", "ab", "ba"])
def test_elements_of_a_byte_each_are_packed(layout: str) -> None:
    rng = np.random.default_rng(4)
    numbers = rng.integers(-8, 8, (64, 9)).astype(ml_dtypes.int4)
    codes = numbers.view(np.uint8) & 15
    held = codes[0::2] | codes[1::2] << 4
    values = {
        "src": rng.integers(-8, 9, (3, 64)).astype(np.float32),
        "weights_scale": np.ones((2, 9), np.float32),
    }
    run = tw.compile(op_of("3x64:64x9", "f32:s4:f32", point=None, weights=layout), "x86:avx2")
    results = [run(weights=run.pack("weights", weights), **values) for weights in (numbers, held)]
    assert np.array_equal(results[0], values["src"] @ numbers.astype(np.float32))
    assert np.array_equal(*results)
    for other in (numbers[:63], numbers[:, :8], numbers.astype(np.int8), numbers[0]):
        with pytest.raises(ArgumentError, match="weights has"):
            run(weights=run.pack("weights", other), **values)


def test_factors_read_back() -> None:
    scale = Scale("weights", Policy("per_ocic"), group=64)
    point = ZeroPoint("weights", Policy("per_tensor"), dtype=u4, group=128)
    assert scale.describe() == "wei:per_ocic:f32:64x1"
    assert point.describe() == "wei:per_tensor:u4:128x1"
    assert parse_scales(scale.describe()) == (scale,)
    assert parse_zero_points(point.describe()) == (point,)
    assert tw.scale("weights", policy="per_ocic", group=64) == scale


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wei:per_ocic:f32:64", "'64' is no group"),
        ("wei:per_ocic:f32:64x2", "groups of 2 along N are not available"),
        ("wei:per_ocic:f32:0x1", "a group has one element at least"),
        ("wei:per_oc:f32:64x1", "policy per_oc has no groups"),
        ("dst:per_ocic:f32:64x1", "dst has no groups"),
        ("src:per_ocic:f32:2x64", "groups of 2 along M are not available"),
        ("wei:per_ocic:f32:64x1:2", "there is too much behind the group"),
    ],
)
def test_texts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises((ProblemError, UnsupportedError), match=message):
        parse_scales(text)


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        ("2x48:48x4", "f32:u4:f32", "K = 48 is no multiple of the group of 32"),
        ("2x16:16x4", "f32:u8:f32", "a group of 32 is longer than K"),
        ("2x64:64x4", "f32:f32:f32", "weights of f32 have no groups"),
        ("2x64:64x4", "f32:s32:f32", "weights of s32 have no groups"),
    ],
)
def test_ops_that_are_refused(text: str, dtype: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        op_of(text, dtype, point=None)


def test_sums_of_integers_have_no_room_for_scales() -> None:
    assert op_of("2x64:64x4", "s8:u4:f32").accumulator is f32
    with pytest.raises(UnsupportedError, match="added up in s32, which has no room"):
        op_of("2x64:64x4", "s8:u4:f32", accumulator="s32")


def test_an_odd_number_of_halves_is_refused() -> None:
    scale = tw.scale("weights", policy="per_ocic", group=3)
    with pytest.raises(UnsupportedError, match="lie two to a byte along K, and K = 9 is odd"):
        tw.matmul("2x9:9x4", dtype="f32:s4:f32", epilogue=[scale])


def test_groups_are_those_of_matmul() -> None:
    with pytest.raises(UnsupportedError, match="conv takes no groups of scales"):
        tw.convolution(
            "mb1ic32ih4oc8kh1", dtype="f32:u8:f32", epilogue=[tw.scale("weights", **PER_GROUP)]
        )
    with pytest.raises(UnsupportedError, match="policy per_dim_0 does not vary along K"):
        tw.matmul(
            "2x2x32:2x32x4",
            dtype="f32:u8:f32",
            epilogue=[tw.scale("weights", policy="per_dim_0", group=32)],
        )
    with pytest.raises(UnsupportedError, match="a zero point of dst is not kept in u4"):
        tw.matmul("2x32:32x4", dtype="s8", epilogue=[tw.zero_point("dst", 1, dtype="u4")])


def groups_drawn(seed: int, number: int) -> list[Case]:
    """Cases of `verify matmul --random` whose weights have groups."""
    cases = random_cases("matmul", 20 * number, seed)
    result = (case for case in cases if any(s.group for s in (*case.scales, *case.zero_points)))
    return [case for case, _ in zip(result, range(number), strict=False)]


@pytest.mark.parametrize(
    ("target", "number"),
    [
        pytest.param("x86:avx2", 12, marks=needs_x86),
        pytest.param("spirv", 3, marks=needs_opencl),
        pytest.param("nvidia", 3, marks=needs_nvidia),
    ],
)
def test_random_problems(target: str, number: int) -> None:
    need_device(target)
    cases = list(groups_drawn(random.Random(target).randrange(10**6), number))
    assert len(cases) == number
    for case in cases:
        verdict = verify(case.op(), lambda op: tw.compile(op, target, threads=1))
        assert verdict.status is Status.PASSED, verdict.line(case.arguments())


@needs_x86
@pytest.mark.parametrize("columns", [9, 17])
def test_a_tail_of_one_lane(columns: int) -> None:
    """The copy's loop and the product's have one name, and the partition of the former cut the
    latter, down to a single lane that no index named."""
    op = op_of(f"1x64:64x{columns}", "f32:u8:f32")
    verdict = verify(op, lambda op: tw.compile(op, "x86:avx2", threads=1))
    assert verdict.status is Status.PASSED, verdict.reason
