"""Functions of floats over all of f32, against f64: no formula cancels or overflows on the way, and
what is far from 0 or near it has all its digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from needs import needs_nvidia, needs_opencl
from scalar_runs import assert_same, compiled, interpreted
from sweeps import in_turns
from tilewright.conversions import convert
from tilewright.dtypes import DType, bf16, f8_e5m2, f16, f32, f64
from tilewright.ir import Block, Expr, For, Kernel, LoopKind, Param, Store, buffer, const, load, var
from tilewright.problems import (
    UNARY_FUNCTIONS,
    complex_functions,
    error_functions,
    functions,
    special_functions,
)
from tilewright.targets.registry import find_target
from tilewright.testing.data import samples

SIZE = 1024
FEW = 6.0  # units in the last place


Pair = tuple[Callable[[Expr], Expr], Callable[[Any], Any]]


def _record(name: str, alpha: float = 0.0) -> Pair:
    """A function as an expression, and in float64."""
    record = UNARY_FUNCTIONS[name]
    return lambda x: record.build(x, alpha, 0.0), lambda x: record.reference(x, alpha, 0.0)


def _erfc(x: Any) -> Any:
    return np.array([math.erfc(number) for number in x])


def _erf_inv(x: Any) -> Any:
    """By the quantiles of the normal distribution; next to 0 by a series."""
    scale, square = math.sqrt(math.pi) / 2, math.pi * x**2
    result = scale * x * (1 + square / 12 + 7 * square**2 / 480)
    result = np.where(np.abs(x) > 1, math.nan, result)
    for n, number in enumerate(x):
        if 1e-3 < abs(number) < 1:
            result[n] = NormalDist().inv_cdf((1 + number) / 2) / math.sqrt(2)
        elif abs(number) == 1:
            result[n] = number * math.inf
    return result


def _gelu_tanh(x: Any) -> Any:
    z = math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)
    return x * np.where(z < 0, np.exp(np.minimum(z, 0)), 1) / (1 + np.exp(-np.abs(z)))


FUNCTIONS: dict[str, Pair] = {
    **{name: _record(name, alpha) for name, alpha in (("elu", 1), ("swish", 1), ("soft_relu", 2))},
    **{name: _record(name) for name in ("mish", "logistic", "expm1", "sinh", "cosh", "tan")},
    **{name: _record(name) for name in ("asinh", "acosh", "atanh", "asin", "acos", "atan")},
    **{name: _record(name) for name in ("cbrt", "log2", "log10", "softsign", "reciprocal")},
    "erfc": (error_functions.erfc, _erfc),
    "erf_inv": (error_functions.erf_inv, _erf_inv),
}


def numbers(seed: int) -> Any:
    """All magnitudes of f32, many of them where functions bend, zeros, infinities, NaN."""
    generator = np.random.default_rng(seed)
    wide = np.ldexp(generator.uniform(1, 2, 400), generator.integers(-149, 128, 400))
    near = np.ldexp(generator.uniform(1, 2, 300), generator.integers(-30, 8, 300))
    rest = generator.uniform(0, 120, SIZE - 712)
    odd = [0, -0.0, 1, -1, math.inf, -math.inf, math.nan, 1e-45, -1e4, 3e38, -2e10, -3e38]
    values = np.concatenate([wide, near, rest]) * generator.choice([-1, 1], SIZE - 12)
    return np.concatenate([values, odd]).astype(np.float32)


def kernel_of(
    build: Callable[..., Expr], type_: DType, count: int = 1, kind: str = "vector"
) -> Kernel:
    """``build`` of elements of ``count`` arrays, in y."""
    ins = [buffer(f"x{n}", type_, (SIZE,)) for n in range(count)]
    out = buffer("y", type_, (SIZE,))
    o, lane = var("o"), var("l")
    kinds = {"vector": ("serial", "vector"), "items": ("grid", "lane"), "one": ("serial",) * 2}
    outer, inner = (LoopKind(word) for word in kinds[kind])
    place = (o * 16 + lane,)
    store = Store(out, place, build(*(load(input_, place) for input_ in ins)))
    params = (*(Param(input_, "in") for input_ in ins), Param(out, "out"))
    nest = For(o, const(SIZE // 16), For(lane, const(16), store, inner), outer)
    return Kernel("k", params, nest)


def off(found: Any, exact: Any, type_: Any = np.float32) -> Any:
    """By how many units in the last place each is off; NaN and infinities have to be the same."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(type_)
        units = np.abs(found.astype(np.float64) - exact) / np.spacing(np.abs(rounded))
        ends = ~np.isfinite(rounded) | ~np.isfinite(found)
        almost = np.abs(exact) > 0.999999 * float(np.finfo(type_).max)
        same = (found == rounded) | (np.isnan(found) & np.isnan(rounded)) | (ends & almost)
    return np.where(ends, np.where(same, 0, math.inf), units)


