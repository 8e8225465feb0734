"""Sorts of rows that are too long for a network: by the digits of keys."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES, need_device
from tilewright.ir.printer import to_text

TARGETS = ["x86", "interpreter", *DEVICES]
Values = np.ndarray[Any, np.dtype[Any]]


def _floats(type_: Any) -> Values:
    """Many equal ones, both zeros, infinities, NaN with and without a sign."""
    x = np.random.default_rng(1).integers(-4, 5, (2, 90)).astype(np.float64) / 4
    x[0, ::7], x[0, 3::7] = -0.0, 0.0
    x[1, ::9], x[1, 4::9], x[1, 5], x[1, 6] = np.nan, -np.nan, np.inf, -np.inf
    return x.astype(type_)


def _integers(type_: Any) -> Values:
    """Many equal ones, and the least and the greatest."""
    about = np.iinfo(type_)
    x = np.random.default_rng(2).integers(0, 5, (2, 90)).astype(type_)
    x[0, ::5], x[1, 1::5] = about.min, about.max
    x[1, 2::5] = np.random.default_rng(3).integers(about.min, about.max, 18, type_)
    return x


def _order(x: Values, descending: bool) -> Values:
    """NaN is the greatest; equal ones stay in their order."""
    ranks = np.unique(x.astype(np.float64) if x.dtype.kind not in "iu" else x, return_inverse=True)
    places = ranks[1].reshape(x.shape)
    return np.argsort(-places if descending else places, axis=1, kind="stable")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("dtype", "x"),
    [
        ("f32", _floats(np.float32)),
        ("f64", _floats(np.float64)),
        ("bf16", _floats(ml_dtypes.bfloat16)),
        ("f8_e5m2", _floats(ml_dtypes.float8_e5m2)),
        ("s64", _integers(np.int64)),
        ("u32", _integers(np.uint32)),
        ("s8", _integers(np.int8)),
    ],
)
def test_equal_ones_stay_in_their_order(
    dtype: str, x: Values, descending: bool, target: str
) -> None:
    need_device(target)
    op = tw.sort("2x90", descending=descending, dtype=f"{dtype}:{dtype}:s32")
    result = tw.compile(op, target)(src=x)
    order = _order(x, descending)
    np.testing.assert_array_equal(result["indices"], order)
    sorted_ = np.take_along_axis(x, order, 1)
    np.testing.assert_array_equal(result["dst"].astype(np.float64), sorted_.astype(np.float64))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [1, 7, 60, 90])
def test_the_first_of_long_rows(count: int, target: str) -> None:
    need_device(target)
    for x in (_floats(np.float32), np.sort(_floats(np.float32), axis=1)):
        result = tw.compile(tw.topk((2, 90), count=count), target)(src=x)
        order = _order(x, descending=True)[:, :count]
        np.testing.assert_array_equal(result["indices"], order)
        np.testing.assert_array_equal(result["dst"], np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("count", [1, 2, 3, 8, 20, 33, 64])
def test_the_first_of_short_rows(count: int) -> None:
    x = np.ascontiguousarray(_floats(np.float32)[:, :64])
    result = tw.compile(tw.topk((2, 64), count=count), "x86")(src=x)
    order = _order(x, descending=True)[:, :count]
    np.testing.assert_array_equal(result["indices"], order)


@pytest.mark.parametrize("target", ["x86", *DEVICES])
@pytest.mark.parametrize("dtype", ["f32", "s8"])
def test_what_is_behind_a_bound_is_not_sorted(dtype: str, target: str) -> None:
    need_device(target)
    rng, count, shape = np.random.default_rng(5), 70, (2, 4523)
    few = np.tile(_integers(np.int8) if dtype == "s8" else _floats(np.float32), 51)[:, : shape[1]]
    many = rng.integers(-128, 128, shape).astype(np.int8)
    if dtype == "f32":
        many = rng.permuted(np.linspace(-1e9, 1e9, shape[1], dtype="f")[None].repeat(2, 0), axis=1)
    run = tw.compile(tw.topk(shape, count=count, dtype=f"{dtype}:{dtype}:s32"), target)
    for x in (few, many, np.sort(many, axis=1), np.full(shape, -128, few.dtype)):
        result = run(src=np.ascontiguousarray(x))
        order = _order(x, descending=True)[:, :count]
        np.testing.assert_array_equal(result["indices"], order)
        np.testing.assert_array_equal(result["dst"], np.take_along_axis(x, order, 1))


def test_text_does_not_grow_with_rows() -> None:
    for make in (tw.sort, lambda shape: tw.topk(shape, count=8)):
        short, long = (to_text(make((3, n)).kernel()).count("\n") for n in (100, 1_000_000))
        assert short == long
