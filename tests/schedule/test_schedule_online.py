"""Exponentials and sums relative to a running maximum."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.reductions.online import online

# Attention of one head, whose scores count where `{where}` says.
ATTENTION = """
kernel attention(
    in q: f32[6, 4], in k: f32[20, 4], in v: f32[20, 3], out y: f32[6, 3], out z: f32[6]
):
  alloc s: f32[6, 20]
  alloc m: f32[6]
  alloc p: f32[6, 20]
  alloc t: f32[6]
  alloc a: f32[6, 3]
  compute scores_clear(i in 6, j in 20):
    s[i, j] = 0.0
  compute scores(i in 6, j in 20, d in 4):
    s[i, j] add= q[i, d] * k[j, d]
  compute counted(i in 6, j in 20):
    s[i, j] = select({where}, s[i, j], -inf)
  compute peak_clear(i in 6):
    m[i] = -inf
  compute peak(i in 6, j in 20):
    m[i] max= s[i, j]
  compute finite(i in 6):
    m[i] = select(m[i] == -inf, 0.0, m[i])
  compute power(i in 6, j in 20):
    p[i, j] = exp(s[i, j] - m[i])
  compute total_clear(i in 6):
    t[i] = 0.0
  compute total(i in 6, j in 20):
    t[i] add= p[i, j]
  compute sums_clear(i in 6, e in 3):
    a[i, e] = 0.0
  compute sums(i in 6, e in 3, j in 20):
    a[i, e] add= p[i, j] * v[j, e]
  compute result(i in 6, e in 3):
    y[i, e] = select(t[i] == 0.0, 0.0, a[i, e] / t[i])
  compute logarithm(i in 6):
    z[i] = m[i] + log(t[i])
"""
MORE = """  compute more(i in 6, j in 20):
    s[i, j] = max(s[i, j], 0.0)
"""


def attention(where: str = "True") -> Kernel:
    return tw.parse_kernel(ATTENTION.format(where=where))


def same(before: Kernel, after: Kernel, scale: float = 1.0) -> str:
    """Both give the same but for roundings; the text of the second."""
    verify(after)
    rng = np.random.default_rng(0)
    arrays = {
        name: (rng.standard_normal(shape) * scale).astype(np.float32)
        for name, shape in (("q", (6, 4)), ("k", (20, 4)), ("v", (20, 3)))
    }
    first, second = (tw.compile(kernel, "interpreter")(**arrays) for kernel in (before, after))
    for name in ("y", "z"):
        np.testing.assert_allclose(first[name], second[name], rtol=1e-5, atol=1e-6)
    return to_text(after)


@pytest.mark.parametrize("size", [1, 4, 5, 7, 19, 20, 64])
@pytest.mark.parametrize("where", ["True", "j <= i", "i + 3 < j", "4 < i", "j <= i and i < j + 3"])
def test_parts_give_what_the_whole_gives(size: int, where: str) -> None:
    """Also where rows have nothing that counts, at first or at all."""
    before = attention(where)
    same(before, online(before, "peak", size))


@pytest.mark.parametrize("scale", [10.0, 100.0])
def test_great_scores_do_not_overflow(scale: float) -> None:
    before = attention("i + 7 < j")
    same(before, online(before, "peak", 4), scale)


def test_what_is_handed_on_is_as_long_as_a_part() -> None:
    text = same(attention(), online(attention(), "peak", 5))
    assert "alloc s: f32[6, 5]" in text and "alloc p: f32[6, 5]" in text
    assert "for j_o in 4:" in text and "k[j + j_o * 5, d]" in text


def test_parts_of_which_nothing_counts_are_skipped() -> None:
    tiled = compute_at(
        attention("j <= i"),
        "logarithm",
        {"i": 2},
        producers={
            name: ["i"]
            for name in (
                *("scores_clear", "scores", "counted", "peak_clear", "peak", "finite", "power"),
                *("total_clear", "total", "sums_clear", "sums", "result"),
            )
        },
    )
    text = same(attention("j <= i"), online(tiled, "peak", 4))
    assert re.search(r"for j_o in 5:\n +if j_o \* 2 .*i_o.*:\n +alloc", text)


def test_a_maximum_of_nothing_finite_needs_no_case_of_its_own() -> None:
    """Without `finite`, one is put in: the textbook's softmax."""
    text = ATTENTION.format(where="j <= i")
    start = text.index("  compute finite")
    kernel = tw.parse_kernel(text[:start] + text[text.index("  compute power") :])
    assert "compute peak_finite" in same(kernel, online(kernel, "peak", 4))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("m[i] max= s[i, j]", "m[i] min= s[i, j]", "it is no maximum along one dim"),
        ("t[i] add= p[i, j]", "t[i] max= p[i, j]", "it is no sum of what is proportional"),
        ("p[i, j] * v[j, e]", "p[i, j] * p[i, j]", "it is no sum of what is proportional"),
        ("p[i, j] * v[j, e]", "p[i, j] + v[j, e]", "it is no sum of what is proportional"),
        ("= exp(s[i, j] - m[i])", "= exp(m[i] - s[i, j])", "not one exponential of a difference"),
        ("= exp(s[i, j] - m[i])", "= exp(s[i, j] / m[i])", "not one exponential of a difference"),
        ("a[i, e] / t[i])", "a[i, e] / t[i] + p[i, 0])", "it uses the exponential"),
        ("m[i] == -inf, 0.0", "m[i] == 1.0, 0.0", "it uses the maximum"),
        ("p[i, j] * v[j, e]", "p[i, j] * t[i]", "it uses a sum that is not complete in a part"),
    ],
)
def test_refusals(old: str, new: str, why: str) -> None:
    text = ATTENTION.format(where="True")
    assert old in text
    with pytest.raises(ScheduleError) as error:
        online(tw.parse_kernel(text.replace(old, new)), "peak", 4)
    assert "online: 'peak' cannot run along" in str(error.value) and why in str(error.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # What was masked is changed again.
        ("  compute peak_clear", MORE + "  compute peak_clear"),
        # Some rows are not masked.
        ("counted(i in 6,", "counted(i in 3,"),
        # The exponential is of something else than the maximum.
        ("exp(s[i, j] - m[i])", "exp(min(s[i, j], 1.0) * 2.0 - m[i])"),
    ],
)
def test_parts_are_skipped_only_if_nothing_of_them_counts(old: str, new: str) -> None:
    text = ATTENTION.format(where="j <= i")
    assert old in text
    before = tw.parse_kernel(text.replace(old, new, 1))
    assert "if " not in same(before, online(before, "peak", 4))


def test_parts_that_others_see_are_not_skipped() -> None:
    text = ATTENTION.format(where="j <= i").replace("  alloc s: f32[6, 20]\n", "")
    before = tw.parse_kernel(text.replace("out z:", "out s: f32[6, 20], out z:"))
    assert "if " not in same(before, online(before, "peak", 4))
