"""Asking ahead for what a loop reads: before, after, refusals, and what processors make of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.passes import run
from tilewright.schedule.staging.prefetch import prefetch
from tilewright.targets.registry import find_target

# A group has 8 rows of 32 floats, two cache lines each.
PRODUCT = """
kernel product(in x: f32[32], in w: f32[4, 8, 32], inout y: f32[32]):
  for g in 4:
    for k in 8:
      unrolled for n_o in 2:
        vector for n in 16:
          y[n + n_o * 16] = y[n + n_o * 16] + x[g * 8 + k] * w[g, k, n + n_o * 16]
"""
AFTER = """
kernel product(in x: f32[32], in w: f32[4, 8, 32], inout y: f32[32]):
  for g in 4:
    for k in 8:
      prefetch(&w[g + 2, k, 0])
      prefetch(&w[g + 2, k, 16])
      unrolled for n_o in 2:
        vector for n in 16:
          y[n + n_o * 16] = y[n + n_o * 16] + x[g * 8 + k] * w[g, k, n + n_o * 16]
"""
GATHERED = """
kernel gathered(in at: s32[4], in w: f32[8, 16], out y: f32[4, 16]):
  for g in 4:
    vector for n in 16:
      y[g, n] = w[s64(at[g]), n]
"""


def test_each_cache_line_is_asked_for_once() -> None:
    after = prefetch(tw.parse_kernel(PRODUCT), "w", "g", ahead=2)
    assert to_text(after).strip() == AFTER.strip()


@pytest.mark.parametrize("target", ["interpreter", "x86"])
def test_the_results_stay_the_same(target: str) -> None:
    """What the last iterations ask for lies outside the array."""
    x = np.linspace(-1, 1, 32, dtype=np.float32)
    w = np.linspace(2, 3, 4 * 8 * 32, dtype=np.float32).reshape(4, 8, 32)
    kernel = prefetch(tw.parse_kernel(PRODUCT), "w", "g")
    y = np.zeros(32, np.float32)
    tw.compile(kernel, target)(x=x, w=w, y=y)
    np.testing.assert_allclose(y, x.astype(float) @ w.reshape(32, 32).astype(float), atol=1e-4)


@pytest.mark.parametrize("second,instruction", [(False, "prefetcht0"), (True, "prefetcht1")])
def test_processors_have_an_instruction_for_it(second: bool, instruction: str) -> None:
    target = find_target("x86:avx2")
    kernel = prefetch(tw.parse_kernel(PRODUCT), "w", "g", second=second)
    text = target.assembly(target.lower(run(kernel)))
    assert set(re.findall(r"prefetch\w+", text)) == {instruction}


def test_the_loop_itself_may_read() -> None:
    kernel = prefetch(tw.parse_kernel(PRODUCT), "w", "k")
    lines = [line.strip() for line in to_text(kernel).splitlines() if "prefetch" in line]
    assert lines == ["prefetch(&w[g, k + 1, 0])", "prefetch(&w[g, k + 1, 16])"]


def test_places_that_memory_has_are_those_of_an_iteration_that_there_is() -> None:
    kernel = prefetch(tw.parse_kernel(GATHERED), "w", "g", ahead=2)
    lines = [line.strip() for line in to_text(kernel).splitlines() if "prefetch" in line]
    assert lines == ["prefetch(&w[s64(at[min(g + 2, 3)]), 0])"]
    w = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    at = np.array([7, 0, 3, 7], np.int32)
    for target in ("interpreter", "x86"):
        np.testing.assert_array_equal(tw.compile(kernel, target)(at=at, w=w), w[at])


@pytest.mark.parametrize(
    ("rows", "asked"),
    [(512, ""), (1000000, "prefetch(&src[max(min(s64(indices[min(d0 + 2, 511)]), 999999), 0), ")],
)
def test_rows_of_tables_larger_than_the_caches_are_asked_for(rows: int, asked: str) -> None:
    result = tw.compile(tw.gather(f"{rows}x768:512"), "x86:avx2", threads=2)
    text = to_text(result.schedule.kernel)
    assert ("prefetch" in text) == bool(asked) and asked in text
    assert "parallel for d0" in text


def test_refusals() -> None:
    with pytest.raises(ScheduleError, match="prefetch: nothing in the loop 'g' loads from 'z'"):
        prefetch(tw.parse_kernel(PRODUCT), "z", "g")


def test_what_the_body_names_first_is_not_there_in_front() -> None:
    """The call's place had a name without a value, which the verifier refused."""
    kernel = tw.parse_kernel("""
kernel f(in p: s64[4], in x: f32[64], out y: f32[4]):
  for i in 4:
    at = p[i]
    y[i] = x[max(min(at, 63), 0)]
""")
    with pytest.raises(ScheduleError) as caught:
        prefetch(kernel, "x", "i")
    assert caught.value.what == "prefetch: 'at' says where 'x' is read"
    assert caught.value.cure == "write its value instead of the name"
