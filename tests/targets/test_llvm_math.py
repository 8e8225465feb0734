"""Generated functions of f32 against float64: errors in ulp, edges, instruction sets, lanes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from lane_functions import LaneFunction, levels, module_text
from needs import needs_opencl
from tilewright.dtypes import DType, bf16, f16, f32, f64, u32, u64
from tilewright.errors import CompilationError
from tilewright.targets.llvm.math import emit_function
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
_erf: Callable[[Any], Any] = np.vectorize(math.erf, otypes=[np.float64])
# Each function in float64, and the bound that its docstring states.
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
EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e-40, -1e-40, 1e38],
    np.float32,
)


def _function(name: str, dtype: DType, lanes: int, level: str) -> LaneFunction:
    arity = 2 if name == "pow" else 1
    return LaneFunction(
        lambda w, a: emit_function(w, name, a), (dtype,) * arity, dtype, lanes, level
    )


@cache
def _samples(step: int) -> Any:
    """One f32 of every ``step`` neighbours in the order of bits, and edges."""
    start = np.arange(0, 2**32, step, dtype=np.uint64)
    jitter = np.random.default_rng(3).integers(0, step, start.size, np.uint64)
    bits = (start + jitter).astype(np.uint32)
    return np.concatenate([bits.view(np.float32), EDGES])


@cache
def _reference(name: str, step: int) -> Any:
    with np.errstate(all="ignore"):
        return UNARY[name][0](_samples(step).astype(np.float64))


def _ulps(got: Any, want: Any) -> Any:
    """Distance in units of f32's last place at ``want`` (float64); infinite where an infinity, a
    NaN or a sign is wrong."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        _, exponent = np.frexp(np.where(np.isfinite(want), want, 0.0))
        step = np.ldexp(1.0, np.maximum(exponent, -125) - 24)
        distance = np.abs(got.astype(np.float64) - want) / step
    exact = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    # Where either overflows the distance says nothing.
    finite = np.isfinite(got) & np.isfinite(rounded)
    result = np.where(finite, distance, np.where(exact, 0.0, INF))
    wrong_sign = (np.signbit(got) != np.signbit(want)) & ~np.isnan(want)
    return np.where(wrong_sign, INF, result)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(("lanes", "step"), [(16, 1 << 12), (1, 1 << 16)])
def test_errors_are_within_the_stated_ulps(name: str, lanes: int, step: int, level: str) -> None:
    x = _samples(step)
    errors = _ulps(_function(name, f32, lanes, level)(x), _reference(name, step))
    worst = int(np.argmax(errors))
    assert errors[worst] <= UNARY[name][1], f"{name}({x[worst]!r}) is off by {errors[worst]} ulp"


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("name", UNARY)
def test_each_edge_in_all_lanes(name: str, level: str) -> None:
    x = np.repeat(EDGES, 16)
    with np.errstate(all="ignore"):
        want = UNARY[name][0](x.astype(np.float64))
    assert _ulps(_function(name, f32, 16, level)(x), want).max() <= UNARY[name][1]


