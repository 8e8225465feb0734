"""Test data, deterministic from a seed.

Integers (as in benchdnn's correctness mode): so few and so small that every partial sum, in every
order, is exact in the accumulator and in the destination. Then a kernel is right exactly if its
results are equal. And reals, for which `testing.bounds` has an error bound.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.conversions import convert, represented
from tilewright.dtypes import DType, boolean, f32, tf32

# The greatest magnitude of test integers per type.
_MAGNITUDE = {
    "f64": 32,
    "f32": 32,
    "tf32": 32,
    "f16": 4,
    "bf16": 4,
    "f8_e4m3": 4,
    "f8_e5m2": 2,
    "s64": 32,
    "s32": 32,
    "s16": 16,
    "s8": 4,
    "u64": 32,
    "u32": 32,
    "u16": 16,
    "u8": 8,
    "s4": 8,
    "u4": 15,
    "bool": 1,
}


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest test integers of a type."""
    magnitude = _MAGNITUDE[dtype.name]
    if dtype.is_nibble:
        return int(dtype.lowest), int(dtype.highest)
    return (0 if dtype.kind in ("uint", "bool") else -magnitude), magnitude


def exact_limit(dtype: DType) -> int:
    """All integers up to this magnitude are exact in ``dtype``."""
    return 1 << dtype.digits if dtype.is_float else int(dtype.highest)


