"""Control that all lanes of a subgroup agreed on, around what they exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES
from tilewright.errors import UnsupportedError

TARGETS = ("x86", "x86:sse42", *DEVICES)


@tw.kernel(subgroup=8, local=32)
def all_at_one(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    value = x[i]
    steps = 0
    while tw.subgroup_any(value != 1):
        if value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            steps = steps + 1
    y[i] = steps


@tw.kernel(subgroup=8, local=32)
def by_the_greatest(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    value = x[i]
    total = 0
    if tw.subgroup_reduce(value, "max") > 95:
        total = tw.subgroup_reduce(value, "add")
        if total % 2 == 0:
            total = total + tw.shuffle(value, 7 - tw.lane_id())
    for k in range(tw.subgroup_broadcast(value % 3, 2)):
        total = total + tw.shuffle(value, k)
    y[i] = total


@tw.kernel(subgroup=8, local=32)
def with_all(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    scratch = tw.local((32,), "s32")
    item, i = tw.local_id(0), tw.global_id(0)
    scratch[item] = x[i]
    tw.barrier()
    value = scratch[31 - item]
    if tw.subgroup_all(value < 98):
        value = tw.subgroup_scan(value, "add")
    y[i] = value


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", [all_at_one, by_the_greatest, with_all])
def test_what_lanes_agree_on_steers(kernel: Any, target: str) -> None:
    x = np.random.default_rng(1).integers(1, 100, 256).astype(np.int32)
    wanted, found = np.zeros((2, 256), np.int32)
    kernel.launch((256,), x, wanted, target="interpreter")
    kernel.launch((256,), x, found, target=target)
    np.testing.assert_array_equal(found, wanted)
    assert len(set(wanted.reshape(-1, 8).max(axis=1))) > 1


@tw.kernel(subgroup=8, local=32)
def by_its_own(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    value = x[i]
    if tw.shuffle_xor(value, 1) > 3:
        value = tw.subgroup_reduce(value, "add")
    y[i] = value


@tw.kernel(subgroup=8, local=32)
def by_pairs(x: tw.array("s32", 1), y: tw.array("s32", 1)):
    i = tw.global_id(0)
    value = x[i]
    pair = value + tw.shuffle_xor(value, 1)
    four = pair + tw.shuffle_xor(pair, 2)
    if four - tw.shuffle_xor(four, 4) > 3:
        value = tw.subgroup_reduce(value, "add")
    y[i] = value


@pytest.mark.parametrize("kernel", [by_its_own, by_pairs])
def test_what_some_lanes_agree_on_does_not(kernel: Any) -> None:
    """Differences are not the same for both of a pair."""
    x, y = np.ones((2, 64), np.int32)
    with pytest.raises(UnsupportedError, match="control around a barrier may diverge") as caught:
        kernel.launch((64,), x, y, target="x86")
    assert "subgroup_any" in str(caught.value.cure)


STALE = """
kernel stale(in x: s32[8], out y: s32[8]):
  grid for g in 1:
    subgroup for s in 1:
      lane for l in 8:
        alloc other: s32[1] private
        other[0] = s32(0)
        for k in 2:
          far: s32 = max(x[l], other[0])
          shuffle(&other[0], x[l], l ^ 1)
        v: s32 = x[l]
        alloc near: s32[1] private
        shuffle(&near[0], v, l ^ 1)
        a: s32 = max(v, near[0])
        alloc next: s32[1] private
        shuffle(&next[0], a, l ^ 2)
        b: s32 = max(a, next[0])
        alloc last: s32[1] private
        shuffle(&last[0], b, l ^ 4)
        c: s32 = max(b, last[0])
        if c > s32(4):
          shuffle(&other[0], c, l ^ 1)
        y[l] = max(c, other[0])
"""


def test_of_text() -> None:
    """Only what steers is the first lane's; memory that is written twice tells nothing."""
    kernel = tw.parse_kernel(STALE)
    x = np.arange(8, dtype=np.int32)[::-1].copy()
    wanted = tw.compile(kernel, "interpreter")(x=x)
    result = tw.compile(kernel, "x86:avx2")
    np.testing.assert_array_equal(result(x=x), wanted)
    assert str(result.schedule.kernel).count("agreed") > 0
