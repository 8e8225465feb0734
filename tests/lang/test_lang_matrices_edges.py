"""Joint matrices of sizes that tiles do not divide, of one element, and of one work-item."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from lang_texts import defined
from needs import needs_opencl
from tilewright.errors import KernelError


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


HEAD = """@tw.kernel(subgroup=16)
def k(x: tw.array("f32", 1), c: tw.array("f32", 2)):
    lane = tw.lane_id()
    acc = tw.joint_matrix("accumulator", 16, 16, "f32", group="GROUP")
    acc.fill(1.0)
"""
APART = [
    "if lane == 0: acc.fill(2.0)",
    "if x[lane] > 0: acc.fill(2.0)",
    "if lane < 3: acc.store(c, (0, 0))",
    "for j in range(lane): acc.fill(2.0)",
    "while x[lane] > 0: acc.fill(2.0)",
    "if lane == 0: return\nacc.fill(2.0)",
    "s = 0.0\nfor j in range(3): s += x[lane]\nif s > 0: acc.apply(lambda v: v + 1)",
    "if tw.shuffle_xor(x[lane], 1) > 0: acc.load(c, (0, 0))",
]
TOGETHER = [
    "if tw.subgroup_any(x[lane] > 0): acc.fill(2.0)",
    "if tw.subgroup_reduce(x[lane], 'add') > 0: acc.fill(2.0)",
    "if tw.subgroup_broadcast(x[lane], 2) > 0: acc.fill(2.0)",
    "if tw.group_any(x[lane] > 0): acc.fill(2.0)",
    "s = 0.0\nfor j in range(3): s += x[j]\nif s > 0: acc.fill(2.0)",
    "if tw.group_id(0) == 0: acc.fill(2.0)",
]


def edge_case(body: str, group: str) -> Any:
    lines = "".join(f"    {line}\n" for line in [*body.splitlines(), "acc.store(c, (0, 0))"])
    return defined(HEAD.replace("GROUP", group) + lines)["k"]


@pytest.mark.parametrize("body", APART)
@pytest.mark.parametrize("group", ["subgroup", "workgroup"])
def test_part_of_the_lanes_of_a_matrix(body: str, group: str) -> None:
    with pytest.raises(KernelError, match=f"only some work-items of a {group}") as caught:
        edge_case(body, group).over(local=(1, 16))
    error = caught.value
    line = error.span.text.splitlines()[error.span.line - 1]
    assert "acc." in line and line.strip() in body


@pytest.mark.parametrize("body", TOGETHER)
def test_lanes_of_a_matrix_that_agree(body: str) -> None:
    x, c = np.ones(16, np.float32), np.zeros((16, 16), np.float32)
    edge_case(body, "subgroup").launch((1, 16), x, c, local=(1, 16))
    assert (c == 2).all()


def test_subgroups_may_agree_on_what_the_workgroup_does_not() -> None:
    with pytest.raises(KernelError, match="only some work-items of a workgroup"):
        edge_case(TOGETHER[0], "workgroup").over(local=(1, 32))
