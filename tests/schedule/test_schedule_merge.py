"""merge_loops: golden texts, results, refusals."""

from __future__ import annotations

import pytest

from schedule_cases import becomes, equal, matmul
from tilewright.errors import ScheduleError
from tilewright.ir import Kernel, LoopKind, parse_kernel, to_text
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.merge_loops import merge_loops
from tilewright.schedule.loops.tile import tile


def _nested(kernel: Kernel | None = None) -> Kernel:
    return tile(kernel or matmul(8, 9, 6), "mul", {"m": 3, "n": 3, "k": 2}, ["m", "n", "k"])


def test_merge_loops() -> None:
    becomes(
        """
        kernel f(in x: f32[3, 8], out y: f32[3, 8]):
          for kh in 3:
            for ic_o in 4:
              compute f(ic in 2):
                v = x[kh, ic_o * 2 + ic]
                y[kh, ic_o * 2 + ic] = v
        """,
        lambda k: merge_loops(k, ["kh", "ic_o"], "k"),
        """
        kernel f(in x: f32[3, 8], out y: f32[3, 8]):
          for k in 12:
            compute f(ic in 2):
              v = x[k // 4, ic + k % 4 * 2]
              y[k // 4, ic + k % 4 * 2] = v
        """,
    )


@pytest.mark.parametrize("loops", [["m_o", "n_o", "k_o"], ["m_o", "n_o"], ["n_o", "k_o"], ["k_o"]])
def test_merge_some_loops(loops: list[str]) -> None:
    naive = matmul(8, 9, 6)
    kernel = merge_loops(_nested(naive), loops, "q")
    equal(naive, kernel)
    assert to_text(kernel).count("for ") == 4 - len(loops)


def test_merge_loops_whose_outer_extent_varies() -> None:
    becomes(
        """
        kernel f(inout y: f32[4, 4, 2]):
          for a in 4:
            for b in a:
              for c in 2:
                y[a, b, c] = 2.0
        """,
        lambda k: merge_loops(k, ["b", "c"], "d"),
        """
        kernel f(inout y: f32[4, 4, 2]):
          for a in 4:
            for d in a * 2:
              y[a, d // 2, d % 2] = 2.0
        """,
    )


def test_merge_loops_refuses() -> None:
    kernel = _nested()
    with pytest.raises(ScheduleError, match=r"merge_loops: loops is empty"):
        merge_loops(kernel, [], "q")
    with pytest.raises(ScheduleError, match="there is no loop 'q'"):
        merge_loops(kernel, ["q", "m_o"], "p")
    with pytest.raises(ScheduleError, match="'m_o' is not directly inside 'n_o'"):
        merge_loops(kernel, ["n_o", "m_o"], "q")
    with pytest.raises(ScheduleError, match="the name 'x' is taken"):
        merge_loops(kernel, ["m_o", "n_o"], "x")
    other = set_kind(kernel, "n_o", LoopKind.PARALLEL)
    with pytest.raises(ScheduleError, match=r"'n_o' is of another kind, or its extent depends"):
        merge_loops(other, ["m_o", "n_o"], "q")
    ragged = parse_kernel(
        """
        kernel f(out y: f32[4, 4]):
          for i in 4:
            for j in i:
              y[i, j] = 1.0
        """
    )
    with pytest.raises(ScheduleError, match="'j' is of another kind, or its extent depends on a "):
        merge_loops(ragged, ["i", "j"], "q")
