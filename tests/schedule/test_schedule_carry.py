"""What scans hand on, in memory of their own: before, after, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from sweeps import in_turns
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.schedule.reductions.carry import carry

SCAN = """
kernel scan(in src: f32[3, 20], out dst: f32[3, 20]):
  compute scan(i in 3, ordered k in 20):
    before = dst[i, k - 1 | 0 < k]
    x = src[i, k]
    dst[i, k] = before + x
"""


def test_the_last_results_are_kept() -> None:
    after = carry(tw.parse_kernel(SCAN), "scan", "k")
    assert to_text(after).splitlines()[1:] == (
        """\
  alloc scan_carried: f32[3] private
  compute scan_begin(i in 3):
    scan_carried[i] = 0.0
  compute scan(i in 3, ordered k in 20):
    before = scan_carried[i]
    x = src[i, k]
    dst[i, k] = before + x
    scan_carried[i] = before + x""".splitlines()
    )
    x = np.random.default_rng(0).integers(-9, 9, (3, 20)).astype(np.float32)
    result = tw.compile(after, "interpreter")(src=x)
    np.testing.assert_array_equal(result, np.cumsum(x, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dst[i, k - 1 | 0 < k]", "dst[i, k - 2 | 1 < k]"),  # of the point before that
        ("dst[i, k - 1 | 0 < k]", "dst[i, k - 1 | 3 < k]"),  # it begins again and again
        ("x = src[i, k]", "x = dst[i, 0]"),  # reads more of the result
        ("dst[i, k - 1 | 0 < k]", "dst[(i + 1) % 3, k - 1 | 0 < k]"),  # of another row
        ("(i in 3, ordered k", "(ordered i in 3, ordered k"),
    ],
)
def test_what_hands_on_something_else_is_refused(old: str, new: str) -> None:
    with pytest.raises(ScheduleError, match="carry: 'scan' hands nothing alone"):
        carry(tw.parse_kernel(SCAN.replace(old, new)), "scan", "k")


@pytest.mark.parametrize(
    ("rows", "flags", "algorithm"),
    in_turns(2, [1, 16, 37], ["", "R", "ER"], ["cumsum", "cummax"]),
)
def test_scans_go_several_rows_at_a_time(rows: int, flags: str, algorithm: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (rows, 70)).astype(np.float32)
    op = tw.scan(x.shape, algorithm, exclusive="E" in flags, reversed="R" in flags)
    result = tw.compile(op, "x86:avx2", threads=2)
    assert "scan_carried" in to_text(result.schedule.kernel)
    np.testing.assert_array_equal(result(src=x), tw.compile(op, "interpreter")(src=x))


def test_rows_that_share_a_set_of_the_cache_go_one_by_one() -> None:
    """Eight rows 4096 bytes apart took five times as long as one."""
    apart, near = (tw.compile(tw.scan((64, n), axis=1), "x86:avx2") for n in (1024, 1000))
    assert "scan_carried: f32[1]" in to_text(apart.schedule.kernel)
    assert "scan_carried: f32[1]" not in to_text(near.schedule.kernel)
