"""Kernels in Python: what they compute, on every target that runs here."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES
from tilewright.errors import ArgumentError, InterpreterFault, KernelError, VerificationError

TARGETS = ["interpreter", "x86", *DEVICES]


@tw.kernel
def saxpy(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("local", [None, 1, 16, 64])
def test_saxpy(target: str, local: int | None) -> None:
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    saxpy.launch((128,), 100, 2.0, x, y, local=local, target=target)
    np.testing.assert_array_equal(y, 2 * x + 1)
    assert saxpy.launch(0, 0, 2.0, x, y, target=target) is None


@tw.kernel
def sums(x: tw.array("f32", 1), y: tw.array("f32", 1)) -> None:
    t = tw.local(64, "f32")
    lane = tw.local_id(0)
    t[lane] = x[tw.global_id(0)]
    stride = 32
    while stride > 0:
        tw.barrier()
        if lane < stride:
            t[lane] += t[lane + stride]
        stride //= 2
    if lane == 0:
        y[tw.group_id(0)] = t[0]


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_around_a_barrier_counts_in_a_variable(target: str) -> None:
    x, y = np.arange(640, dtype=np.float32), np.zeros(10, np.float32)
    sums.launch(640, x, y, local=64, target=target)
    np.testing.assert_array_equal(y, x.reshape(10, 64).sum(1))


@tw.kernel
def diverging(x: tw.array("s32", 1)) -> None:
    i = 0
    while i < tw.local_id(0):
        tw.barrier()
        i += 1
    x[0] = i


def test_a_loop_that_work_items_leave_apart_has_no_barriers() -> None:
    with pytest.raises(VerificationError, match="iterations differ by work-item") as caught:
        diverging.over(local=64)
    assert caught.value.span is not None
    assert caught.value.span.caret().startswith("    while i < tw.local_id(0):\n    ^^^^^")


@tw.kernel
def histogram(x: tw.array("s32", 1), counts: tw.array("u32", 1), n: tw.s32) -> None:
    i = tw.global_id(0)
    while i < n:
        tw.atomic_add(counts, x[i], 1)
        if x[i] == 7:
            tw.printf("{} at {}", x[i], i)
        i += tw.global_size(0)


@pytest.mark.parametrize("target", TARGETS)
def test_messages(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.array([3, 7, 1, 1, 7, 0], np.int32)
    counts = np.zeros(8, np.uint32)
    histogram.launch(4, x, counts, 6, target=target)
    np.testing.assert_array_equal(counts, np.bincount(x))
    assert capsys.readouterr().out == "7 at 4\n7 at 1\n"


@tw.kernel
def checked(x: tw.array("s32", 1)) -> None:
    i = tw.global_id(0)
    assert x[i] < 5, "too great"


@pytest.mark.parametrize("target", TARGETS)
def test_assertions(target: str) -> None:
    checked.launch(5, np.arange(10, dtype=np.int32), target=target)
    with pytest.raises(KernelError, match="too great") as caught:
        checked.launch(10, np.arange(10, dtype=np.int32), target=target)
    assert "in the work-item 5" in str(caught.value)
    assert 'assert x[i] < 5, "too great"' in str(caught.value)


def test_launches_that_come_again() -> None:
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    for times in range(1, 6):
        saxpy.launch((128,), 100, 2.0, x, y)
        np.testing.assert_array_equal(y, times * 2 * x)
    for wrong in (100.0, True, 2**40):  # equal to what was there, or not: none is a s32
        with pytest.raises(ArgumentError, match="the argument n is"):
            saxpy.launch((128,), wrong, 2.0, x, y)
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None  # nobody keeps it
    other = np.zeros(100, np.float32)
    saxpy.launch((128,), 100, 2.0, x, other)
    np.testing.assert_array_equal(other, 2 * x)


def test_faults_are_told_at_their_lines() -> None:
    x, y = np.zeros(10, np.float32), np.zeros(10, np.float32)
    for _ in range(2):  # from the cache, too
        with pytest.raises(InterpreterFault, match="out of bounds") as caught:
            saxpy.launch((16,), 16, 2.0, x, y, target="interpreter")
        assert f"{__file__}:" in str(caught.value)
        assert "y[i] = a * x[i] + y[i]" in str(caught.value)


@tw.kernel(subgroup=16)
def exchanging(n: tw.s32, x: tw.array("T", 1), out: tw.array("T", 2)) -> None:
    i, lane = tw.global_id(0), tw.lane_id()
    kept = tw.local(tw.local_size(0), "s32")
    kept[tw.local_id(0)] = lane * 3
    value = x[i]
    out[i, 0] = tw.subgroup_reduce(value, "add")
    out[i, 1] = tw.subgroup_scan(value, "max", exclusive=True)
    tw.barrier()
    total = value
    for k in range(n):
        total += tw.shuffle(total, (lane + 1) % 16)
        if k == 1:
            total += tw.shuffle_down(value, 2)
        if kept[(tw.local_id(0) + 1) % tw.local_size(0)] > 3:
            total += x[0]
    if tw.subgroup_id() == 0:
        out[i, 2] = tw.shuffle_up(total)
    tw.barrier()
    kept[tw.local_id(0)] = tw.s32(tw.shuffle(value, tw.s32(x[i]) % 16))
    tw.barrier()
    out[i, 3] = total
    if tw.subgroup_any(tw.s32(x[i]) > kept[tw.local_size(0) - 1 - tw.local_id(0)]):
        out[i, 4] = total


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float16, np.float32])
@pytest.mark.parametrize("target", ["x86", *DEVICES])
def test_subgroups_among_barriers(target: str, dtype: Any) -> None:
    """Subgroups exchange values, each as its own control says, between barriers of all."""
    x, result = (np.arange(96) % 3).astype(dtype), []
    for device in ("interpreter", target):
        result.append(np.zeros((96, 5), dtype))
        exchanging.launch(96, 2, x, result[-1], local=48, target=device)
    np.testing.assert_array_equal(*result)


def test_pickled_and_copied_by_name() -> None:
    """As functions are: a process that is started anew imports them."""
    assert pickle.loads(pickle.dumps(saxpy)) is saxpy
    assert copy.deepcopy([saxpy])[0] is saxpy
