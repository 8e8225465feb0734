"""Stores past the caches: before, after, refusals, and what processors make of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import f32
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.passes import run
from tilewright.runtime.results import aligned_memory
from tilewright.schedule.staging.store_non_temporally import store_non_temporally
from tilewright.targets.registry import find_target

# More rows than any processor's caches hold.
MANY = 1 << 21
LOOPS = """
kernel scale(in x: f32[{n}], out y: f32[{n}]):
  for i_o in {n} // {lanes}:
    vector for i in {lanes}:
      y[{lanes} * i_o + i] = x[{lanes} * i_o + i] * 2.0
"""


def test_stores_are_marked() -> None:
    kernel = tw.parse_kernel(LOOPS.format(n=64, lanes=8))
    after = to_text(store_non_temporally(kernel, ["y"]))
    assert after.splitlines()[-1] == "      stream y[i + i_o * 8] = x[i + i_o * 8] * 2.0"
    assert to_text(tw.parse_kernel(after)) == after
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(tw.compile(tw.parse_kernel(after), "interpreter")(x=x), x * 2)


@pytest.mark.parametrize(
    ("text", "buffer", "message"),
    [
        (LOOPS.format(n=64, lanes=8), "z", "store_non_temporally: 'z' is no array"),
        (LOOPS.format(n=64, lanes=8), "x", "store_non_temporally: 'x' is read, too"),
    ],
)
def test_refusals(text: str, buffer: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        store_non_temporally(tw.parse_kernel(text), [buffer])


def test_memory_that_begins_anywhere_is_written_right() -> None:
    """Vectors are stored past the caches at multiples of their size only."""
    schedule = tw.Schedule(tw.parse_kernel(LOOPS.format(n=64, lanes=8)), "x86:avx2")
    schedule.store_non_temporally(["y"])
    target = find_target("x86:avx2")
    assert "movntps" in target.assembly(target.lower(run(schedule.kernel)))
    result = tw.compile(schedule)
    x = np.arange(64, dtype=np.float32)
    memory = aligned_memory(96, f32)
    for start in range(17):
        memory[:] = -1
        result(x=x, y=memory[start : start + 64])
        np.testing.assert_array_equal(memory[start : start + 64], x * 2)
        assert (memory[:start] == -1).all() and (memory[start + 64 :] == -1).all()


@pytest.mark.parametrize(
    ("target", "lanes", "registers"),
    [
        ("x86:avx512", 16, {"zmm", "xmm"}),
        ("x86:avx2", 8, {"ymm", "xmm"}),
        ("x86:sse42", 4, {"xmm"}),
    ],
)
def test_stores_are_as_wide_as_addresses_allow(
    target: str, lanes: int, registers: set[str]
) -> None:
    schedule = tw.Schedule(tw.parse_kernel(LOOPS.format(n=4096, lanes=lanes)), target)
    schedule.store_non_temporally(["y"])
    result = find_target(target)
    results = result.assembly(result.lower(run(schedule.kernel)))
    assert set(re.findall(r"movnt\w+\t%([xyz]mm)", results)) == registers


def test_what_is_stored_past_the_caches_is_read_a_page_ahead() -> None:
    """Once for each line of each array, however often an expression names it."""
    text = """
kernel add(in x: f32[4096], in z: f32[4096], out y: f32[4096]):
  for i_o in 64:
    vector for i in 64:
      stream y[64 * i_o + i] = x[64 * i_o + i] * x[64 * i_o + i] + z[64 * i_o + i]
"""
    target = find_target("x86:avx512")
    result = target.assembly(target.lower(run(tw.parse_kernel(text))))
    wide = result[result.index("phase0.stream64:") : result.index("phase0.stream16:")]
    asked = sorted(int(distance) for distance in re.findall(r"prefetcht0\t(\d+)\(", wide))
    assert asked == sorted([4096, 4160, 4224, 4288] * 2)
    assert (
        "prefetch" not in result[result.index("phase0.range:") : result.index("phase0.stream64:")]
    )


@pytest.mark.parametrize(
    ("rows", "value", "streams"),
    [(64, "x[i, j] * 2.0", False), (MANY, "x[i, j] * 2.0", True), (MANY, "exp(x[i, j])", True)],
)
def test_results_larger_than_the_caches_go_past_them(rows: int, value: str, streams: bool) -> None:
    text = f"""
kernel scale(in x: f32[{rows}, 4096], out y: f32[{rows}, 4096]):
  compute scale(i in {rows}, j in 4096):
    y[i, j] = {value}
"""
    result = tw.compile(tw.parse_kernel(text), "x86:avx2")
    assert ("stream y[" in to_text(result.schedule.kernel)) == streams


@pytest.mark.parametrize(("rows", "streams"), [(64, False), (MANY, True)])
def test_so_do_transposes(rows: int, streams: bool) -> None:
    result = tw.compile(tw.transpose(f"{rows}x1024:1x0"), "x86:avx2")
    assert ("stream dst[" in to_text(result.schedule.kernel)) == streams


def test_what_is_read_again_stays_in_the_caches() -> None:
    text = """
kernel sums(in x: f32[4096, 4096], out y: f32[4096, 4096]):
  compute scan(ordered i in 4096, j in 4096):
    before = y[i - 1, j | 0 < i]
    x = x[i, j]
    y[i, j] = before + x
"""
    result = tw.compile(tw.parse_kernel(text), "x86:avx2")
    assert "stream" not in to_text(result.schedule.kernel)
