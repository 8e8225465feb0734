"""Pieces of loops: where they end, what their computes are called, and the memory they have."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.partition import name_apart, partition
from tilewright.schedule.staging.lay_out import lay_out

ROWS = """
kernel rows(m: s64 in 0..100, n: s64 in 0..100, in x: f32[m, n], out y: f32[m, n]):
  for i_o in (m + 3) // 4:
    alloc t: f32[4, 100]
    compute double(i in min(4, m - i_o*4), j in n):
      t[i, j] = x[i_o*4 + i, j] * 2.0
    compute store(i in min(4, m - i_o*4), j in n):
      y[i_o*4 + i, j] = t[i, j]
"""


def same(before: Kernel, after: Kernel) -> str:
    """Both are right, and give the same for all sizes, of which 8 columns are short."""
    verify(after)
    first, second = (tw.compile(kernel, "interpreter") for kernel in (before, after))
    for m in (0, 1, 4, 11):
        for n in (0, 1, 8, 9):
            x = np.random.default_rng(0).standard_normal((m, n)).astype(np.float32)
            np.testing.assert_array_equal(first(x=x), second(x=x))
    return to_text(after)


def test_where_a_dim_is_longer_all_is_the_rest() -> None:
    before = tw.parse_kernel(ROWS)
    after = partition(before, "i_o", longest={"j": 8})
    text = same(before, after)
    assert "if n < 9:\n    for i_o in m // 4:" in text
    assert "for i_o_tail in (m + 3) // 4 - select(n < 9, m // 4, 0):" in text


def test_a_known_number_of_tiles_ends_for_long_dims_too() -> None:
    before = tw.parse_kernel(ROWS.replace("(m + 3) // 4", "m // 4"))
    text = same(before, partition(before, "i_o", longest={"j": 8}))
    assert "for i_o_tail in m // 4 - select(n < 9, m // 4, 0):" in text


def test_a_dim_that_cannot_be_longer_is_no_condition() -> None:
    kernel = tw.parse_kernel(ROWS)
    result = partition(kernel, "i_o", longest={"j": 100})
    assert to_text(result) == to_text(partition(kernel, "i_o"))


@pytest.mark.parametrize(
    ("longest", "what"),
    [
        ({"k": 8}, "partition: 'k' has no length in 'i_o'"),
        ({"i": 2}, "partition: 'i' has several lengths in 'i_o'"),
        ({"j": 0}, "partition: longest['j'] is 0"),
    ],
)
def test_lengths_that_do_not_decide(longest: dict[str, int], what: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        partition(tw.parse_kernel(ROWS), "i_o", longest=longest)
    assert caught.value.what == what


def test_pieces_have_names_of_their_own_and_are_shared_apart() -> None:
    before = tw.parse_kernel(ROWS)
    after = name_apart(partition(before, "i_o"), ["double", "store"])
    text = same(before, after)
    assert [text.count(f"compute {name}(") for name in ("double", "double2", "store2")] == [1] * 3
    single = compute_at(after, "store2", {"i": 1}, producers={"double2": ["i"]})
    text = same(before, single)
    # Memory of four rows is that of one, of three at most.
    assert "for i in m % 4:\n      alloc t: f32[1, 100]" in text


def test_what_stands_under_a_condition_shares_loops() -> None:
    before = tw.parse_kernel("""
kernel rows(m: s64 in 0..100, n: s64 in 0..100, in x: f32[m, n], out y: f32[m, n]):
  compute all(i in m, j in n):
    y[i, j] = x[i, j]
  if 8 < n:
    compute more(i in m):
      y[i, 8] = x[i, 8] * 2.0
""")
    after = compute_at(before, "more", {"i": 1}, producers={"all": ["i"]})
    assert "for i in m:\n    compute all(j in n):" in same(before, after)
    again = compute_at(before, "all", {"i": 1}, producers={"more": ["i"]})
    assert to_text(again) == to_text(after)


def test_memory_shrinks_to_what_is_reached() -> None:
    before = tw.parse_kernel(ROWS)
    after = lay_out(partition(before, "i_o", longest={"j": 8}), "t", shrink=True)
    text = same(before, after)
    assert "alloc t: f32[4, 8]" in text and "alloc t: f32[4, 100]" in text


@pytest.mark.parametrize("index", ["i, p[j]", "3 - i, 7 - j"])
def test_memory_that_is_reached_anywhere_stays(index: str) -> None:
    """At loaded places, and from its end."""
    kernel = tw.parse_kernel(f"""
kernel rows(in p: s64[8], in x: f32[4, 8], out y: f32[4, 8]):
  alloc t: f32[4, 8]
  compute fill(i in 4, j in 8):
    t[{index}] = x[i, j]
  compute store(i in 4, j in 8):
    y[i, j] = t[i, j]
""")
    assert lay_out(kernel, "t", shrink=True) is kernel