@pytest.mark.parametrize("name", UNARY)
def test_errors_where_results_are_ordinary(name: str) -> None:
    rng = np.random.default_rng(5)
    scale = np.repeat(np.array([0.01, 0.3, 1, 3, 20, 1e4], np.float32), 1 << 16)
    x = (rng.normal(size=scale.size) * scale).astype(np.float32)
    with np.errstate(all="ignore"):
        want = UNARY[name][0](x.astype(np.float64))
    assert levels()
    for level in levels():
        errors = _ulps(_function(name, f32, 16, level)(x), want)
        worst = int(np.argmax(errors))
        assert errors[worst] <= UNARY[name][1], f"{name}({x[worst]!r}), {level}"


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("lanes", [16, 1])
def test_pow(lanes: int, level: str) -> None:
    rng = np.random.default_rng(9)
    wild = _samples(1 << 14)
    size = wild.size
    bases = [
        rng.permutation(wild),
        np.exp(rng.normal(size=size)),
        np.exp(rng.normal(size=size) * 8),
    ]
    exponents = [wild, rng.normal(size=size) * 40, rng.normal(size=size) * 8]
    integers = np.rint(rng.normal(size=size) * 5)
    x = np.concatenate([*bases, -bases[1], np.repeat(EDGES, 16)]).astype(np.float32)
    y = np.concatenate([*exponents, integers, np.tile(EDGES, 16)]).astype(np.float32)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
    errors = _ulps(_function("pow", f32, lanes, level)(x, y), want)
    worst = int(np.argmax(errors))
    assert errors[worst] <= 0.51, f"pow({x[worst]!r}, {y[worst]!r})"


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles_near_multiples_of_half_pi(name: str) -> None:
    k = np.arange(1, 2 * LIMIT / math.pi, 7)
    x = (k * (math.pi / 2)).astype(np.float32)
    x = x[: x.size // 16 * 16]
    errors = _ulps(_function(name, f32, 16, levels()[0])(x), UNARY[name][0](x.astype(np.float64)))
    assert errors.max() <= UNARY[name][1]


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_of_many_turns(name: str) -> None:
    # The f32 of at least this size that is nearest to a multiple of a quarter turn, and powers.
    hardest = np.ldexp(np.float64(16367173), 72)
    exact = np.concatenate([[hardest], np.ldexp(1.0, np.arange(20, 127)), [3.4e38] * 4])
    x = np.concatenate([exact, -exact]).astype(np.float32)
    errors = _ulps(_function(name, f32, 8, levels()[0])(x), UNARY[name][0](x.astype(np.float64)))
    assert errors.max() <= UNARY[name][1]


ANGLES = """
kernel angles(in x: f32[4096], out y: f32[4096]):
  compute angles(i in 4096):
    y[i] = sin(x[i]) + cos(x[i])
"""


@pytest.mark.parametrize("target", ["nvidia:sm_80", pytest.param("spirv", marks=needs_opencl)])
def test_angles_on_devices(target: str) -> None:
    """What a module defines is its target's: nothing of the C library, no masks of bits."""
    kernel = tw.compile(tw.parse_kernel(ANGLES), target=target)
    assert "sinf" not in kernel.source("asm" if target.startswith("nvidia") else "llvm")
    if target == "spirv":
        x = np.ldexp(np.random.default_rng(1).normal(size=4096), np.arange(4096) // 64)
        x = x.astype(np.float32)
        wanted = np.sin(x.astype(np.float64)) + np.cos(x.astype(np.float64))
        np.testing.assert_allclose(kernel(x=x), wanted, rtol=0, atol=4e-7)


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


@pytest.mark.parametrize("name", [*UNARY, "sqrt", "rsqrt", "floor", "ceil", "round", "abs"])
def test_f64_uses_the_library(name: str) -> None:
    x = np.random.default_rng(2).gamma(2.0, size=64)
    exact: dict[str, Callable[[Any], Any]] = {
        **{n: f for n, (f, _) in UNARY.items()},
        "sqrt": np.sqrt,
        "rsqrt": lambda a: 1 / np.sqrt(a),
        "floor": np.floor,
        "ceil": np.ceil,
        "round": np.rint,
        "abs": np.abs,
    }
    got = _function(name, f64, 4, levels()[0])(x)
    np.testing.assert_allclose(got, exact[name](x), rtol=4e-16)


@pytest.mark.parametrize("name", [*UNARY, "pow"])
def test_vector_code_is_not_by_lanes(name: str) -> None:
    function = _function(name, f32, 16, levels()[0])
    text = assembly(function.text, function.cpu, function.features)
    # sin and cos of many turns have functions of one number.
    text = re.sub(r'"?tilewright\.\w+\.far"?:.*?\.size', "", text, flags=re.DOTALL)
    for scalar in ("mulss", "addss", "vfmadd213ss", "powf", "sinf", "cosf"):
        assert scalar not in text


@pytest.mark.parametrize("lanes", [2, 8, 48, 64])
def test_erf_of_any_number_of_lanes(lanes: int) -> None:
    x = np.resize(_samples(1 << 20), 4096 * 48)
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
