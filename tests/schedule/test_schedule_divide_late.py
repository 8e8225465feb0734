"""Sums of quotients as quotients of sums."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.ir.printer import to_text
from tilewright.ir.verify import verify
from tilewright.schedule.reductions.divide_late import divide_late

MEANS = """
kernel means(in p: f32[5, 9], in t: f32[5], in v: f32[9, 3], out s: f32[5, 3]):
  alloc w: f32[5, 9]
  compute weight(i in 5, j in 9):
    w[i, j] = p[i, j] / t[i]
  compute sums_clear(i in 5, e in 3):
    s[i, e] = 0.0
  compute sums(r in 5, e in 3, k in 9):
    s[r, e] add= w[r, k] * v[k, e]
"""


def test_the_sum_is_divided() -> None:
    before = tw.parse_kernel(MEANS)
    after = divide_late(before, "weight")
    verify(after)
    text = to_text(after)
    assert "alloc w" not in text and "compute weight_late(r in 5, e in 3):" in text
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.uniform(1, 2, shape).astype(np.float32)
        for name, shape in (("p", (5, 9)), ("t", (5,)), ("v", (9, 3)))
    }
    result, wanted = (tw.compile(kernel, "interpreter")(**arrays) for kernel in (after, before))
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("p[i, j] / t[i]", "p[i, j] * t[i]", "it is no elementwise quotient"),
        ("t: f32[5]", "t: f32[9]", "its terms have divisors of their own"),
        ("w[r, k] * v[k, e]", "w[r, k] * w[r, k] * v[k, e]", "not the factors of one sum alone"),
        ("w[r, k] * v[k, e]", "w[r, k] + v[k, e]", "not the factors of one sum alone"),
        ("    s[i, e] = 0.0", "    s[i, e] = 1.0", "it does not begin with 0"),
        ("s[r, e] add=", "s[r, e] max=", "it adds up nothing"),
    ],
)
def test_refusals(old: str, new: str, why: str) -> None:
    assert old in MEANS
    text = MEANS.replace(old, new).replace("/ t[i]", "/ t[j]" if "f32[9]" in new else "/ t[i]")
    with pytest.raises(ScheduleError, match="divide_late: the quotients") as error:
        divide_late(tw.parse_kernel(text), "weight")
    assert why in str(error.value)


def test_what_is_divided_stays_until_then() -> None:
    text = MEANS.replace("in p:", "inout p:").replace(
        "  compute sums(", "  compute more(i in 5, j in 9):\n    p[i, j] = 0.0\n  compute sums("
    )
    with pytest.raises(ScheduleError, match="divide_late: the quotients") as error:
        divide_late(tw.parse_kernel(text), "weight")
    assert "what is divided changes" in str(error.value)
