"""Kernels that no other recipe knows: which of them run in vectors, and on which workers."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.ir.printer import to_text

GATHER = """
kernel gather(in ids: s32[12], in x: f32[50, {n}], out y: f32[12, {n}]):
  compute copy(i in 12, j in {n}):
    id = ids[i]
    x = x[s64(id), j]
    y[i, j] = x
"""


@pytest.mark.parametrize(("n", "lanes"), [(16, 16), (21, 8)])
def test_rows_at_loaded_places_are_copied_in_vectors(n: int, lanes: int) -> None:
    """Of several registers, where these are whole rows."""
    result = tw.compile(tw.parse_kernel(GATHER.format(n=n)), "x86:avx2", threads=2)
    text = to_text(result.schedule.kernel)
    assert f"vector for j in {lanes}" in text
    # What is left of a row stands behind, without masks.
    assert ("vector for j in 5" in text) == (n == 21) and "if" not in text
    rng = np.random.default_rng(0)
    ids, x = rng.integers(0, 50, 12).astype(np.int32), rng.random((50, n), np.float32)
    np.testing.assert_array_equal(result(ids=ids, x=x), x[ids])


def test_lanes_that_read_at_places_of_their_own() -> None:
    text = """
kernel gather(in ids: s32[21], in x: f32[50], out y: f32[21]):
  compute copy(i in 21):
    id = ids[i]
    x = x[s64(id)]
    y[i] = x
"""
    result = tw.compile(tw.parse_kernel(text), "x86:avx2", threads=2)
    assert "vector for i" in to_text(result.schedule.kernel)
    rng = np.random.default_rng(0)
    ids, x = rng.integers(0, 50, 21).astype(np.int32), rng.random(50, np.float32)
    np.testing.assert_array_equal(result(ids=ids, x=x), x[ids])


def test_results_at_loaded_places_run_in_order() -> None:
    text = """
kernel scatter(in ids: s32[16], in x: f32[16], inout y: f32[50]):
  compute add(i in 16):
    id = ids[i]
    x = x[i]
    y[s64(id)] add= x
"""
    result = tw.compile(tw.parse_kernel(text), "x86:avx2", threads=2)
    assert "vector for" not in to_text(result.schedule.kernel)


def test_rows_at_loaded_places_are_vectors_and_shared_by_threads() -> None:
    """Threads share the neighbours of all rows, as any rows may meet."""
    text = """
kernel scatter(in ids: s32[90], in x: f32[90, 250], inout y: f32[30, 250]):
  compute add(i in 90, j in 250):
    id = ids[i]
    x = x[i, j]
    y[s64(id), j] add= x
"""
    result = tw.compile(tw.parse_kernel(text), "x86:avx2", threads=2)
    results = to_text(result.schedule.kernel)
    assert "parallel for j_o in 2:" in results and "vector for j in 8:" in results
    rng = np.random.default_rng(0)
    ids, x = rng.integers(0, 30, 90).astype(np.int32), rng.integers(-9, 9, (90, 250)).astype("f")
    y, wanted = np.ones((30, 250), np.float32), np.ones((30, 250), np.float32)
    result(ids=ids, x=x, y=y)
    np.add.at(wanted, ids, x)
    np.testing.assert_array_equal(y, wanted)


def test_elements_at_loaded_places_of_their_columns_are_shared_by_threads() -> None:
    text = """
kernel scatter(in ids: s32[90, 70], in x: f32[90, 70], inout y: f32[30, 70]):
  compute add(i in 90, j in 70):
    id = ids[i, j]
    x = x[i, j]
    y[s64(id), j] add= x
"""
    result = tw.compile(tw.parse_kernel(text), "x86:avx2", threads=2)
    results = to_text(result.schedule.kernel)
    assert "parallel for j_o in 2:" in results and "vector" not in results
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 30, (90, 70)).astype(np.int32)
    x = rng.integers(-9, 9, (90, 70)).astype(np.float32)
    y, wanted = np.ones((30, 70), np.float32), np.ones((30, 70), np.float32)
    result(ids=ids, x=x, y=y)
    np.add.at(wanted, (ids, np.arange(70)), x)
    np.testing.assert_array_equal(y, wanted)


def test_points_that_may_meet_follow_one_another_inside_of_work_items() -> None:
    """One launch, where each of a hundred points had one."""
    op = tw.scatter("10x70:100", "add")
    result = tw.compile(op, "spirv:gpu")
    assert len(result.module.launches) == 1 and not result.module.steps
    rng = np.random.default_rng(0)
    values = {
        "src": rng.integers(-9, 9, (100, 70)).astype(np.float32),
        "indices": rng.integers(-2, 12, 100).astype(np.int32),
    }
    results, wanted = (np.ones((10, 70), np.float32) for _ in range(2))
    result(**values, out=results)
    tw.compile(op, "interpreter")(**values, out=wanted)
    np.testing.assert_array_equal(results, wanted)


@pytest.mark.parametrize("target", ["x86:avx2", "spirv:gpu", "nvidia:sm_90a"])
def test_what_computes_hand_on_is_in_memory(target: str) -> None:
    """The sums of a product are more than a stack has room for, and would keep loops to one."""
    op = tw.matmul("1024x32:32x1200")
    result = tw.compile(op, target, threads=2, config="PlainConfig()")
    text = to_text(result.schedule.kernel)
    assert "alloc acc: f32[1024, 1200]\n" in text
    if target == "x86:avx2":
        assert text.count("parallel for m in 1024:") == 3
    else:
        assert [launch.items for launch in result.module.launches] == [128] * 3
    if result.target.runs_here:
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((1024, 32), (32, 1200)))
        np.testing.assert_array_equal(result(src=a, weights=b), a @ b)


def test_a_single_sum_stays_in_a_register() -> None:
    text = """
kernel norm(in x: f32[64], out y: f32[64]):
  alloc sum: f32[1] private
  compute zero(i in 1):
    sum[i] = 0.0
  compute add(i in 64):
    x = x[i]
    sum[0] add= x
  compute divide(i in 64):
    x = x[i]
    s = sum[0]
    y[i] = x / s
"""
    result = tw.compile(tw.parse_kernel(text), "nvidia:sm_80", config="PlainConfig()")
    assert "alloc sum: f32[1] private" in to_text(result.schedule.kernel)
