"""Verification data: deterministic, in range, and exact to add up in any order."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import dtypes
from tilewright.conversions import convert
from tilewright.dtypes import DType, bf16, f8_e4m3, f8_e5m2, f16, f32, s8, s32, tf32, u8
from tilewright.testing import data


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_integers_are_in_range_and_deterministic(dtype: DType) -> None:
    values = data.integers((50, 40), dtype, seed=3)
    assert values.dtype == dtype.numpy
    low, high = data.integer_range(dtype)
    numbers = values.astype(np.float64)
    assert numbers.min() == low
    assert numbers.max() == high
    assert np.all(numbers == np.rint(numbers))
    np.testing.assert_array_equal(values, data.integers((50, 40), dtype, seed=3))
    assert np.any(values != data.integers((50, 40), dtype, seed=4))


def test_thinning_bounds_each_reduction() -> None:
    weights = data.integers((6, 8, 3, 3), f32, seed=0, axes=(1, 2, 3), terms=5)
    per_output = np.count_nonzero(weights, axis=(1, 2, 3))
    assert per_output.max() <= 5
    assert per_output.min() >= 3  # some of the five are zero by chance
    back = data.integers((6, 8, 3, 3), f32, seed=0, axes=(0, 2, 3), terms=5)
    assert np.count_nonzero(back, axis=(0, 2, 3)).max() <= 5
    assert np.count_nonzero(data.integers((4, 9), f32, seed=0, axes=(1,), terms=9)) > 30


TYPES = [
    (f32, f32, f32, f32),
    (tf32, tf32, f32, tf32),
    (bf16, bf16, f32, bf16),
    (bf16, bf16, f32, f32),
    (f16, f16, f32, f16),
    (f16, f16, f16, f16),
    (f8_e4m3, f8_e4m3, f32, f8_e4m3),
    (f8_e5m2, f8_e5m2, f32, f8_e5m2),
    (u8, s8, s32, s32),
    (u8, s8, s32, s8),
]


@pytest.mark.parametrize("types", TYPES, ids=lambda t: "-".join(map(str, t)))
def test_sums_are_exact_in_any_order(types: tuple[DType, DType, DType, DType]) -> None:
    a_type, b_type, accumulator, dst = types
    terms = data.exact_terms(*types)
    reduced = 40_000
    a = data.integers((reduced,), a_type, seed=1)
    b = data.integers((20, reduced), b_type, seed=2, axes=(1,), terms=terms)
    products = a.astype(np.int64) * b.astype(np.int64)
    # No order has a partial sum beyond the sum of magnitudes.
    assert np.abs(products).sum(axis=1).max() <= data.exact_limit(accumulator)
    results = products.sum(axis=1)
    rounded = convert(convert(results, dtypes.s64, accumulator), accumulator, dst)
    if dst.is_float:
        np.testing.assert_array_equal(rounded.astype(np.float64), results)
    elif dst is s8:
        assert 0.05 < np.mean(np.abs(results) > 127) + np.mean(np.abs(results) > 60) < 1.5
    assert len(set(results.tolist())) > 3


def test_terms() -> None:
    assert data.exact_terms(f32, f32, f32, f32) == 2**24 // 1024
    assert data.exact_terms(bf16, bf16, f32, bf16) == 16
    assert data.exact_terms(f8_e5m2, f8_e5m2, f32, f8_e5m2) == 2
    assert data.exact_terms(u8, s8, s32, s32) == (2**31 - 1) // 32


@pytest.mark.parametrize("dtype", [t for t in dtypes.ALL if t.is_float], ids=str)
def test_reals(dtype: DType) -> None:
    values = data.reals((1000,), dtype, seed=5, low=-2, high=3)
    assert values.dtype == dtype.numpy
    np.testing.assert_array_equal(values, data.reals((1000,), dtype, seed=5, low=-2, high=3))
    numbers = values.astype(np.float64)
    assert -2 <= numbers.min() < -1.8
    assert 2.8 < numbers.max() <= 3
    np.testing.assert_array_equal(convert(values, dtype, dtype), values)
    if dtype is tf32:
        np.testing.assert_array_equal(convert(values, f32, tf32), values)


def test_reals_of_an_integer_type_are_integers() -> None:
    np.testing.assert_array_equal(data.reals((9,), s8, seed=1), data.integers((9,), s8, seed=1))
