"""Generated functions against wider floats: errors in ulp, edges, instruction sets, lanes."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from lane_functions import LaneFunction, levels, module_text
from needs import needs_opencl
from tilewright.dtypes import DType, bf16, f16, f32, f64, u32, u64
from tilewright.errors import CompilationError
from tilewright.targets.llvm.math import emit_function, emit_less_exact
from tilewright.targets.llvm.min_max import emit_float_min_max
from tilewright.targets.llvm.trigonometry import LIMIT
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer
from tilewright.targets.x86.assemble import assembly
from tilewright.targets.x86.lower import dialect_for
from tilewright.targets.x86.target import x86_target

# numpy warns about the overflows and signaling NaNs that are tested here.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

INF, NAN = math.inf, math.nan
WIDER = {f32: np.float64, f64: np.longdouble}


def _erf(x: Any) -> Any:
    if x.dtype == np.float64:
        return np.array([math.erf(number) for number in x])
    mp = pytest.importorskip("mpmath")
    with mp.workprec(80):
        values = [mp.erf(float(number)) for number in x]
        high = np.array([float(value) for value in values])
        low = [float(value - first) for value, first in zip(values, high.tolist(), strict=True)]
    return np.copysign(high.astype(np.longdouble) + np.array(low), x)


# Each function in wider floats, and the bound that its docstring states.
UNARY: dict[str, tuple[Callable[[Any], Any], float]] = {
    "exp": (np.exp, 1.1),
    "exp2": (np.exp2, 1.1),
    "log": (np.log, 1.0),
    "log1p": (np.log1p, 1.5),
    "tanh": (np.tanh, 2.6),
    "erf": (_erf, 2.8),
    "sin": (np.sin, 1.7),
    "cos": (np.cos, 1.7),
}
_ENDS = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0)
EDGES = {
    f32: np.array([*_ENDS, 1e-40, -1e-40, 1e38], np.float32),
    f64: np.array([*_ENDS, 1e-310, -1e-310, 1e308]),
}
TYPES = [f32, f64]


def _function(name: str, dtype: DType, lanes: int, level: str) -> LaneFunction:
    arity = 2 if name == "pow" else 1
    return LaneFunction(
        lambda w, a: emit_function(w, name, a), (dtype,) * arity, dtype, lanes, level
    )


@cache
def _samples(dtype: DType, count: int) -> Any:
    """So many numbers, evenly spread in the order of bits, and edges."""
    word = np.dtype(f"u{dtype.bytes}")
    step = 2**dtype.bits // count
    jitter = np.random.default_rng(3).integers(0, step, count, np.uint64)
    bits = np.arange(count, dtype=np.uint64) * np.uint64(step) + jitter
    return np.concatenate([bits.astype(word).view(dtype.numpy), EDGES[dtype]])


def _wide(name: str, x: Any) -> Any:
    wider = np.float64 if x.dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        return UNARY[name][0](x.astype(wider))


@cache
def _reference(name: str, dtype: DType, count: int) -> Any:
    return _wide(name, _samples(dtype, count))


def _ulps(got: Any, want: Any) -> Any:
    """Distance in units of the last place at ``want`` (of a wider type); infinite where an
    infinity, a NaN or a sign is wrong."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        _, exponent = np.frexp(np.where(np.isfinite(want), want, 0.0))
        digits = np.maximum(exponent, info.minexp + 1) - info.nmant - 1
        distance = np.abs(np.ldexp(got.astype(want.dtype) - want, -digits))
    exact = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    # Where either overflows the distance says nothing.
    finite = np.isfinite(got) & np.isfinite(rounded)
    result = np.where(finite, distance, np.where(exact, 0.0, INF))
    wrong_sign = (np.signbit(got) != np.signbit(want)) & ~np.isnan(want)
    return np.where(wrong_sign, INF, result)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(
    ("dtype", "lanes", "count"),
    [(f32, 16, 1 << 20), (f32, 1, 1 << 16), (f64, 8, 1 << 14), (f64, 1, 1 << 14)],
    ids=str,
)
def test_errors_are_within_the_stated_ulps(
    name: str, dtype: DType, lanes: int, count: int, level: str
) -> None:
    x = _samples(dtype, count)
    errors = _ulps(_function(name, dtype, lanes, level)(x), _reference(name, dtype, count))
    worst = int(np.argmax(errors))
    assert errors[worst] <= UNARY[name][1], f"{name}({x[worst]!r}) is off by {errors[worst]} ulp"


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("lanes", [16, 1])
def test_exponentials_for_bf16_are_as_exact_as_that_needs(lanes: int, level: str) -> None:
    x = _samples(f32, 1 << 18)
    rounded = LaneFunction(
        lambda w, a: emit_less_exact(w, "exp", a[0]), (f32,), bf16, lanes, level
    )(x).astype(np.float64)
    with np.errstate(all="ignore"):
        want = np.exp(x.astype(np.float64))
    _, exponent = np.frexp(np.clip(want, 2.0**-126, 2.0**127))
    finite = want < 3.38e38
    assert np.all(np.abs(rounded - want)[finite] <= 0.51 * np.ldexp(1.0, exponent - 8)[finite])
    np.testing.assert_array_equal(rounded[want > 3.5e38], INF)
    np.testing.assert_array_equal(np.isnan(rounded), np.isnan(x))