@pytest.mark.parametrize("target", ["interpreter", "x86"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_all_f32_are_a_few_units_off(name: str, target: str) -> None:
    build, exact = FUNCTIONS[name]
    x = numbers(0)
    arrays = {"x0": x, "y": np.zeros_like(x)}
    kernel = kernel_of(build, f32)
    run = interpreted if target == "interpreter" else lambda k, a: compiled(k, a, target)
    result = run(kernel, arrays)["y"]
    with np.errstate(all="ignore"):
        units = off(result, np.asarray(exact(x.astype(np.float64))))
    # Of minus infinity, a product with 0: NaN by the formula, as in other frameworks.
    units = np.where(np.isinf(x) & (name in ("swish", "mish")), 0, units)
    worst = int(np.argmax(units))
    assert units[worst] < FEW, (x[worst], result[worst], units[worst])


def test_gelu_by_tanh_keeps_its_tail() -> None:
    x = -np.linspace(0, 10, SIZE).astype(np.float32)
    kernel = kernel_of(_record("gelu_tanh")[0], f32)
    result = interpreted(kernel, {"x0": x, "y": np.zeros_like(x)})["y"]
    # An exponential's relative error is the absolute one of its argument.
    assert off(result, _gelu_tanh(x.astype(np.float64))).max() < 200


@pytest.mark.parametrize("name", ["asinh", "acosh", "cbrt", "sinh", "expm1"])
def test_functions_of_f64_are_a_few_units_off(name: str) -> None:
    build, exact = FUNCTIONS[name]
    generator = np.random.default_rng(3)
    x = np.ldexp(generator.uniform(1, 2, SIZE), generator.integers(-60, 60, SIZE))
    x = np.concatenate([x[:-2], [1e4, 252596.0]])
    result = interpreted(kernel_of(build, f64), {"x0": x, "y": np.zeros_like(x)})["y"]
    with np.errstate(all="ignore"):
        assert off(result, exact(x), np.float64).max() < FEW


def test_a_hyperbolic_sine_near_zero() -> None:
    """By tanh it was three units off: StableHLO's own data allows three from its own."""
    x = np.linspace(-1, 1, SIZE)
    result = compiled(kernel_of(FUNCTIONS["sinh"][0], f64), {"x0": x, "y": x.copy()}, "x86")["y"]
    assert off(result, np.sinh(x), np.float64).max() <= 2


# fmod and remainder.

PAIRS = [
    *(
        (1e12, 0.7),
        (1e20, 0.7),
        (-1e20, 0.7),
        (1e20, -0.7),
        (3e38, 1e-45),
        (-7.5, 2.0),
        (6.0, -3.0),
    ),
    *((1.0, math.inf), (math.inf, 1.0), (1.0, 0.0), (0.0, 1.0), (-0.0, 1.0), (math.nan, 1.0)),
    *((1.0, math.nan), (-1.0, -math.inf), (1e-40, 3e-45), (2.0**28, 1.0), (2.0**28 + 32, 3.0)),
]
WAYS = [
    ("vector", "x86"),
    ("vector", "x86:sse42"),
    ("one", "x86"),
    pytest.param("items", "spirv", marks=needs_opencl),
    pytest.param("items", "nvidia", marks=needs_nvidia),
]


def _operands(type_: DType) -> tuple[Any, Any]:
    pairs = np.resize(np.array(PAIRS), (SIZE // 2, 2))
    drawn = [samples(type_, SIZE // 2, seed) for seed in (1, 2)]
    return tuple(  # type: ignore[return-value]  # two of them
        np.concatenate([convert(pairs[:, n].copy(), f64, type_), drawn[n]]) for n in range(2)
    )


@pytest.mark.parametrize("type_", [f64, f32, f16, bf16, f8_e5m2], ids=str)
@pytest.mark.parametrize(("kind", "target"), WAYS)
def test_fmod_is_exact(kind: str, target: str, type_: DType) -> None:
    a, b = _operands(type_)
    arrays = {"x0": a, "x1": b, "y": np.zeros_like(a)}
    kernel = kernel_of(functions.fmod, type_, 2, kind)
    result = compiled(kernel, arrays, target)
    assert_same(result, interpreted(kernel, arrays))
    with np.errstate(all="ignore"):  # NaNs that signal
        rows = np.column_stack([column.astype(np.float64) for column in (a, b, result["y"])])
    for x, y, rest in rows.tolist():
        valid = math.isfinite(x) and y == y and y != 0
        assert math.isnan(rest) if not valid else rest == math.fmod(x, y)


def test_remainder_has_the_sign_of_the_divisor() -> None:
    a, b = _operands(f32)
    kernel = kernel_of(functions.remainder, f32, 2)
    result = compiled(kernel, {"x0": a, "x1": b, "y": np.zeros_like(a)}, "x86")["y"]
    with np.errstate(all="ignore"):
        rest = np.fmod(a, b)
        wanted = np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
    np.testing.assert_array_equal(result, wanted)


def test_fmod_for_nvidia() -> None:
    target = find_target("nvidia:sm_80")
    texts = [
        target.assembly(target.lower(kernel_of(functions.fmod, t, 2, "items"))) for t in (f32, f64)
    ]
    # Of f32 in steps of f64; of f64 as integers, which needs no library.
    assert texts[0].count("div.rn.f64") >= 10
    assert texts[1].count("rem.u64") == 2


@pytest.mark.parametrize("target", ["interpreter", "x86"])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_polygamma_of_negative_numbers(order: int, target: str) -> None:
    """Against its sum, as far as that goes, and what is left by its integral."""
    generator = np.random.default_rng(order)
    near = np.concatenate([np.arange(-30, 2) + distance for distance in (1e-6, -1e-6)])
    x = np.concatenate([generator.uniform(-40, 5, SIZE - near.size), near])
    places = x[:, None] + np.arange(2000)
    power, last = -float(order + 1), places[:, -1]
    total = (places[:, :-1] ** power).sum(axis=1) + last**power / 2
    total = total + last**-order / order + (order + 1) * last ** (power - 1) / 12
    exact = (1 if order % 2 else -1) * math.factorial(order) * total
    kernel = kernel_of(
        lambda each: special_functions.polygamma(const(float(order), f64), each), f64
    )
    arrays = {"x0": x, "y": np.zeros_like(x)}
    run = interpreted if target == "interpreter" else lambda k, a: compiled(k, a, target)
    error = np.abs(run(kernel, arrays)["y"] - exact)
    # Where the parts of a sum of both signs are greater than it.
    size = math.factorial(order) * (np.abs(places) ** power).sum(axis=1)
    assert (error < 1e-13 * size).all(), x[np.argmax(error / size)]


# Powers of complex numbers.


@pytest.mark.parametrize("seed", in_turns(2, range(2)))
def test_complex_powers_with_real_exponents(seed: int) -> None:
    """(|z|^c, c times the angle): of great numbers, c log|z| would have lost digits."""
    generator = np.random.default_rng(seed)
    parts = [generator.normal(size=SIZE) * scale for scale in (5e4, 5e4, 2)]
    ins = [buffer(f"x{n}", f64, (SIZE,)) for n in range(3)]
    outs = [buffer(name, f64, (SIZE,)) for name in ("p", "q")]
    i = var("i")
    a, b, c = (load(input_, (i,)) for input_ in ins)
    power = complex_functions.power((a, b), (c, const(0.0, f64)))
    stores = Block(tuple(Store(o, (i,), e) for o, e in zip(outs, power, strict=True)))
    params = (*(Param(input_, "in") for input_ in ins), *(Param(out, "out") for out in outs))
    kernel = Kernel("k", params, For(i, const(SIZE), stores, LoopKind.VECTOR))
    arrays = {f"x{n}": part for n, part in enumerate(parts)}
    arrays |= {"p": np.zeros(SIZE), "q": np.zeros(SIZE)}
    result = interpreted(kernel, arrays)
    mp = pytest.importorskip("mpmath")
    with mp.workprec(200):
        for n in range(0, SIZE, 4):
            z = mp.power(mp.mpc(parts[0][n], parts[1][n]), mp.mpf(parts[2][n]))
            error = abs(mp.mpc(result["p"][n], result["q"][n]) - z) / abs(z)
            assert error < 12 * 2.0**-52
