"""Filling a buffer ahead of the loops that repeat it: before, after, refusals, and the results."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.schedule.staging.fill_once import fill_once

PRODUCT = """
kernel product(in a: f32[32, 64], in b: f32[32, 64], inout c: f32[32, 32]):
  for m_o in 4:
    for n_o in 2:
      {condition}alloc b_packed: f32[64, 16] private
      {indent}compute b_pack(k in 64, n in 16):
        {indent}x = b[n_o * 16 + n, k]
        {indent}b_packed[k, n] = x
      {indent}compute main(m in 8, n in 16, k in 64):
        {indent}x = a[m_o * 8 + m, k]
        {indent}y = b_packed[k, n]
        {indent}c[m_o * 8 + m, n_o * 16 + n] add= x * y
"""
AFTER = """
kernel product(in a: f32[32, 64], in b: f32[32, 64], inout c: f32[32, 32]):
  alloc b_packed_once: f32[2, 64, 16]
  for n_o in 2:
    compute b_pack(k in 64, n in 16):
      x = b[n + n_o * 16, k]
      b_packed_once[n_o, k, n] = x
  for m_o in 4:
    for n_o in 2:
      compute main(m in 8, n in 16, k in 64):
        x = a[m + m_o * 8, k]
        y = b_packed_once[n_o, k, n]
        c[m + m_o * 8, n + n_o * 16] add= x * y
"""


def product(condition: str = "") -> str:
    """The product, under ``condition`` in its loops."""
    head, indent = (f"if {condition}:\n        ", "  ") if condition else ("", "")
    return PRODUCT.format(condition=head, indent=indent)


def filled(text: str) -> str:
    return to_text(fill_once(tw.parse_kernel(text), "b_packed"))


def test_it_is_filled_once_for_each_value_of_the_loops_that_it_depends_on() -> None:
    assert filled(product()).strip() == AFTER.strip()


def test_a_condition_of_a_loop_that_is_left_out_is_left_out() -> None:
    text = filled(product("n_o < m_o"))
    assert text.split("for m_o")[0].strip() == AFTER.split("for m_o")[0].strip()
    assert "if n_o < m_o:" in text.split("for m_o")[1]


def test_a_condition_of_loops_that_stay_stays() -> None:
    ahead, behind = filled(product("n_o < 1")).split("for m_o")
    assert "if n_o < 1" in ahead and "if n_o < 1" in behind


def test_a_condition_that_memory_decides_is_left_out() -> None:
    """It would be read before the kernel writes it."""
    text = product("s32(0) < flag[n_o]").replace("inout c", "inout flag: s32[2], inout c")
    flags = "  for i in 2:\n    flag[i] = s32(1)\n  for m_o"
    before = tw.parse_kernel(text.replace("  for m_o", flags))
    after = fill_once(before, "b_packed")
    assert "flag" not in to_text(after).split("alloc")[1].split("for i in 2")[0]
    a, b = (np.full((32, 64), n, np.float32) for n in (1, 2))
    c = np.zeros((32, 32), np.float32)
    tw.compile(after, "x86")(a=a, b=b, flag=np.zeros(2, np.int32), c=c)
    assert (c == 128).all()


@pytest.mark.parametrize("target", ["interpreter", "x86"])
@pytest.mark.parametrize("condition", ["", "n_o < m_o", "n_o < 1"])
def test_the_results_stay_the_same(target: str, condition: str) -> None:
    kernel = tw.parse_kernel(product(condition))
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((32, 64)).astype(np.float32) for _ in range(2))
    before, after = (np.zeros((32, 32), np.float32) for _ in range(2))
    tw.compile(kernel, "interpreter")(a=a, b=b, c=before)
    tw.compile(fill_once(kernel, "b_packed"), target)(a=a, b=b, c=after)
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


REFUSED = {
    "no loop around it repeats that": product().replace("[n_o * 16 + n, k]", "[m_o * 8 + n_o, k]"),
    "a condition keeps it within an array": product("n_o * 16 + m_o * 8 < 17").replace(
        "b[n_o * 16 + n, k]", "b[n_o * 24 + n, k]"
    ),
    "it is filled with what the kernel makes": product().replace("x = b[", "x = c[", 1),
    "a loop that it depends on has an extent that varies": product().replace(
        "for n_o in 2", "for n_o in min(m_o, 2)"
    ),
    "it is read before it is full": product() + "      b_packed[0, 0] = 0.0\n",
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_would_be_another_value_is_refused(why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        filled(REFUSED[why])


def test_a_buffer_that_there_is_not_is_refused() -> None:
    with pytest.raises(ScheduleError, match="allocates no 'c_packed'"):
        fill_once(tw.parse_kernel(product()), "c_packed")
