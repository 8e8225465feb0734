"""What several computes make by a dim that they share, a part after the other."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.schedule.reductions.in_parts import in_parts

# A matrix that is made from rows and columns, and summed up along both.
CROSSED = """
kernel crossed(
    in x: f32[6, 4], in y: f32[20, 4], in z: f32[6], out a: f32[6, 4], out b: f32[20, 4]
):
  alloc s: f32[6, 20]
  alloc p: f32[6, 20]
  alloc r: f32[6]
  alloc c: f32[6, 4]
  compute scores_clear(i in 6, j in 20):
    s[i, j] = 0.0
  compute scores(i in 6, j in 20, d in 4):
    s[i, j] add= x[i, d] * y[j, d]
  compute counted(i in 6, j in 20):
    s[i, j] = select({where}, s[i, j], -inf)
  compute twice(i in 6):
    r[i] = z[i] * 2.0
  compute power(i in 6, j in 20):
    p[i, j] = select(s[i, j] == -inf, 0.0, exp(s[i, j] - r[i]))
  compute left_clear(i in 6, d in 4):
    c[i, d] = 0.0
  compute left(i in 6, d in 4, j in 20):
    c[i, d] add= p[i, j] * y[j, d]
  compute result(i in 6, d in 4):
    a[i, d] = c[i, d] * 0.5
  compute right_clear(j in 20, d in 4):
    b[j, d] = 0.0
  compute right(j in 20, d in 4, i in 6):
    b[j, d] add= p[i, j] * x[i, d]
"""
MOST = """  compute most(i in 6, d in 4, j in 20):
    c[i, d] max= p[i, j]
"""


def crossed(where: str = "True") -> Kernel:
    return tw.parse_kernel(CROSSED.format(where=where))


def same(before: Kernel, after: Kernel) -> str:
    """Both give the same but for roundings; the text of the second."""
    verify(after)
    rng = np.random.default_rng(0)
    shapes = {"x": (6, 4), "y": (20, 4), "z": (6,)}
    arrays = {n: rng.standard_normal(size).astype(np.float32) for n, size in shapes.items()}
    first, second = (tw.compile(kernel, "interpreter")(**arrays) for kernel in (before, after))
    for name in ("a", "b"):
        np.testing.assert_allclose(first[name], second[name], rtol=1e-5, atol=1e-6)
    return to_text(after)


@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (7, 4), (5, 2), (20, 6), (64, 5)])
@pytest.mark.parametrize("where", ["True", "j <= i", "i + 3 < j", "4 < i"])
def test_parts_give_what_the_whole_gives(columns: int, rows: int, where: str) -> None:
    before = crossed(where)
    after = in_parts(before, "scores", "j", columns)
    same(before, in_parts(after, "scores", "i", rows))


def test_others_go_before_and_behind() -> None:
    """What is handed on is as long as a part; sums along the dim begin before it."""
    text = same(crossed(), in_parts(crossed(), "scores", "j", 5))
    before, loop = text.split("for j_o in 4:")
    assert "compute left_clear" in before and "compute twice" in before
    assert "alloc s: f32[6, 5]" in loop and "alloc c: f32[6, 4]" in before
    assert re.search(r"\n  compute result\(", loop) and re.search(
        r"\n    compute right_clear\(", loop
    )


def test_parts_that_add_nothing_are_skipped() -> None:
    """Rows of some columns: sums of these begin behind the condition."""
    text = same(
        crossed("j <= i"),
        in_parts(in_parts(crossed("j <= i"), "scores", "j", 4), "scores", "i", 2),
    )
    assert re.search(r"for i_o in 3:\n +if j_o \* 2 .*i_o.*:\n", text)
    # All columns of all rows begin sums that nothing else would clear.
    assert not re.search(r"for j_o in 5:\n +if", text)


def test_parts_that_add_something_else_are_not_skipped() -> None:
    text = CROSSED.format(where="j <= i").replace("p[i, j] * x[i, d]", "p[i, j] + x[i, d]")
    before = tw.parse_kernel(text)
    after = in_parts(in_parts(before, "scores", "j", 4), "scores", "i", 2)
    assert "if " not in same(before, after)


def test_parts_are_not_skipped_for_a_mask_of_some_rows() -> None:
    text = CROSSED.format(where="j <= i").replace(", out b: f32[20, 4]", "")
    text = text[: text.index("  compute right_clear")]
    for count in (6, 3):
        kernel = tw.parse_kernel(text.replace("counted(i in 6,", f"counted(i in {count},"))
        assert ("if " in to_text(in_parts(kernel, "scores", "j", 4))) == (count == 6)


@pytest.mark.parametrize("seen", ["s", "p"])
def test_parts_that_others_see_are_not_skipped(seen: str) -> None:
    text = CROSSED.format(where="j <= i").replace(f"  alloc {seen}: f32[6, 20]\n", "")
    before = tw.parse_kernel(text.replace("out b:", f"out {seen}: f32[6, 20], out b:"))
    after = in_parts(in_parts(before, "scores", "j", 4), "scores", "i", 2)
    assert "if " not in same(before, after)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("b[j, d] add= p[i, j] * x[i, d]", "b[j, d] add= p[i, j] * c[i, d]", "not complete"),
        ("p[i, j] * x[i, d]", "p[i, j] * p[i, 19 - j]", "not by the dim alone"),
        ("p[i, j] * x[i, d]", "p[i, j] * a[i, d]", "it stands between"),
        ("  compute result", MOST + "  compute result", "combined in two ways"),
    ],
)
def test_refusals(old: str, new: str, why: str) -> None:
    assert old in CROSSED
    kernel = tw.parse_kernel(
        CROSSED.replace(old, new).format(where="True").replace("out a:", "inout a:")
    )
    with pytest.raises(ScheduleError) as error:
        in_parts(kernel, "scores", "j", 4)
    assert "in_parts: 'scores' has no parts of 'j'" in str(error.value), error.value
    assert why in str(error.value)
