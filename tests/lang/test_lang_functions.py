"""Functions that kernels in Python call: against wider numbers, in units in the last place."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES
from tilewright.errors import CompilationError, KernelError

TARGETS = ("x86", "interpreter", *DEVICES)
# The function, the same of longer floats, and where it is looked at.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], tuple[float, float]]] = {
    "tan": (np.tan, (-100.0, 100.0)),
    "asin": (np.arcsin, (-1.0, 1.0)),
    "acos": (np.arccos, (-1.0, 1.0)),
    "atan": (np.arctan, (-1e3, 1e3)),
    "sinh": (np.sinh, (-80.0, 80.0)),
    "cosh": (np.cosh, (-80.0, 80.0)),
    "asinh": (np.arcsinh, (-1e4, 1e4)),
    "acosh": (np.arccosh, (1.0, 1e4)),
    "atanh": (np.arctanh, (-0.999, 0.999)),
    "log2": (np.log2, (1e-30, 1e30)),
    "log10": (np.log10, (1e-30, 1e30)),
    "expm1": (np.expm1, (-80.0, 80.0)),
    "cbrt": (np.cbrt, (-1e30, 1e30)),
    "trunc": (np.trunc, (-1e4, 1e4)),
    "lgamma": (np.vectorize(math.lgamma), (-19.75, 200.0)),
    "erfc": (np.vectorize(math.erfc), (-5.0, 9.0)),
}
# Narrower types are computed in f32 or f64.
UNITS = {"f16": 1.0, "f32": 3.0, "f64": 3.0}
UNITS_OF = {("erfc", "f64"): 11.0, ("lgamma", "f64"): 11.0}
WIDER = {"f16": np.float64, "f32": np.float64, "f64": np.longdouble}


@tw.kernel
def each(x: tw.array("T", 2), y: tw.array("T", 2), n: tw.s32) -> None:
    i = tw.global_id(0)
    if i < n:
        y[0, i] = tw.tan(x[0, i])
        y[1, i] = tw.asin(x[1, i])
        y[2, i] = tw.acos(x[2, i])
        y[3, i] = tw.atan(x[3, i])
        y[4, i] = tw.sinh(x[4, i])
        y[5, i] = tw.cosh(x[5, i])
        y[6, i] = tw.asinh(x[6, i])
        y[7, i] = tw.acosh(x[7, i])
        y[8, i] = tw.atanh(x[8, i])
        y[9, i] = tw.log2(x[9, i])
        y[10, i] = tw.log10(x[10, i])
        y[11, i] = tw.expm1(x[11, i])
        y[12, i] = tw.cbrt(x[12, i])
        y[13, i] = tw.trunc(x[13, i])
        y[14, i] = tw.lgamma(x[14, i])
        y[15, i] = tw.erfc(x[15, i])


def points(low: float, high: float, dtype: Any, rng: Any) -> Any:
    """Numbers in a range: some of all sizes, and some near 1."""
    most = max(-low, high)
    result = np.concatenate(
        [
            rng.uniform(low, high, 80),
            most * 10.0 ** rng.uniform(-9, 0, 80) * (rng.choice((-1, 1), 80) if low < 0 else 1),
            1 + rng.uniform(-1e-2, 1e-2, 32),
        ]
    )
    return np.clip(result, low, high).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", UNITS)
def test_functions(name: str, target: str) -> None:
    dtype, rng = np.dtype(f"float{name[1:]}"), np.random.default_rng(5)
    most = float(np.finfo(dtype).max) / 4
    few = {"sinh": 10.0, "cosh": 10.0, "expm1": 10.0} if name == "f16" else {}
    least = 1e-3 if name == "f16" else 0.0
    ranges = [
        (max(low, -few.get(f, most), least if low > 0 else -most), min(high, few.get(f, most)))
        for f, (_, (low, high)) in FUNCTIONS.items()
    ]
    x = np.stack([points(low, high, dtype, rng) for low, high in ranges])
    y = np.zeros_like(x)
    each.launch(x.shape[1], x, y, x.shape[1], target=target)
    for place, (function, (wanted, _)) in enumerate(FUNCTIONS.items()):
        right = wanted(x[place].astype(WIDER[name]))
        apart = np.abs(y[place].astype(WIDER[name]) - right)
        unit = np.spacing(np.abs(right).astype(dtype)).astype(WIDER[name])
        if function == "lgamma" and name == "f64":
            # Beside 1 and 2, where it is 0, the error counts against 1.
            unit = np.spacing(np.maximum(np.abs(right), 1.0).astype(dtype))
        units = UNITS_OF.get((function, name), UNITS[name])
        assert (apart / unit).max() <= units, function


@tw.kernel
def of_the_ir(x: tw.array("T", 1), z: tw.array("T", 1), y: tw.array("T", 2)) -> None:
    i = tw.global_id(0)
    y[0, i] = tw.exp(x[i])
    y[1, i] = tw.exp2(x[i])
    y[2, i] = tw.log(x[i])
    y[3, i] = tw.log1p(x[i])
    y[4, i] = tw.tanh(x[i])
    y[5, i] = tw.sin(x[i])
    y[6, i] = tw.cos(x[i])
    y[7, i] = tw.erf(x[i])
    y[8, i] = x[i] ** z[i]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_all_numbers(dtype: Any, target: str) -> None:
    """Of all sizes, subnormal ones, zeros of both signs, infinities and NaN."""
    rng, info = np.random.default_rng(8), np.finfo(dtype)
    wild = rng.integers(0, 256, (500, info.bits // 8), np.uint8).view(dtype)[:, 0]
    wild[np.isnan(wild)] = 1  # they may be signaling ones
    plain = (rng.normal(size=500) * rng.choice((1e-3, 1, 20, 300), 500)).astype(dtype)
    ends = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 2.0, -3.0, 0.5]
    ends += [float(info.max), float(info.tiny), float(info.smallest_subnormal)]
    edges = np.repeat(np.array(ends, dtype), len(ends))
    x = np.concatenate([wild, plain, np.exp(rng.normal(size=500)).astype(dtype), edges])
    z = np.concatenate([rng.permutation(x[: -len(edges)]), np.tile(ends, len(ends)).astype(dtype)])
    y = np.zeros((9, len(x)), dtype)
    of_the_ir.launch(len(x), x, z, y, target=target)
    wide = x.astype(WIDER[f"f{info.bits}"])
    with np.errstate(all="ignore"):
        functions = (np.exp, np.exp2, np.log, np.log1p, np.tanh, np.sin, np.cos)
        right = [function(wide) for function in functions]
        right += [np.vectorize(math.erf)(wide), np.power(wide, z.astype(wide.dtype))]
        wrong = []
        for place, wanted in enumerate(right):
            rounded = wanted.astype(dtype)
            apart = np.abs(y[place].astype(wide.dtype) - wanted) <= 3 * np.spacing(np.abs(rounded))
            same = (y[place] == rounded) | (np.isnan(y[place]) & np.isnan(rounded))
            signs = (np.signbit(y[place]) == np.signbit(rounded)) | np.isnan(rounded)
            wrong += [(place, number) for number in x[~((same | apart) & signs)]]
    assert len(right) == len(y) and not wrong


@tw.kernel
def beside(y: tw.array("T", 1), x: tw.array("T", 1), out: tw.array("T", 2)) -> None:
    i = tw.global_id(0)
    out[0, i] = tw.atan2(y[i], x[i])
    out[1, i] = tw.sqrt(abs(x[i]))
    out[2, i] = tw.rsqrt(abs(x[i]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_angles_and_roots(dtype: Any, target: str) -> None:
    """Points in all directions, near and far, and next to the axes."""
    rng = np.random.default_rng(9)
    sizes = 10.0 ** rng.uniform(-3, 3, (2, 900)) * rng.choice((-1, 1), (2, 900))
    sizes[:, :300] = rng.normal(size=(2, 300))
    y, x = sizes.astype(dtype)
    out = np.zeros((3, len(x)), dtype)
    beside.launch(len(x), y, x, out, target=target)
    wide = WIDER[f"f{np.finfo(dtype).bits}"]
    a, b = y.astype(wide), x.astype(wide)
    right = np.stack([np.arctan2(a, b), np.sqrt(abs(b)), 1 / np.sqrt(abs(b))])
    apart = np.abs(out.astype(wide) - right) / np.spacing(np.abs(right).astype(dtype)).astype(wide)
    assert (apart.max(1) <= [1.5, 0.51, 2.0]).all()


EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32)


@tw.kernel
def angles(y: tw.array("f32", 1), x: tw.array("f32", 1), out: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    out[i] = tw.atan2(y[i], x[i])


@tw.kernel
def kinds(x: tw.array("f32", 1), out: tw.array("s32", 2)) -> None:
    i = tw.global_id(0)
    out[0, i] = tw.s32(tw.isinf(x[i]))
    out[1, i] = tw.s32(tw.isfinite(x[i]))


@pytest.mark.parametrize("target", TARGETS)
def test_edges(target: str) -> None:
    y, x = (np.ascontiguousarray(array.reshape(-1)) for array in np.meshgrid(EDGES, EDGES))
    out = np.zeros_like(x)
    angles.launch(len(x), y, x, out, target=target)
    wanted = np.arctan2(y, x)
    np.testing.assert_allclose(out, wanted, 1e-7)
    known = ~np.isnan(wanted)
    assert (np.signbit(out[known]) == np.signbit(wanted[known])).all()
    flags = np.zeros((2, len(EDGES)), np.int32)
    kinds.launch(len(EDGES), EDGES, flags, target=target)
    assert (flags == [np.isinf(EDGES), np.isfinite(EDGES)]).all()


@tw.kernel
def powers(x: tw.array("T", 1), n: tw.array("N", 1), out: tw.array("T", 1)) -> None:
    i = tw.global_id(0)
    out[i] = tw.ldexp(x[i], n[i])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [np.int8, np.int32, np.int64, np.uint8])
def test_ldexp(dtype: Any, exponent: Any, target: str) -> None:
    info = np.iinfo(exponent)
    ends = (-2300, -1070, -149, -127, -60, -1, 0, 1, 5, 127, 128, 278, 1023, 2200, 2**40)
    n = np.array([e for e in ends if info.min <= e <= info.max], exponent)
    x = np.array([1.0, -1.5, 0.75, 1e-40, 3e38, 0.0, np.inf], dtype)
    x, n = (np.ascontiguousarray(array.reshape(-1)) for array in np.meshgrid(x, n))
    out = np.zeros_like(x)
    powers.launch(len(x), x, n, out, target=target)
    with np.errstate(all="ignore"):
        wanted = np.ldexp(x, np.clip(n.astype(np.int64), -3000, 3000).astype(np.int32))
    small = np.abs(wanted) < np.finfo(dtype).tiny
    assert (out[~small] == wanted[~small]).all()
    step = np.finfo(dtype).smallest_subnormal
    assert (np.abs(out[small] - wanted[small]) <= step).all()


@tw.kernel
def bits(x: tw.array("T", 1), by: tw.array("T", 1), out: tw.array("T", 2)) -> None:
    i = tw.global_id(0)
    out[0, i] = tw.ctz(x[i])
    out[1, i] = tw.bit_reverse(x[i])
    out[2, i] = tw.rotate(x[i], by[i])
    out[3, i] = tw.rotate(x[i], 3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["u8", "s16", "s32", "u32", "s64", "u64"])
def test_bits(name: str, target: str) -> None:
    width = int(name[1:])
    dtype = np.dtype(f"{'u' if name[0] == 'u' else ''}int{width}")
    x = np.random.default_rng(2).integers(0, 256, (60, dtype.itemsize), np.uint8).view(dtype)[:, 0]
    x[:4] = 0, 1, np.iinfo(dtype).max, np.iinfo(dtype).min
    by = np.arange(60).astype(dtype) % 100
    out = np.zeros((4, 60), dtype)
    bits.launch(60, x, by, out, target=target)

    def rotated(word: int, distance: int) -> int:
        distance %= width
        return (word << distance | word >> (width - distance)) & ((1 << width) - 1)

    words = [int(number) & ((1 << width) - 1) for number in x]
    wanted = [
        [width if not w else (w & -w).bit_length() - 1 for w in words],
        [int(f"{w:0{width}b}"[::-1], 2) for w in words],
        [rotated(w, int(b)) for w, b in zip(words, by, strict=True)],
        [rotated(w, 3) for w in words],
    ]
    unsigned = np.dtype(f"uint{width}")
    assert (out.view(unsigned) == np.array(wanted, unsigned)).all()


@tw.kernel(subgroup=16)
def ballot(x: tw.array("s32", 1), out: tw.array("u32", 1)) -> None:
    i = tw.global_id(0)
    out[i] = tw.subgroup_ballot(x[i] > 0)


@pytest.mark.parametrize("target", TARGETS)
def test_ballot(target: str) -> None:
    x = np.random.default_rng(4).integers(-1, 2, 48).astype(np.int32)
    out = np.zeros(48, np.uint32)
    ballot.launch(48, x, out, local=16, target=target)
    lanes = (x > 0).reshape(3, 16) @ (1 << np.arange(16))
    assert (out.reshape(3, 16) == lanes[:, None]).all()


@tw.kernel
def known(out: tw.array("f64", 1)) -> None:
    out[0] = tw.lgamma(5.0)
    out[1] = tw.cbrt(-27)
    out[2] = tw.atan2(1, -1.0)
    out[3] = tw.log2(8)
    out[4] = tw.ldexp(tw.f64(0.5), 4)


def test_numbers_that_are_known() -> None:
    out = np.zeros(5)
    known.launch(1, out, target="interpreter")
    np.testing.assert_allclose(out, [math.lgamma(5), -3, math.atan2(1, -1), 3, 8], 1e-15)


@tw.kernel
def wrong(x: tw.array("s32", 1), f: tw.array("f32", 1), which: tw.constant) -> None:
    if which == "integers":
        f[0] = tw.tan(x[0])
    elif which == "literal":
        f[0] = tw.acos(2.0)
    elif which == "infinite":
        x[0] = tw.s32(tw.isinf(x[0]))
    elif which == "bits":
        x[0] = tw.ctz(f[0])
    elif which == "exponent":
        f[0] = tw.ldexp(f[0], f[0])
    else:
        f[0] = tw.rotate(x[0], f[0])


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("integers", "tw.tan of s32"),
        ("literal", r"tw.acos\(2.0\) is no number"),
        ("infinite", "tw.isinf of s32"),
        ("bits", "tw.ctz of f32"),
        ("exponent", "tw.ldexp with an exponent of f32"),
        ("turned", "tw.rotate by f32"),
    ],
)
def test_refused(which: str, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        wrong.launch(1, np.ones(1, np.int32), np.ones(1, np.float32), which, target="interpreter")


@tw.kernel
def fused(a: tw.array("T", 1), b: tw.array("T", 1), c: tw.array("T", 1), y: tw.array("T", 1)):
    i = tw.global_id(0)
    y[i] = tw.fma(a[i], b[i], c[i])


@pytest.mark.parametrize("type_", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("target", (*TARGETS, "x86:sse42"))
def test_fma_is_rounded_once(type_: str, target: str) -> None:
    """What is left of a product beside the rounded one is a number of the type, if none is
    subnormal; infinities, NaNs and signs of zeros are as of a product and a sum."""
    g, of = np.random.default_rng(0), np.dtype(getattr(ml_dtypes, type_, type_))
    a, b = (np.exp2(g.uniform(0, 4, 300)).astype(of) for _ in range(2))
    rounded = (a.astype(np.float64) * b.astype(np.float64)).astype(of)
    a[:6], b[:6] = [0, np.inf, -0.0, np.nan, 1, np.inf], [-1, 2, 0, 1, 2, 0]
    rounded[:6] = [0, np.inf, 0.0, 1, 2, -1]
    y = np.zeros_like(a)
    if (type_, target) == ("float64", "x86:sse42"):
        with pytest.raises(CompilationError, match="no fma of f64"):
            fused.launch(300, a, b, -rounded, y, target=target)
        return
    fused.launch(300, a, b, -rounded, y, target=target)
    special = y[:6].astype(np.float64).tolist()
    assert str(special) == "[-0.0, nan, -0.0, nan, 0.0, nan]"
    for x1, x2, x3, result in zip(*(part[6:].tolist() for part in (a, b, rounded, y)), strict=True):
        assert Fraction(float(x1)) * Fraction(float(x2)) - Fraction(float(x3)) == Fraction(
            float(result)
        )


@pytest.mark.parametrize("target", TARGETS)
def test_fma_of_what_is_rounded_to_even_twice(target: str) -> None:
    """f32 whose exact result is a hair beside the middle of two: the nearest f64 is the middle."""
    a = np.array([1 + 2.0**-12, -1 - 2.0**-12], np.float32)
    c = np.array([2.0**-60, -(2.0**-60)], np.float32) + 0 * a
    b, y = np.array([1 + 2.0**-12] * 2, np.float32), np.zeros(2, np.float32)
    fused.launch(2, a, b, c, y, target=target)
    np.testing.assert_array_equal(np.abs(y), np.float32(1 + 2.0**-11 + 2.0**-23))
    fused.launch(2, a, b, -c, y, target=target)
    np.testing.assert_array_equal(np.abs(y), np.float32(1 + 2.0**-11))
