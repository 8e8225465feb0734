"""What stands in loops as kernels of their own, and back."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text

SHARES = """
kernel shares(in x: f32[3, 10, 8], in w: f32[8], out y: f32[3, 10, 8]):
  alloc s: f32[3, 10]
  compute zero(b in 3, i in 10):
    s[b, i] = 0.0
  compute total(b in 3, i in 10, j in 8):
    s[b, i] add= x[b, i, j] * w[j]
  compute part(b in 3, i in 10, j in 8):
    y[b, i, j] = select(i < b, 0.0, x[b, i, j] / s[b, i])
"""


def tiled(tail: str = "apart") -> tw.Schedule:
    schedule = tw.Schedule(tw.parse_kernel(SHARES), "x86:avx2")
    along = {name: ["b", "i"] for name in ("zero", "total")}
    schedule.compute_at("part", {"b": 1, "i": 4}, producers=along, tail=tail)
    schedule.lay_out("s", shrink=True)
    return schedule


def right(schedule: tw.Schedule) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, (3, 10, 8)).astype(np.float32)
    w = rng.uniform(1, 2, 8).astype(np.float32)
    wanted = x / (x * w).sum(axis=2, keepdims=True)
    wanted[np.arange(10)[None, :] < np.arange(3)[:, None]] = 0
    result = tw.compile(schedule)(x=x, w=w)
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_tiles_are_kernels_of_their_size() -> None:
    """Each piece is one; what tells where the tile lies is a number that the kernel takes."""
    schedule = tiled()
    rest, whole = schedule.outline("part")
    text = to_text(whole.kernel)
    assert "b: s64 in 0..2,\n    i_o: s64 in 0..1,\n" in text
    assert "in x: f32[1, 4, 8] {0:1:80 1:4:8 2:8:1},\n    in w: f32[8],\n" in text
    assert "alloc s: f32[1, 4] private" in text
    assert "x[0, i, j] * w[j]" in text and "i_o * 4" in text
    assert "alloc s: f32[1, 2] private" in to_text(rest.kernel)


def test_what_became_of_them_is_put_back() -> None:
    schedule = tiled()
    for part in schedule.outline("part"):
        part.tile("part", {"i": 1})
        part.lower_computes(["part"], vector="j", lanes=8)
        part.lower_computes()
    schedule.put_together()
    right(schedule)
    again = tw.Schedule.replay(tw.parse_kernel(SHARES), str(schedule), "x86:avx2")
    assert to_text(again.kernel) == to_text(schedule.kernel)
    assert 'part, part_2 = schedule.outline("part")' in str(schedule)


def test_loops_of_one_name_stay_apart() -> None:
    """What recipes call loops may be what loops around the tile are called."""
    schedule = tiled()
    for part in schedule.outline("part"):
        part.tile("part", {"j": 4})
        part.tile("total", {"i": 2})
        part.lower_computes()
    schedule.put_together()
    right(schedule)


def test_refusals() -> None:
    with pytest.raises(ScheduleError, match="'part' stands in no loop"):
        tw.Schedule(tw.parse_kernel(SHARES), "x86:avx2").outline("part")
    with pytest.raises(ScheduleError, match="no block with the compute 'other'"):
        tiled().outline("other")
    schedule = tiled()
    schedule.outline("part")
    with pytest.raises(ScheduleError, match="the kernel is in groups"):
        schedule.lower_computes()
