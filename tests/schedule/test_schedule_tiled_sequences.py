"""Computes that follow one another in common loops: before and after, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.interpret import run
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel, LoopKind
from tilewright.ir.verify import verify
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.operands.name_operands import name_operands

BEFORE = """
kernel parts(in x: f32[10, 6], out y: f32[10, 6]):
  alloc s: f32[10]
  alloc t: f32[10, 6]
  compute zero(i in 10):
    s[i] = 0.0
  compute total(i in 10, j in 6):
    s[i] add= x[i, j]
  compute part(r in 10, j in 6):
    t[r, j] = x[r, j] / s[r]
  compute store(i in 10, j in 6):
    y[i, j] = t[i, j]
"""
ROWS = {"zero": ["i"], "total": ["i"], "part": ["r"], "store": ["i"]}


def parsed(text: str = BEFORE) -> Kernel:
    return tw.parse_kernel(text)


def in_loops(
    kernel: Kernel,
    dims: dict[str, list[str]],
    sizes: list[int],
    keep: tuple[str, ...] = (),
) -> Kernel:
    """The last of ``dims`` tiled, with the others going along."""
    *producers, last = dims
    along = {name: dims[name] for name in producers}
    return compute_at(
        kernel, last, dict(zip(dims[last], sizes, strict=True)), producers=along, keep=keep
    )


def same(before: Kernel, after: Kernel) -> None:
    """Both are right, and give the same."""
    results = []
    for kernel in (before, after):
        verify(kernel)
        memory = {
            p.name: np.arange(1, p.buffer.layout.extent + 1).astype(p.dtype.numpy)
            for p in kernel.arrays
        }
        run(kernel, memory)
        results.append({p.name: memory[p.name] for p in kernel.arrays})
    for name, values in results[0].items():
        np.testing.assert_array_equal(values, results[1][name])


def test_one_row_at_a_time() -> None:
    after = in_loops(parsed(), ROWS, [1])
    assert to_text(after).splitlines()[1:] == (
        """\
  for i in 10:
    alloc t: f32[1, 6] private
    alloc s: f32[1] private
    compute zero():
      s[0] = 0.0
    compute total(j in 6):
      s[0] add= x[i, j]
    compute part(j in 6):
      t[0, j] = x[i, j] / s[0]
    compute store(j in 6):
      y[i, j] = t[0, j]""".splitlines()
    )
    same(parsed(), after)


def test_tiles_whose_last_is_shorter() -> None:
    after = in_loops(parsed(), ROWS, [4], keep=("t",))
    text = to_text(after)
    assert "for i_o in 3" in text and "total(i in min(10 - i_o * 4, 4), j in 6)" in text
    assert "alloc s: f32[4] private" in text and "alloc t: f32[10, 6]\n" in text
    same(parsed(), after)
    assert in_loops(parsed(), ROWS, [10]) is not None
    assert "for " not in to_text(in_loops(parsed(), ROWS, [10]))


def test_two_levels() -> None:
    two = {"part": ["r", "j"], "store": ["i", "j"]}
    after = in_loops(parsed(), two, [1, 2])
    text = to_text(after)
    assert "for r in 10:\n    for j_o in 3:\n      alloc t: f32[1, 2] private" in text
    same(parsed(), after)


def test_computes_of_any_kind() -> None:
    kernel = parsed("""
kernel kinds(in x: f32[6, 8], out best: f32[6], out place: s64[6], out y: f32[6, 8]):
  compute start(i in 6):
    best[i] = -inf
    place[i] = 8
  compute find(i in 6, j in 8):
    x = x[i, j]
    combiner first(v: f32, p; w: f32, q) from (-inf, 8) = select(v < w, w, v), select(v < w, q, p)
    best[i], place[i] first= x, j
  compute scan(i in 6, ordered j in 8):
    before = y[i, j - 1 | 0 < j]
    y[i, j] = max(before, x[i, j] - best[i])
""")
    after = in_loops(kernel, {n: ["i"] for n in ("start", "find", "scan")}, [1])
    assert "compute scan(ordered j in 8)" in to_text(after)
    same(kernel, after)


SPOILED = BEFORE.replace(
    "  compute part", "  compute other(i in 10):\n    y[i, 0] = 0.0\n  compute part"
)


@pytest.mark.parametrize(
    ("text", "dims", "sizes", "what"),
    [
        (BEFORE, {"zero": ["i"], "total": ["j"]}, [1], "'total' has 6 of 'j', and 'zero' 10 of"),
        (BEFORE, {"total": ["j"], "part": ["j"]}, [1], "iterations of 'j' depend on each other"),
        (BEFORE, ROWS, [0], r"sizes\['i'\] is 0"),
        (BEFORE, {**ROWS, "store": ["i", "j"]}, [1, 1], "'zero' has the dims i, for 2 sizes"),
        (BEFORE, {"zero": [], "total": []}, [], "'zero' has the dims none, for 0 sizes"),
        (BEFORE, {"zero": ["k"]}, [1], "the compute 'zero' has no dim 'k'"),
        (BEFORE, {"nothing": ["k"]}, [1], "there is no compute 'nothing'"),
        (SPOILED, ROWS, [1], "something else stands between the computes"),
    ],
)
def test_refusals(text: str, dims: dict[str, list[str]], sizes: list[int], what: str) -> None:
    with pytest.raises(ScheduleError, match=what):
        in_loops(parsed(text), dims, sizes)


def test_computes_of_two_blocks() -> None:
    kernel = in_loops(parsed(), {"zero": ["i"], "total": ["i"]}, [1])
    with pytest.raises(ScheduleError, match="'total' stands in another block"):
        in_loops(kernel, {"total": ["j"], "part": ["j"]}, [1])


def test_order_storage_and_tails_are_those_of_other_tiles() -> None:
    sizes, along = {"i": 4, "j": 2}, {"part": ["r", "j"]}
    order, storage = ["j", "i"], ["j", "i"]
    after = compute_at(
        parsed(), "store", sizes, order, producers=along, storage=storage, tail="apart"
    )
    text = to_text(after)
    assert "for j_o in 3:\n    for r_o in 2:\n      alloc t: f32[4, 2] {1:2:4 0:4:1}" in text
    assert text.count("compute store(") == 2 and "compute store(i in 2, j in 2)" in text
    same(parsed(), after)


def test_levels_of_dims_that_are_named() -> None:
    levels = [(LoopKind.GRID, {"i": 4}), (LoopKind.WORKGROUP, {"i": 1})]
    with pytest.raises(ScheduleError, match="levels of producers whose dims are named"):
        compute_at(parsed(), "store", levels, producers={"part": ["r"]})


def test_what_is_kept_is_made_before() -> None:
    after = compute_at(parsed(), "store", {"i": 4}, keep=["t"])
    assert to_text(after) == to_text(tile(parsed(), "store", {"i": 4}))


def test_loads_become_operands() -> None:
    text = to_text(name_operands(parsed()))
    assert "    x = x[r, j]\n    s = s[r]\n    t[r, j] = x / s" in text
    again = name_operands(parsed(text))
    assert to_text(again) == text
