"""Joint matrices of sizes that tiles do not divide, of one element, and of one work-item."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import needs_opencl


@cache
def product(lanes: int) -> Any:
    @tw.kernel(subgroup=lanes)
    def checked(
        a: tw.array("f32", 2), b: tw.array("f32", 2), c: tw.array("f32", 2), sizes: tw.constant
    ) -> None:
        m, n, k = sizes
        row, col = tw.group_id(0) * m, tw.group_id(1) * n
        tile_a = tw.joint_matrix("a", m, k, "f32")
        tile_b = tw.joint_matrix("b", k, n, "f32")
        total = tw.joint_matrix("accumulator", m, n, "f32")
        total.fill(0)
        for start in range(0, a.shape[1], k):
            tile_a.load(a, (row, start), checked=True)
            tile_b.load(b, (start, col), checked=True)
            total.mad(tile_a, tile_b)
        total.apply(lambda value: value + value)
        total.store(c, (row, col), checked=True)

    return checked


def check(lanes: int, sizes: tuple[int, int, int], target: str) -> None:
    m, n, k = sizes
    g = np.random.default_rng(m)
    a, b = (g.integers(-3, 4, s).astype(np.float32) for s in ((2 * m + 1, 2 * k), (2 * k, n + 1)))
    c = np.zeros((len(a), b.shape[1]), np.float32)
    product(lanes).launch((3, 2 * lanes), a, b, c, sizes, local=(1, lanes), target=target)
    np.testing.assert_array_equal(c, 2 * (a @ b))


@pytest.mark.parametrize("sizes", [(8, 31, 9), (32, 31, 7), (13, 40, 3)])
@pytest.mark.parametrize("lanes", [1, 16])
def test_tiles_that_leave_a_rest(lanes: int, sizes: tuple[int, int, int]) -> None:
    check(lanes, sizes, "x86")


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_matrix_of_one_element(lanes: int) -> None:
    check(lanes, (1, 1, 4), "x86")


@needs_opencl
@pytest.mark.parametrize("sizes", [(5, 7, 4), (8, 24, 24), (1, 1, 4)])
def test_one_work_item_on_an_opencl_device(sizes: tuple[int, int, int]) -> None:
    """Its memory is private: Intel's compiler crashed on such local memory."""
    assert "addrspace(3)" not in tw.compile(
        product(1).over(local=(1, 1), sizes=sizes), "spirv:cpu"
    ).source("llvm")
    check(1, sizes, "spirv")