@pytest.mark.skipif("avx512" not in levels(), reason="needs AVX-512")
@pytest.mark.parametrize("name", ["exp", "exp2"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_powers_of_two_by_an_instruction_give_the_same(dtype: DType, name: str) -> None:
    """A register of lanes has it, one lane has not."""
    x = _samples(dtype, 1 << 16)
    x = x[: x.size // 16 * 16]
    by_instruction = _function(name, dtype, 16, "avx512")
    assert "scalef" in by_instruction.text
    one = _function(name, dtype, 1, "avx512")(x)
    np.testing.assert_array_equal(by_instruction(x), one)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", ["exp", "exp2"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_what_vanishes_does_not_underflow(dtype: DType, name: str, level: str) -> None:
    """Products that are too small take Intel's processors ten times as long. What attention masks
    is minus infinity, or a great number below 0."""
    function = _function(name, dtype, 16, level)
    x = np.array([-INF, -1e30, -1e4, -2e3, 0.0, 1.0, -1.0, NAN] * 2, dtype.numpy)
    math_library = ctypes.CDLL(ctypes.util.find_library("m"))
    underflow = 16  # FE_UNDERFLOW on x86
    math_library.feclearexcept(underflow)
    result = function(x)
    assert not math_library.fetestexcept(underflow)
    assert not result[:4].any() and np.isnan(result[7]) and (result[4:7] > 0).all()


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_each_edge_in_all_lanes(dtype: DType, name: str, level: str) -> None:
    x = np.repeat(EDGES[dtype], 16)
    got = _function(name, dtype, 16, level)(x)
    assert _ulps(got, _wide(name, x)).max() <= UNARY[name][1]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(("dtype", "count"), [(f32, 1 << 16), (f64, 1 << 12)], ids=str)
def test_errors_where_results_are_ordinary(dtype: DType, count: int, name: str) -> None:
    rng = np.random.default_rng(5)
    scale = np.repeat([0.01, 0.3, 1, 3, 20, 300, 1e4], count)
    x = (rng.normal(size=scale.size) * scale).astype(dtype.numpy)
    want = _wide(name, x)
    assert levels()
    for level in levels():
        errors = _ulps(_function(name, dtype, 16, level)(x), want)
        worst = int(np.argmax(errors))
        assert errors[worst] <= UNARY[name][1], f"{name}({x[worst]!r}), {level}"


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("lanes", [16, 1])
@pytest.mark.parametrize(
    ("dtype", "count", "bound"), [(f32, 1 << 18, 0.51), (f64, 1 << 14, 0.8)], ids=str
)
def test_pow(dtype: DType, count: int, bound: float, lanes: int, level: str) -> None:
    rng = np.random.default_rng(9)
    wild = _samples(dtype, count)
    size = wild.size
    more = dtype.bits // 4  # of f64, exponents are 8 times as great
    normal = rng.normal(size=(7, size))
    beside = 1 + normal[0] * np.exp2(-rng.uniform(2, 40, size))
    bases = [rng.permutation(wild), np.exp(normal[1]), np.exp(normal[2] * more), beside]
    exponents = [wild, normal[3] * 5 * more, normal[4] * 8]
    with np.errstate(all="ignore"):
        exponents += [normal[5] * 5 * more / np.log(np.abs(beside)), np.rint(normal[6] * 5)]
    x = np.concatenate([*bases, -bases[1], np.repeat(EDGES[dtype], 16)]).astype(dtype.numpy)
    y = np.concatenate([*exponents, np.tile(EDGES[dtype], 16)]).astype(dtype.numpy)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(WIDER[dtype]), y.astype(WIDER[dtype]))
    errors = _ulps(_function("pow", dtype, lanes, level)(x, y), want)
    worst = int(np.argmax(errors))
    assert errors[worst] <= bound, f"pow({x[worst]!r}, {y[worst]!r})"


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize(("dtype", "step"), [(f32, 7), (f64, 1)], ids=str)
def test_large_angles_near_multiples_of_half_pi(dtype: DType, step: int, name: str) -> None:
    k = np.arange(1, 2 * LIMIT[dtype] / math.pi, step)
    x = (k * (math.pi / 2)).astype(dtype.numpy)
    x = x[: x.size // 16 * 16]
    errors = _ulps(_function(name, dtype, 16, levels()[0])(x), _wide(name, x))
    assert errors.max() <= UNARY[name][1]


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize(
    ("dtype", "most", "hardest"), [(f32, 127, (16367173, 72)), (f64, 1023, (6381956970095103, 797))]
)
def test_angles_of_many_turns(
    dtype: DType, most: int, hardest: tuple[int, int], name: str, level: str
) -> None:
    # The number of at least this size that is nearest to a multiple of a quarter turn, and powers.
    powers = np.ldexp(1.0, np.arange(16, most))
    exact = np.concatenate([[math.ldexp(*hardest)], powers, powers * 1.7, [1.9 * powers[-1]]])
    x = np.resize(np.concatenate([exact, -exact]), 4096).astype(dtype.numpy)
    errors = _ulps(_function(name, dtype, 8, level)(x), _wide(name, x))
    assert errors.max() <= UNARY[name][1]


ANGLES = """
kernel angles(in x: {0}[4096], out y: {0}[4096]):
  compute angles(i in 4096):
    y[i] = sin(x[i]) + cos(x[i])
"""


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("target", ["nvidia:sm_80", pytest.param("spirv", marks=needs_opencl)])
def test_angles_on_devices(target: str, dtype: DType) -> None:
    """What a module defines is its target's: nothing of the C library, no masks of bits."""
    kernel = tw.compile(tw.parse_kernel(ANGLES.format(dtype)), target=target)
    assert "sinf" not in kernel.source("asm" if target.startswith("nvidia") else "llvm")
    if target == "spirv":
        x = np.ldexp(np.random.default_rng(1).normal(size=4096), np.arange(4096) // 64)
        x = x.astype(dtype.numpy)
        wide = x.astype(WIDER[dtype])
        unit = np.finfo(dtype.numpy).eps
        np.testing.assert_allclose(kernel(x=x), np.sin(wide) + np.cos(wide), rtol=0, atol=4 * unit)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_sine_and_cosine_of_one_number_reduce_it_once(dtype: DType) -> None:
    source = tw.compile(tw.parse_kernel(ANGLES.format(dtype))).source("llvm")
    body = source[: source.index("define internal {")]
    assert body.count("@tilewright.turns.") == 1


MULTIPLY_ADD = """
kernel mads(in x: {0}[64], in y: {0}[64], in z: {0}[64], out r: {0}[64]):
  compute mads(i in 64):
    r[i] = mad(x[i], y[i], z[i])
"""


@pytest.mark.parametrize("dtype", [f64, f32, f16, bf16], ids=str)
@pytest.mark.parametrize("target", [*(f"x86:{level}" for level in levels()), "interpreter"])
def test_mad_rounds_once_or_twice(target: str, dtype: DType) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=64).astype(dtype.numpy) for _ in range(2))
    z = (-(x * y)).astype(dtype.numpy)  # so that what a product loses is all that is left
    kernel = tw.compile(tw.parse_kernel(MULTIPLY_ADD.format(dtype)), target=target)
    got = np.asarray(kernel(x=x, y=y, z=z)).astype(np.float64)
    exact = [
        Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        for a, b, c in zip(x, y, z, strict=True)
    ]
    once = np.array([float(number) for number in exact]).astype(dtype.numpy)
    twice = (x * y).astype(dtype.numpy) + z
    assert np.all((got == once.astype(np.float64)) | (got == twice.astype(np.float64)))


@pytest.mark.parametrize(
    "op", [tw.softmax("32x1000", dtype=f64), tw.attention("1x2x64x32:1x2x64x32", dtype=f64)]
)
def test_exponentials_of_f64_on_nvidia(op: Any) -> None:
    assert "fma.rn.f64" in tw.compile(op, target="nvidia:sm_80").source("asm")


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_narrow_floats_are_computed_in_f32(name: str, dtype: DType) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(dtype.numpy)
    single = _function(name, f32, 16, levels()[0])(x.astype(np.float32))
    with np.errstate(all="ignore"):
        want = single.astype(dtype.numpy)
    got = _function(name, dtype, 16, levels()[0])(x)
    # As f32, because numpy does not know bf16's NaNs.
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "floor", "ceil", "round", "abs"])
def test_instructions_of_f64(name: str) -> None:
    x = np.random.default_rng(2).gamma(2.0, size=64)
    exact: dict[str, Callable[[Any], Any]] = {
        "sqrt": np.sqrt,
        "rsqrt": lambda a: 1 / np.sqrt(a),
        "floor": np.floor,
        "ceil": np.ceil,
        "round": np.rint,
        "abs": np.abs,
    }
    got = _function(name, f64, 4, levels()[0])(x)
    np.testing.assert_array_equal(got, exact[name](x))


