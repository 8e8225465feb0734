"""What operators mean, the same on every path: interpreted, as machine code, and as PTX."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES, HERE, needs_device, needs_opencl
from random_ir import random_expr
from scalar_runs import Arrays, assert_same, compiled, interpreted
from sweeps import in_turns
from tilewright.dtypes import COMPUTED, DType, f32, f64, s8, s16, s32, s64, u8, u32
from tilewright.ir import (
    Block,
    For,
    Kernel,
    Let,
    LoopKind,
    Param,
    Store,
    buffer,
    const,
    load,
    parse_kernel,
    var,
)
from tilewright.ir.evaluate import evaluate
from tilewright.simplify import simplify, simplify_kernel
from tilewright.targets.nvidia.ptxas import find_ptxas
from tilewright.targets.registry import find_target
from tilewright.testing.data import samples

SIZE = 256
# The loops around a line, and what runs them: code of each kind for each machine.
WAYS = {
    "scalar": (("for", "for"), ("x86", "x86:sse42")),
    "vector": (("for", "vector for"), ("x86", "x86:avx2", "x86:sse42")),
    "items": (("grid for", "lane for"), HERE),
}
WAY_PARAMETERS = [pytest.param(way, marks=needs_device if way == "items" else ()) for way in WAYS]


def kernel_of(way: str, params: str, *lines: str) -> Kernel:
    """A kernel of the lines at each place ``n`` of its arrays, which have 256 elements."""
    outer, inner = WAYS[way][0]
    text = "\n".join(
        [
            f"kernel k({params.replace('[]', f'[{SIZE}]')}):",
            f"  {outer} o in {SIZE // 16}:",
            f"    {inner} l in 16:",
            *(f"      {line.replace('[n]', '[o * 16 + l]')}" for line in lines),
            "",
        ]
    )
    return parse_kernel(text)


def arrays_of(kernel: Kernel, seed: int = 0) -> Arrays:
    return {
        p.name: samples(p.dtype, p.buffer.shape[0], seed + position)
        if p.access != "out"
        else np.zeros(p.buffer.shape, p.dtype.numpy)
        for position, p in enumerate(kernel.params)
    }


def check(way: str, kernel: Kernel, arrays: Arrays) -> Arrays:
    """What the kernel gives, interpreted, and the same by all that runs here."""
    wanted = interpreted(kernel, arrays)
    for target in WAYS[way][1]:
        assert_same(compiled(kernel, arrays, target), wanted)
    return wanted


def ptx(kernel: Kernel, level: str = "sm_80") -> str:
    target = find_target(f"nvidia:{level}")
    module = target.lower(kernel)
    if find_ptxas(level) is not None:
        target.assemble(module)
    return target.assembly(module)


# Hashes.


PCG = (
    "state: u32 = src[n] * u32(747796405) + u32(2891336453)",
    "word: u32 = ((state >> (state >> u32(28)) + u32(4)) ^ state) * u32(277803737)",
    "dst[n] = word >> u32(22) ^ word",
)
# xxHash's finish and a rotation, a product with all its bits, and counts.
MIX = (
    "a: u32 = (src[n] << u32(13) or src[n] >> u32(19)) * u32(2654435761)",
    "b: u32 = (a ^ a >> u32(15)) * u32(2246822519)",
    "c: u32 = mulhi(b, a) ^ (b and not a) + clz(b) * popcount(a)",
    "dst[n] = c ^ c >> u32(16)",
)


def pcg(x: int) -> int:
    """M. O'Neill's PCG-RXS-M-XS of 32 bits."""
    state = (x * 747796405 + 2891336453) % 2**32
    word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737 % 2**32
    return word >> 22 ^ word


@pytest.mark.parametrize("way", WAY_PARAMETERS)
@pytest.mark.parametrize("lines", [PCG, MIX], ids=["pcg", "mix"])
def test_hashes(way: str, lines: tuple[str, ...]) -> None:
    kernel = kernel_of(way, "in src: u32[], out dst: u32[]", *lines)
    arrays = arrays_of(kernel)
    result = check(way, kernel, arrays)["dst"]
    if lines is PCG:
        assert result.tolist() == [pcg(int(x)) for x in arrays["src"]]
    assert len(set(result.tolist())) > 100


@pytest.mark.parametrize("lines", [PCG, MIX], ids=["pcg", "mix"])
def test_hashes_for_nvidia(lines: tuple[str, ...]) -> None:
    text = ptx(kernel_of("items", "in src: u32[], out dst: u32[]", *lines))
    assert "shr.u32" in text
    if lines is MIX:
        assert all(instruction in text for instruction in ("mul.hi.u32", "clz.b32", "popc.b32"))


def test_a_hash_of_64_bits_for_nvidia() -> None:
    line = "dst[n] = mulhi(src[n], u64(11400714819323198485)) ^ clz(src[n]) ^ popcount(src[n])"
    text = ptx(kernel_of("items", "in src: u64[], out dst: u64[]", line))
    assert all(instruction in text for instruction in ("mul.hi.u64", "clz.b64", "popc.b64"))


# Each operator on integers.

LINES = {
    "shl": "a[n] << b[n]",
    "shr": "a[n] >> b[n]",
    "shl by constant": "a[n] << T(3)",
    "shr by constant": "a[n] >> T(3)",
    "beyond the width": "(a[n] << T(64)) + (b[n] >> T(64))",
    "bits": "(a[n] and b[n]) ^ (a[n] or not b[n])",
    "mulhi": "mulhi(a[n], b[n])",
    "counts": "clz(a[n]) * T(7) + popcount(b[n])",
    "division": "a[n] // b[n]",
    "modulo": "a[n] % b[n]",
    "order": "select(a[n] < b[n], max(a[n], b[n]), min(b[n], a[n] - b[n]))",
    "signs": "abs(a[n]) ^ -b[n]",
}


@pytest.mark.parametrize("type_", [t for t in COMPUTED if t.is_integer], ids=str)
@pytest.mark.parametrize("way", WAY_PARAMETERS)
def test_integers(way: str, type_: DType) -> None:
    names = [f"r{i}" for i in range(len(LINES))]
    outs = "".join(f", out {name}: {type_}[]" for name in names)
    lines = [
        f"{name}[n] = {line.replace('T(', f'{type_}(')}"
        for name, line in zip(names, LINES.values(), strict=True)
    ]
    kernel = kernel_of(way, f"in a: {type_}[], in b: {type_}[]{outs}", *lines)
    check(way, kernel, arrays_of(kernel))


@pytest.mark.parametrize("way", WAY_PARAMETERS)
def test_the_least_number_by_minus_one_wraps(way: str) -> None:
    for type_ in (s8, s16, s32, s64):
        params = f"in a: {type_}[], in b: {type_}[], out q: {type_}[], out r: {type_}[]"
        kernel = kernel_of(way, params, "q[n] = a[n] // b[n]", "r[n] = a[n] % b[n]")
        arrays = arrays_of(kernel)
        arrays["a"][:] = type_.lowest
        arrays["b"][:] = -1
        result = check(way, kernel, arrays)
        assert (result["q"] == type_.lowest).all() and (result["r"] == 0).all()


@pytest.mark.parametrize("way", WAY_PARAMETERS)
def test_the_least_number_by_a_known_negative_one(way: str) -> None:
    for type_ in (s8, s16, s32, s64):
        params = f"in a: {type_}[], out q: {type_}[], out r: {type_}[]"
        kernel = kernel_of(way, params, f"q[n] = a[n] // {type_}(-3)", f"r[n] = a[n] % {type_}(-3)")
        arrays = arrays_of(kernel)
        arrays["a"][:] = type_.lowest
        result = check(way, kernel, arrays)
        assert (result["q"] == type_.lowest // -3).all() and (result["r"] == -2).all()


@pytest.mark.parametrize("way", WAY_PARAMETERS)
def test_indices_of_bits(way: str) -> None:
    lines = (
        "i: s64 = (o * 16 + l ^ 5) << 3",
        "j = i >> 3 and 255",
        "wide = i << 40 >> 41",
        "dst[n] = src[n] * j + wide + clz(i) + mulhi(i << 45, i << 20)",
    )
    kernel = kernel_of(way, "in src: s64[], out dst: s64[]", *lines)
    arrays = {**arrays_of(kernel), "src": np.arange(SIZE) * 7}
    for stage in (kernel, simplify_kernel(kernel)):
        check(way, stage, arrays)


# Bits of floats.


@pytest.mark.parametrize("way", WAY_PARAMETERS)
@pytest.mark.parametrize("type_", [t for t in COMPUTED if t.is_float and str(t) != "tf32"], ids=str)
def test_bit_casts(way: str, type_: DType) -> None:
    bits = type_.bits
    kernel = kernel_of(
        way,
        f"in x: {type_}[], out u: u{bits}[], out s: s{bits}[], out y: {type_}[], out n: bool[]",
        f"code: u{bits} = bitcast(u{bits}, x[n])",
        "u[n] = code",
        f"s[n] = bitcast(s{bits}, x[n])",
        f"y[n] = bitcast({type_}, code ^ u{bits}({1 << (bits - 1)}))",
        f"n[n] = bitcast({type_}, u{bits}({_nan_bits(type_)})) == x[n]",
    )
    arrays = arrays_of(kernel)
    result = check(way, kernel, arrays)
    # Moved, not computed on: the bits of NaNs stay what they are, too.
    assert result["u"].tobytes() == arrays["x"].tobytes() == result["s"].tobytes()
    assert not result["n"].any()


def _nan_bits(type_: DType) -> int:
    """A NaN that is not the one that computing gives."""
    if type_ is f64:
        return 0x7FF8000000000123
    return 0x7FC00123 if type_ is f32 else (1 << type_.bits - 1) - 1


# Floats: NaN, zeros, rounding.


ODD = (0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("way", WAY_PARAMETERS)
@pytest.mark.parametrize("type_", [t for t in COMPUTED if t.is_float], ids=str)
def test_nan_and_zeros(way: str, type_: DType) -> None:
    """NaN compares false and is unequal; min and max give it; -0.0 is less than 0.0 to them."""
    kernel = kernel_of(
        way,
        f"in a: {type_}[], in b: {type_}[], out m: {type_}[], out x: {type_}[], out z: {type_}[], "
        f"out y: {type_}[], out w: {type_}[], out v: {type_}[], out c: u8[]",
        "m[n] = min(a[n], b[n])",
        "x[n] = max(a[n], b[n])",
        f"z[n] = min(a[n], {type_}(0.0))",
        f"y[n] = max(a[n], {type_}(-0.0))",
        f"w[n] = max(a[n], {type_}(0.0))",
        f"v[n] = min(a[n], {type_}(nan))",
        "c[n] = u8(a[n] < b[n]) + u8(a[n] <= b[n]) * u8(2) + u8(a[n] == b[n]) * u8(4) "
        "+ u8(a[n] != b[n]) * u8(8) + u8(not a[n] < b[n]) * u8(16)",
    )
    arrays = arrays_of(kernel)
    pairs = [(a, b) for a in ODD for b in ODD]
    with np.errstate(all="ignore"):
        for name, column in zip("ab", zip(*pairs, strict=True), strict=True):
            arrays[name][: len(pairs)] = np.array(column).astype(type_.numpy)
    result = check(way, kernel, arrays)
    known = {name: array.astype(np.float64) for name, array in result.items()}
    a, b = known["a"], known["b"]
    unknown = np.isnan(a) | np.isnan(b)
    assert np.isnan(known["v"]).all()
    for name, sign in (("m", True), ("x", False)):
        assert (np.isnan(known[name]) == unknown).all()
        zeros = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
        assert zeros.any() and (np.signbit(known[name][zeros]) == sign).all()
    assert (result["c"][unknown] == 8 + 16).all()


@pytest.mark.parametrize("way", WAY_PARAMETERS)
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_products_and_sums_round_separately(way: str, type_: str) -> None:
    kernel = kernel_of(
        way,
        f"in a: {type_}[], in b: {type_}[], in c: {type_}[], out x: {type_}[], out y: {type_}[]",
        "x[n] = a[n] * b[n] + c[n]",
        f"product: {type_} = a[n] * b[n]",
        "y[n] = c[n] - product",
    )
    generator = np.random.default_rng(1)
    arrays = arrays_of(kernel)
    for name in "ab":
        arrays[name][:] = generator.normal(size=SIZE)
    arrays["c"][:] = -(arrays["a"] * arrays["b"])
    result = check(way, kernel, arrays)
    # A fused operation would give what the product's rounding cut off.
    assert (result["x"] == 0).all()


@pytest.mark.parametrize("target", ["x86", *DEVICES])
def test_what_a_statement_accumulates_may_round_once(target: str) -> None:
    """An element that products are added to: each is right that rounds once or twice."""
    way = "vector" if target == "x86" else "items"
    kernel = kernel_of(way, "in a: f32[], in b: f32[], inout c: f32[]", "c[n] = c[n] + a[n] * b[n]")
    generator = np.random.default_rng(1)
    arrays = arrays_of(kernel)
    for name in "ab":
        arrays[name][:] = generator.normal(size=SIZE)
    arrays["c"][:] = -(arrays["a"] * arrays["b"])
    exact = arrays["a"].astype(np.float64) * arrays["b"] + arrays["c"]
    got = compiled(kernel, arrays, target)["c"]
    assert ((got == 0) | (got == exact.astype(np.float32))).all()
    assert (interpreted(kernel, arrays)["c"] == 0).all()


def test_floats_for_nvidia() -> None:
    params = "in a: f32[], in b: f32[], out c: f32[], inout d: f32[], out e: f32[], out f: f32[]"
    kernel = kernel_of(
        "items",
        params,
        "c[n] = a[n] * b[n] + b[n]",
        "d[n] = d[n] + a[n] * b[n]",
        "e[n] = min(a[n], b[n])",
        "f[n] = max(a[n], b[n]) / b[n]",
    )
    text = ptx(kernel)
    # With .rn ptxas does not fuse them; without, it would.
    assert text.count("mul.rn.f32") == text.count("add.rn.f32") == 1
    assert text.count("fma.rn.f32") == 1
    assert "min.NaN.f32" in text and "max.NaN.f32" in text and "div.rn.f32" in text
    assert ".ftz" not in text
    ptx(kernel, "sm_70")


@needs_opencl
def test_spirv_contracts_nothing() -> None:
    kernel = kernel_of("items", "in a: f32[], out c: f32[]", "c[n] = a[n] * a[n] + a[n]")
    target = find_target("spirv")
    assert "ContractionOff" in target.assembly(target.lower(kernel))


# All types at once.


def random_kernel(seed: int, way: str) -> tuple[Kernel, list[Any]]:
    """Stores an expression of each type over variables of all types."""
    rng = random.Random(seed)
    size = 64
    variables = [var(f"v_{t}", t) for t in COMPUTED]
    ins = [buffer(f"in_{t}", t, (size,)) for t in COMPUTED]
    outs = [buffer(f"out_{t}", t, (size,)) for t in COMPUTED]
    exprs = [random_expr(rng, t, variables, depth=4, functions=False) for t in COMPUTED]
    outer, inner = var("o"), var("l")
    place = (outer * 16 + inner,)
    body: list[Let | Store] = [Let(v, load(b, place)) for v, b in zip(variables, ins, strict=True)]
    body += [Store(b, place, e) for b, e in zip(outs, exprs, strict=True)]
    kinds = [LoopKind(word.removesuffix("for").strip() or "serial") for word in WAYS[way][0]]
    lanes = For(inner, const(16), Block(tuple(body)), kinds[1])
    params = (*(Param(b, "in") for b in ins), *(Param(b, "out") for b in outs))
    return Kernel("k", params, For(outer, const(size // 16), lanes, kinds[0])), exprs


@pytest.mark.parametrize("way", WAY_PARAMETERS)
# Not 2: its product's high word is wrong on the processor's OpenCL device (docs/roadmap.md).
@pytest.mark.parametrize("seed", in_turns(3, (0, 1, 3)))
def test_random_expressions_of_all_types(seed: int, way: str) -> None:
    kernel, exprs = random_kernel(seed, way)
    arrays = arrays_of(kernel, seed)
    wanted = check(way, kernel, arrays)
    for at in range(0, 64, 9):
        values = {var(f"v_{t}", t): _number(arrays[f"in_{t}"][at], t) for t in COMPUTED}
        for type_, expr in zip(COMPUTED, exprs, strict=True):
            value, number = evaluate(expr, values), _number(wanted[f"out_{type_}"][at], type_)
            both_unknown = type_.is_float and value != value and number != number
            assert both_unknown or value == number, (type_, at, expr)


def _number(value: Any, type_: DType) -> Any:
    return float(value) if type_.is_float else value.item()


def test_u8_and_u32_are_what_they_say() -> None:
    """Unsigned numbers are known not to be negative, and to wrap."""
    x, y = var("x", u8), var("y", u32)
    assert simplify(const(0, u8) <= x) is const(True)
    assert simplify(x < x + const(1, u8)) is not const(True)
    assert simplify(y - const(1, u32) < y) is not const(True)
    assert simplify((y >> const(28, u32)) < const(16, u32)) is const(True)


@pytest.mark.parametrize("combiner", ["min", "max"])
def test_zeros_in_reductions(combiner: str) -> None:
    """As for the operators, in whatever order the elements come."""
    kernel = parse_kernel(
        f"""
