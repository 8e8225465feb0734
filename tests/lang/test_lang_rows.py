"""Work-items that have a row each: its elements are lanes."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES

TARGETS = ["interpreter", "x86", *DEVICES]


@tw.kernel
def products(
    start: tw.array("s32", 1),
    column: tw.array("s32", 1),
    value: tw.array("f32", 1),
    x: tw.array("f32", 2),
    y: tw.array("f32", 2),
):
    row = tw.global_id(0)
    for j in range(x.shape[1]):
        y[row, j] = 0.0
    for k in range(start[row], start[row + 1]):
        for j in range(x.shape[1]):
            y[row, j] += value[k] * x[column[k], j]


@tw.kernel
def parts(first: tw.array("s32", 1), last: tw.array("s32", 1), x: tw.array("s16", 2)):
    row = tw.global_id(0)
    for j in range(first[row], last[row]):
        x[row, j] = x[row, j] * 3 + tw.s16(1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [1, 8, 16, 67, 150])
def test_sparse_products(target: str, width: int) -> None:
    g = np.random.default_rng(width)
    start = np.array([0, 3, 3, 4, 9], np.int32)
    column = g.integers(0, 5, 9, np.int32)
    value = g.integers(-9, 9, 9).astype(np.float32)
    x = g.integers(-9, 9, (5, width)).astype(np.float32)
    y = np.full((4, width), 99, np.float32)
    products.launch((4,), start, column, value, x, y, target=target)
    dense = np.zeros((4, 5), np.float32)
    for row in range(4):
        for k in range(start[row], start[row + 1]):
            dense[row, column[k]] += value[k]
    np.testing.assert_array_equal(y, dense @ x)


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_rows(target: str) -> None:
    """Of each length; what begins after its end is nothing."""
    pairs = [(a, b) for a in (0, 1, 5, 40) for b in (0, 1, 6, 22, 41, 80)]
    first, last = (np.array(ends, np.int32) for ends in zip(*pairs, strict=True))
    x = np.random.default_rng(0).integers(-99, 99, (len(pairs), 80)).astype(np.int16)
    wanted = x.copy()
    for row, (a, b) in enumerate(pairs):
        wanted[row, a:b] = x[row, a:b] * 3 + 1
    parts.launch((len(pairs),), first, last, x, target=target)
    np.testing.assert_array_equal(x, wanted)