@pytest.mark.parametrize("name", [*UNARY, "pow"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_vector_code_is_not_by_lanes(dtype: DType, name: str) -> None:
    function = _function(name, dtype, 16, levels()[0])
    text = assembly(function.text, function.cpu, function.features)
    # sin and cos of many turns have functions of one number.
    text = re.sub(r'"?tilewright\.[\w.]+\.far"?:.*?\.size', "", text, flags=re.DOTALL)
    for scalar in ("mulss", "addss", "vfmadd213ss", "mulsd", "addsd", "vfmadd213sd"):
        assert scalar not in text
    assert not re.search(r"call\w*\s+(?!.*tilewright)", text)


@pytest.mark.parametrize("lanes", [2, 8, 48, 64])
def test_erf_of_any_number_of_lanes(lanes: int) -> None:
    x = np.resize(_samples(f32, 1 << 12), 4096 * 48)
    got = _function("erf", f32, lanes, levels()[0])(x)
    assert _ulps(got, _erf(x.astype(np.float64))).max() <= UNARY["erf"][1]


@pytest.mark.parametrize("level", levels())
def test_erf_ends_in_one(level: str) -> None:
    """Else gelu of a great negative number would not be 0."""
    x = np.resize(np.array([4, 5.5, 100, 1e38, INF], np.float32), 80)
    erf = _function("erf", f32, 16, level)
    assert (erf(x) == 1).all() and (erf(-x) == -1).all()


@pytest.mark.parametrize(("lanes", "registers"), [(4, 1), (16, 1), (48, 3), (64, 4)])
def test_coefficients_of_erf_are_picked_from_registers(lanes: int, registers: int) -> None:
    dialect = dialect_for(x86_target("avx512").machine)
    text = module_text(lambda w, a: emit_function(w, "erf", a), (f32,), f32, lanes, dialect)
    assert assembly(text, "skylake-avx512").count("\tvpermps\t") == 6 * registers


def _max_of_integer(w: Writer, arguments: tuple[Value, ...]) -> Value:
    """The maximum of a float and of an integer as a float, of which LLVM knows that it is no
    NaN."""
    a, i = arguments
    b = a._replace(text=w.assign(f"uitofp {i.typed} to {a.type}"))
    return a._replace(text=emit_float_min_max(w, "max", a, b, b))


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize(("dtype", "integer"), [(f32, u32), (f64, u64)])
def test_a_maximum_keeps_signaling_nans(
    dtype: DType, integer: DType, lanes: int, level: str
) -> None:
    """LLVM asks vfpclass for quiet ones only, where it knows that the other operand is no NaN."""
    quiet = np.array(NAN, dtype.numpy).view(integer.numpy)
    signaling = (quiet ^ (1 << (22 if dtype is f32 else 51)) | 1).astype(integer.numpy)
    x = np.full(16, signaling).view(dtype.numpy)
    function = LaneFunction(_max_of_integer, (dtype, integer), dtype, lanes, level)
    assert np.isnan(function(x, np.arange(16, dtype=integer.numpy))).all()


def test_a_maximum_asks_no_class_of_numbers() -> None:
    dialect = dialect_for(x86_target("avx512").machine)
    text = module_text(_max_of_integer, (f32, u32), f32, 1, dialect)
    code = assembly(text, "skylake-avx512")
    assert "vmaxss" in code and "vfpclass" not in code


def test_an_unknown_function_is_refused() -> None:
    with pytest.raises(CompilationError, match="no code for the function 'gamma'"):
        emit_function(Writer({}), "gamma", (Value("%x", f32, 16),))
