"""Scans in parts: before, after, refusals, and against the sums themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from sweeps import in_turns
from tilewright.errors import ScheduleError
from tilewright.interpret import run
from tilewright.ir.printer import to_text
from tilewright.schedule.reductions.divide_scan import divide_scan

SCAN = """
kernel scan(in src: f32[3, {n}], out dst: f32[3, {n}]):
  compute scan(i in 3, ordered k in {n}):
    before = dst[i, k - 1 | 0 < k]
    x = src[i, k]
    dst[i, k] = {value}
"""
SUM = "before + x"
VALUES: dict[str, Any] = {
    SUM: np.cumsum,
    "x + before": np.cumsum,
    "select(0 < k, before, 1.0) * x": np.cumprod,
    "max(select(0 < k, before, -inf), x)": np.maximum.accumulate,
    "min(x, select(0 < k, before, inf))": np.minimum.accumulate,
}


def scan(n: int, value: str = SUM) -> Any:
    return tw.parse_kernel(SCAN.format(n=n, value=value))


def test_parts_begin_with_what_those_before_come_to() -> None:
    after = divide_scan(scan(22), "scan", "k", 4)
    assert to_text(after).splitlines()[1:] == (
        """\
  alloc scan_parts: f32[4, 3]
  compute scan_parts_init(part in 4, i in 3):
    scan_parts[part, i] = 0.0
  compute scan_total(part in 4, i in 3, k in 5):
    x = src[i, k + part * 5]
    scan_parts[part, i] add= x
  alloc scan_starts: f32[4, 3]
  compute scan_start(ordered part in 4, i in 3):
    before = scan_starts[part - 1, i | 1 <= part]
    x = scan_parts[part - 1, i | 1 <= part]
    scan_starts[part, i] = select(1 <= part, before, 0.0) + select(1 <= part, x, 0.0)
  compute scan(part in 4, i in 3, ordered k in 5):
    before = dst[i, k + part * 5 - 1 | 1 <= k]
    start = scan_starts[part, i]
    x = src[i, k + part * 5]
    dst[i, k + part * 5] = select(1 <= k, before, start) + x
  compute scan_end(i in 3, ordered k in 2):
    before = dst[i, k + 19]
    x = src[i, k + 20]
    dst[i, k + 20] = before + x""".splitlines()
    )


@given(
    n=st.integers(2, 40),
    parts=st.integers(1, 9),
    value=st.sampled_from(sorted(VALUES)),
    seed=st.integers(0, 99),
)
def test_any_parts(n: int, parts: int, value: str, seed: int) -> None:
    after = divide_scan(scan(n, value), "scan", "k", min(n // 2, parts))
    choices = [-1.0, 1.0] if "*" in value else range(-9, 10)
    x = np.random.default_rng(seed).choice(choices, (3, n)).astype(np.float32)
    result = tw.compile(after, "interpreter")(src=x)
    expected = VALUES[value](x, axis=1)
    np.testing.assert_array_equal(result, expected)


def test_what_parts_begin_with_goes_in_parts_itself() -> None:
    after = divide_scan(scan(700), "scan", "k", 50)
    after = divide_scan(after, "scan_start", "part", 7, name="part2")
    x = np.random.default_rng(0).integers(-9, 9, (3, 700)).astype(np.float32)
    np.testing.assert_array_equal(tw.compile(after, "interpreter")(src=x), np.cumsum(x, 1))


def test_names_that_are_taken() -> None:
    text = SCAN.format(n=12, value=SUM).replace("i in", "before_i in").replace("[i,", "[before_i,")
    text = text.replace("x = src", "start = src").replace("before + x", "before + start")
    after = divide_scan(tw.parse_kernel(text), "scan", "k", 3, name="x")
    x = np.arange(36, dtype=np.float32).reshape(3, 12)
    np.testing.assert_array_equal(tw.compile(after, "interpreter")(src=x), np.cumsum(x, 1))


@pytest.mark.parametrize(
    "value",
    [
        "before * 0.5 + x",  # fades
        "before - x",
        "max(before, x) + before",
        "select(1 < k, before, 0.0) + x",  # it begins with something of its own
        "select(0 < k, before, x) + x",
    ],
)
def test_what_cannot_be_grouped_is_refused(value: str) -> None:
    with pytest.raises(ScheduleError, match="divide_scan: what 'scan' hands on along 'k' cannot"):
        divide_scan(scan(20, value), "scan", "k", 2)


def test_more_parts_than_points() -> None:
    with pytest.raises(ScheduleError, match="'k' has no 11 parts"):
        divide_scan(scan(20), "scan", "k", 11)


@pytest.mark.parametrize(
    ("shape", "axis", "flags", "algorithm"),
    in_turns(
        4,
        [(1, 4500), (3, 700), (70, 300), (700, 5)],
        [0, 1],
        ["", "R", "ER"],
        ["cumsum", "cummax"],
    ),
)
def test_few_rows_on_devices(shape: tuple[int, ...], axis: int, flags: str, algorithm: str) -> None:
    """On work-items, and by the interpreter, which finds races."""
    op = tw.scan(shape, algorithm, axis=axis, exclusive="E" in flags, reversed="R" in flags)
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    result = tw.compile(op, "spirv:gpu")
    expected = tw.compile(op, "interpreter")(src=x)
    np.testing.assert_array_equal(result(src=x), expected)
    results = np.zeros(x.size, np.float32)
    run(result.schedule.kernel, {"src": x.ravel(), "dst": results})
    np.testing.assert_array_equal(results.reshape(shape), expected)


def test_parts_share_a_workgroup_where_rows_are_enough() -> None:
    """Partial results of all parts had more shared memory than there is."""
    result = tw.compile(tw.scan((64, 50257)), "spirv:gpu")
    assert [(launch.groups, launch.items) for launch in result.module.launches] == [(64, 128)]
