"""Reductions in parts of neighbours, and partial results of several: before, after, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.interpret import run
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.schedule.reductions.rfactor import rfactor

SUM = """
kernel rows(in x: f32[3, 103], inout y: f32[3]):
  compute sum(i in 3, k in 103):
    y[i] add= x[i, k]
"""
VALUES = ", ".join(f"select(v < w or v == w and q < p, {chosen})" for chosen in ("w, v", "q, p"))
PLACE = f"""
kernel place(in x: f32[3, 50], inout best: f32[3], inout at: s64[3], inout least: f32[3]):
  compute find(i in 3, k in 50):
    x = x[i, k]
    combiner first(v: f32, p; w: f32, q) from (-inf, 50) = {VALUES}
    best[i], at[i] first= x, k
    least[i] min= x
"""


def same(before: Kernel, after: Kernel) -> None:
    """Both are right, and give the same of whole numbers."""
    results = []
    for kernel in (before, after):
        verify(kernel)
        rng = np.random.default_rng(0)
        memory = {
            p.name: rng.integers(-4, 5, p.buffer.layout.extent).astype(p.dtype.numpy)
            for p in kernel.arrays
        }
        run(kernel, memory)
        results.append({p.name: memory[p.name] for p in kernel.arrays})
    for name, values in results[0].items():
        np.testing.assert_array_equal(values, results[1][name])


def test_parts_of_a_sum() -> None:
    before = tw.parse_kernel(SUM)
    after = rfactor(before, "sum", "k", 4, multiple=8)
    assert to_text(after).splitlines()[1:] == (
        """\
  alloc sum_pieces: f32[4, 3]
  compute sum_pieces_init(piece in 4, i in 3):
    sum_pieces[piece, i] = 0.0
  compute sum(piece in 4, i in 3, k in 24):
    sum_pieces[piece, i] add= x[i, k + piece * 24]
  compute sum_end(i in 3, k in 7):
    y[i] add= x[i, k + 96]
  compute sum_combine(i in 3, piece in 4):
    x = sum_pieces[piece, i]
    y[i] add= x""".splitlines()
    )
    same(before, after)


def test_parts_of_parts_have_other_names() -> None:
    before = tw.parse_kernel(SUM.replace("103", "96"))
    once = rfactor(before, "sum", "k", 4)
    twice = rfactor(once, "sum", "k", 3)
    same(before, twice)
    for line in ("alloc sum_pieces: f32[4, 3]", "alloc sum_pieces2: f32[3, 4, 3]"):
        assert line in to_text(twice)


def test_values_are_not_called_like_dims() -> None:
    before = tw.parse_kernel(
        SUM.replace("x:", "src:")
        .replace("x[i", "src[x")
        .replace("i in", "x in")
        .replace("y[i]", "y[x]")
    )
    for after in (rfactor(before, "sum", "k", 4), rfactor(before, "sum", "k", 2, lanes=4)):
        same(before, after)


@pytest.mark.parametrize("parts", [2, 5])
def test_parts_of_several_results(parts: int) -> None:
    before = tw.parse_kernel(PLACE)
    after = rfactor(before, "find", "k", parts)
    assert "alloc find_best_pieces" in to_text(after) and "alloc find_at_pieces" in to_text(after)
    same(before, after)


@pytest.mark.parametrize("copies", [1, 3])
def test_lanes_of_several_results(copies: int) -> None:
    before = tw.parse_kernel(PLACE)
    after = rfactor(before, "find", "k", copies, lanes=4)
    assert f"alloc find_at_parts: s64[3, {copies}, 4] private" in to_text(after)
    same(before, after)


@pytest.mark.parametrize(
    ("text", "given", "what"),
    [
        (SUM, ("sum", "k", 104), "'k' has no 104 parts"),
        (SUM, ("sum", "i", 2), "'i' is not reduced"),
        (SUM, ("sum", "k", 0), "parts is 0"),
        (SUM, ("sum", "k", 2, "i"), "the name 'i' is taken"),
        (SUM.replace("add=", "and=").replace("f32", "s32"), ("sum", "k", 2), "not accumulate"),
        (SUM.replace("y[i] ", "y[i | i < 2] "), ("sum", "k", 2), "the output is masked"),
        (SUM.replace("k in", "ordered k in"), ("sum", "k", 2), "ordered dims, or places"),
    ],
)
def test_refusals(text: str, given: tuple[str, str, int], what: str) -> None:
    with pytest.raises(ScheduleError, match=what):
        rfactor(tw.parse_kernel(text), *given)


def test_partial_results_are_as_many_as_promises_leave_parts() -> None:
    """Of 300 at most there are never 8 parts of 125: the buffer says so as its dim does, or what
    goes by one of them would not know the other."""
    kernel = tw.parse_kernel("""
kernel total(n: s64 in 1..300, in x: f32[n], inout y: f32[1]):
  compute sum(i in n):
    y[0] add= x[i]
""")
    text = to_text(rfactor(kernel, "sum", "i", 8, "piece", least=125))
    assert "sum_pieces: f32[max(n // 125, 1)]" in text
    assert "compute sum(piece in max(n // 125, 1)," in text
