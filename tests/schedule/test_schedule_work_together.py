"""The work-items of a workgroup do one compute after the other: before, after, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.interpret import run
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel, LoopKind
from tilewright.ir.verify import verify
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.work_together import work_together

ROWS = """
kernel rows(in x: f32[5, 70], out y: f32[5, 70]):
  for i in 5:
    alloc parts: f32[32] private
    alloc s: f32[1] private
    compute begin(j in 32):
      parts[j] = 0.0
    compute main(k in 2, j in 32):
      parts[j] add= x[i, k * 32 + j]
    compute rest(j in 6):
      parts[j] add= x[i, j + 64]
    compute zero():
      s[0] = 0.0
    compute across(j in 32):
      s[0] add= parts[j]
    compute divide(j in 70):
      y[i, j] = x[i, j] - s[0]
"""
DIMS = {"begin": "j", "main": "j", "rest": "j", "divide": "j"}


def same(before: Kernel, after: Kernel) -> None:
    """Both are right, and give the same of whole numbers."""
    results = []
    for kernel in (before, after):
        verify(kernel)
        rng = np.random.default_rng(0)
        x = rng.integers(-4, 5, 350).astype(np.float32)
        memory = {"x": x, "y": np.zeros(350, np.float32)}
        run(kernel, memory)
        results.append(memory["y"])
    np.testing.assert_array_equal(results[0], results[1])


def test_a_row_of_a_workgroup() -> None:
    before = tw.parse_kernel(ROWS)
    after = work_together(before, "i", DIMS, 32)
    assert to_text(after).splitlines()[1:] == (
        """\
  grid for i in 5:
    alloc parts: f32[32] workgroup
    alloc s: f32[1] workgroup
    workgroup for item in 32:
      compute begin():
        parts[item] = 0.0
      compute main(k in 2):
        parts[item] add= x[i, item + k * 32]
      if item < 6:
        compute rest():
          parts[item] add= x[i, item + 64]
      if item == 0:
        compute zero():
          s[0] = 0.0
      barrier()
      if item == 0:
        compute across(j in 32):
          s[0] add= parts[j]
      barrier()
      for j_o in 2:
        compute divide():
          y[i, item + j_o * 32] = x[i, item + j_o * 32] - s[0]
      if item < 6:
        compute divide():
          y[i, item + 64] = x[i, item + 64] - s[0]""".splitlines()
    )
    same(before, after)


@pytest.mark.parametrize("items", [1, 8, 50, 128])
def test_any_number_of_items(items: int) -> None:
    before = tw.parse_kernel(ROWS)
    same(before, work_together(before, "i", DIMS, items))
    same(before, work_together(before, "i", {"divide": "j"}, items))


def test_refusals() -> None:
    kernel = tw.parse_kernel(ROWS)
    for dims, items, what in (
        (DIMS | {"across": "j"}, 8, "points of 'j' depend on each other"),
        (DIMS | {"main": "i"}, 8, "the compute 'main' has no dim 'i'"),
        ({"other": "j"}, 8, "there is no compute 'other'"),
        (DIMS, 0, "items is 0"),
    ):
        with pytest.raises(ScheduleError, match=what):
            work_together(kernel, "i", dims, items)
    with pytest.raises(ScheduleError, match="the loop is parallel"):
        work_together(set_kind(kernel, ["i"], LoopKind.PARALLEL), "i", DIMS, 8)
    with pytest.raises(ScheduleError, match="something else than computes and allocations"):
        work_together(work_together(kernel, "i", DIMS, 8), "i", DIMS, 8, "item2")
    text = ROWS.replace("y[i, j] = x[i, j] - s[0]", "y[0, j] = x[i, j] - s[0]")
    with pytest.raises(ScheduleError, match="points of 'i' depend on each other"):
        work_together(tw.parse_kernel(text), "i", DIMS, 8)
    ordered = tw.parse_kernel(ROWS.replace("divide(j in", "divide(ordered j in"))
    with pytest.raises(ScheduleError, match="'j' is ordered"):
        work_together(ordered, "i", DIMS, 8)