def exact_terms(a: DType, b: DType, accumulator: DType, dst: DType) -> int:
    """The number of non-zero products of test integers that may be added to one output; at least 1.

    Every such sum is exact in the accumulator, and in a float ``dst``. Integer destinations
    saturate, which is exact too: there, enough terms for results to spread over the range.
    """
    largest = _MAGNITUDE[a.name] * _MAGNITUDE[b.name]
    terms = exact_limit(accumulator) // largest
    if dst.is_float:
        terms = min(terms, exact_limit(dst) // largest)
    elif dst.bits < accumulator.bits:
        # The root mean square of a term is about largest / 3: results of half the range are usual.
        terms = min(terms, math.ceil((exact_limit(dst) / 2 / (largest / 3)) ** 2))
    return max(1, terms)


def integers(
    shape: tuple[int, ...],
    dtype: DType,
    *,
    seed: int,
    axes: tuple[int, ...] = (),
    terms: int | None = None,
) -> Any:
    """Test integers of ``dtype``; along ``axes`` together, at most ``terms`` are not zero.

    ``axes`` are those that the operation reduces: for convolution's weights (1, 2, 3) forward and
    (0, 2, 3) backward by data. One thinned operand is enough to keep sums exact.
    """
    generator = np.random.default_rng(seed)
    low, high = integer_range(dtype)
    values = generator.integers(low, high, shape, endpoint=True)
    reduced = math.prod(shape[axis] for axis in axes)
    if terms is not None and terms < reduced:
        values = np.where(_thinned(shape, axes, terms, generator), values, 0)
    return values.astype(dtype.numpy)


def _thinned(
    shape: tuple[int, ...], axes: tuple[int, ...], terms: int, generator: np.random.Generator
) -> Any:
    """True at exactly ``terms`` random places along ``axes``."""
    others = tuple(axis for axis in range(len(shape)) if axis not in axes)
    rows = math.prod(shape[axis] for axis in others)
    columns = math.prod(shape[axis] for axis in axes)
    keep = np.zeros((rows, columns), np.bool_)
    keep[:, :terms] = True
    keep = generator.permuted(keep, axis=1)
    order = others + axes
    return keep.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


# Of summands: exponents of the magnitudes, and the greatest integers, whose sums fit in s32.
_EXPONENTS = (-8, -1)
_SUMMABLE = 256


def summands(shape: tuple[int, ...], dtype: DType, *, seed: int) -> Any:
    """Numbers of both signs whose sums round heavily: with all digits of the type, and magnitudes
    from 2^-8 to 1. For an integer type, any of its numbers up to 256."""
    generator = np.random.default_rng(seed)
    if not dtype.is_float:
        low, high = max(int(dtype.lowest), -_SUMMABLE), min(int(dtype.highest), _SUMMABLE)
        return generator.integers(low, high, shape, endpoint=True).astype(dtype.numpy)
    magnitudes = np.exp2(generator.integers(*_EXPONENTS, shape, endpoint=True))
    values = generator.uniform(1.0, 2.0, shape) * magnitudes
    values *= generator.choice((-1.0, 1.0), shape)
    return (
        _as_tf32(values.astype(np.float32)) if dtype.name == "tf32" else values.astype(dtype.numpy)
    )


def _as_tf32(values: Any) -> Any:
    """Numbers of f32 truncated to tf32."""
    mask = np.uint32(0xFFFFFFFF ^ (2 ** (24 - tf32.digits) - 1))
    return (values.view(np.uint32) & mask).view(np.float32)


def reals(
    shape: tuple[int, ...], dtype: DType, *, seed: int, low: float = -1.0, high: float = 1.0
) -> Any:
    """Uniform numbers from ``low`` to ``high`` in ``dtype``; for an integer type, `integers`."""
    if not dtype.is_float:
        return integers(shape, dtype, seed=seed)
    generator = np.random.default_rng(seed)
    values = generator.uniform(low, high, shape).astype(np.float32)
    return _as_tf32(values) if dtype.name == "tf32" else values.astype(dtype.numpy)


# Numbers that types of 8 and 16 bits lack, ties of roundings, and both zeros: of few digits, so
# that sums of some are exact in f32.
_ODD = (0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 127.5, 129.0, 255.5, 256.0, 300.0, 32769.0, 40000.0, 70000.5)
_NONFINITE = (math.inf, math.nan)
# Numbers beyond the ranges of 32 and 64 bits.
_GREAT = (2147483648.0, 3e9, 4294967296.0, 9.3e18, 2e19)
_MOST_ADDED = 1 << 15


def limit_values(
    shape: tuple[int, ...], dtype: DType, *, seed: int, adds: bool, finite: bool
) -> Any:
    """Numbers at the limits of types, ``dtype`` and narrower ones: any integers; floats with
    infinities and NaN, unless they have to be ``finite``. Where floats are added (``adds``), none
    so large that sums lose the others."""
    generator = np.random.default_rng(seed)
    if dtype.kind == "bool":
        return integers(shape, dtype, seed=seed)
    if dtype.is_integer:
        low, high = int(dtype.lowest), int(dtype.highest)
        if adds:
            low, high = max(low, -_MOST_ADDED), min(high, _MOST_ADDED)
        wide = np.uint64 if dtype.kind == "uint" else np.int64
        values = generator.integers(low, high, shape, dtype=wide, endpoint=True)
        ends = generator.choice(np.array([low, high, max(low, -1), 0, 1], wide), shape)
        return np.where(generator.random(shape) < 0.5, ends, values).astype(dtype.numpy)
    pool = [*_ODD, *(() if adds else _GREAT), *_NONFINITE]
    if finite:
        pool = [number for number in _ODD if math.isfinite(represented(number, dtype))]
    with np.errstate(over="ignore"):
        values = generator.choice(np.array(pool, np.float32), shape)
        values *= generator.choice(np.array([1, -1], np.float32), shape)
        return _as_tf32(values) if dtype.name == "tf32" else values.astype(dtype.numpy)


def samples(dtype: DType, count: int, seed: int) -> Any:
    """A row of values of a type: any bits, small numbers, and its limits, NaN included."""
    generator = np.random.default_rng(seed)
    if dtype is boolean:
        return generator.integers(0, 2, count).astype(np.bool_)
    bits = generator.integers(0, 256, (count, dtype.bytes), np.uint8).view(dtype.numpy).ravel()
    with np.errstate(all="ignore"):
        small: Any = generator.integers(-9, 10, count)
        if dtype.is_float:
            ends = generator.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38], count)
            small = small / 4
        else:
            near = generator.integers(0, 3, count)
            choice = generator.integers(0, 2, count) == 1
            ends = np.where(
                choice,
                np.array(dtype.lowest, dtype.numpy) + near.astype(dtype.numpy),
                np.array(dtype.highest, dtype.numpy) - near.astype(dtype.numpy),
            )
        choices = generator.integers(0, 3, count)
        values = np.where(choices == 0, bits, small.astype(dtype.numpy))
        values = np.where(choices == 1, ends.astype(dtype.numpy), values).astype(dtype.numpy)
        return convert(values, f32, tf32) if dtype is tf32 else values
