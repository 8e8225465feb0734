"""Results that are made in memory of their work-item before they are stored."""

from __future__ import annotations

import re

import numpy as np
import pytest

from staged import check_text, filled, results
from tilewright.errors import ScheduleError
from tilewright.ir import Kernel, parse_kernel, to_text
from tilewright.schedule.staging.stage_result import stage_result

TEXT = """
kernel k(in x: f32[64, 100], in b: f32[100], out y: bf16[64, 100]):
  grid for g in 2:
    alloc acc: f32[64, 64] private
    compute init(m in 64, n in 64):
      x = x[m, g * 64 + n | g * 64 + n < 100]
      acc[m, n] = x
    compute store(m in 64, n in 64):
      acc = acc[m, n]
      b = b[g * 64 + n | g * 64 + n < 100]
      y[m, g * 64 + n | g * 64 + n < 100] = bf16(acc + b)
"""


def _finished() -> Kernel:
    return stage_result(parse_kernel(TEXT), "store", "store")


def test_the_text() -> None:
    expected = """
    alloc y_made: bf16[64, 64] private
    compute store_finish(m in 64, n in 64):
      acc = acc[m, n]
      b = b[g * 64 + n | g * 64 + n < 100]
      y_made[m, n] = bf16(acc + b)
    compute store(m in 64, n in 64):
      made = y_made[m, n]
      y[m, g * 64 + n | g * 64 + n < 100] = made"""
    assert expected in to_text(_finished())


def test_results_are_the_same() -> None:
    memory = filled(parse_kernel(TEXT))
    before, after = (results(check_text(k), memory) for k in (parse_kernel(TEXT), _finished()))
    assert np.array_equal(before["y"], after["y"])


def test_twice() -> None:
    text = to_text(stage_result(_finished(), "store", "store"))
    assert "alloc y_made2: bf16[64, 64] private" in text and "compute store_finish2(" in text


REFUSED = {
    "it runs by itself": ("m in 4", "= x", "'store' does more than write its result"),
    "tails": ("m in min(4, 18 - g * 4)", "= x", "not all tiles of 'store' are equally large"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    dim, line, message = REFUSED[name]
    by = " joins products" if name == "it runs by itself" else ""
    kernel = parse_kernel(f"""
kernel k(in x: f32[20], out y: f32[20]):
  for g in 5:
    compute store({dim}){by}:
      x = x[m + g * 4]
      y[m + g * 4] {line}
""")
    with pytest.raises(ScheduleError, match=re.escape(f"stage_result: {message}")):
        stage_result(kernel, "store", "store")
    with pytest.raises(ScheduleError, match="there is no compute 'other'"):
        stage_result(kernel, "other", "other")