kernel k(in x: f32[64, 8], inout y: f32[64]):
  compute all(m in 64, k in 8):
    v = x[m, k]
    y[m] {combiner}= v
"""
    )
    generator = np.random.default_rng(0)
    x = np.where(generator.integers(0, 4, (64, 8)) == 0, -0.0, 0.0).astype(np.float32)
    y = np.where(generator.integers(0, 4, 64) == 0, -0.0, 0.0).astype(np.float32)
    result = interpreted(kernel, {"x": x.ravel(), "y": y})["y"]
    signs = np.signbit(np.column_stack((x, y)))
    wanted = signs.any(axis=1) if combiner == "min" else signs.all(axis=1)
    np.testing.assert_array_equal(np.signbit(result), wanted)


def test_an_index_by_a_name_that_differs_by_lane() -> None:
    """It was the first lane's for all of them."""
    kernel = kernel_of(
        "vector",
        "in src: s64[], out dst: s64[], out far: s64[]",
        "i = o * 16 + l",
        "j = i // 8",
        "dst[i] = src[j]",
        "far[n] = src[i * 3 % 256]",
    )
    check("vector", kernel, arrays_of(kernel))


def test_an_index_that_each_lane_has_loaded() -> None:
    kernel = kernel_of(
        "vector",
        "in src: s64[], out dst: s64[]",
        "i = src[n] % 256",
        "j = (i + 1) % 256",
        "dst[n] = src[i] + src[j]",
    )
    check("vector", kernel, arrays_of(kernel))


@pytest.mark.parametrize("target", ["x86", *DEVICES])
def test_the_least_s64_is_its_own_absolute_value(target: str) -> None:
    """Also where it is divided: its range has negative numbers."""
    kernel = tw.parse_kernel(
        "kernel f(in x: s64[4], out y: s64[4]):\n  for i in 4:\n    y[i] = abs(x[i]) // 70000\n"
    )
    x = np.array([-(2**63), 5, -70001, 2**63 - 1])
    assert np.array_equal(tw.compile(kernel, target=target)(x), np.abs(x) // 70000)
