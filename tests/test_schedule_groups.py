"""linearize and merge_loops: golden texts, results, refusals."""

from __future__ import annotations

import pytest

from schedule_cases import becomes, convolution, equal, matmul, tensorized
from tilewright.errors import ScheduleError
from tilewright.ir import Kernel, LoopKind, parse_kernel, to_text
from tilewright.schedule import (
    linearize,
    merge_loops,
    set_kind,
    tile,
)

# linearize


def test_linearize_dims_that_are_apart() -> None:
    becomes(
        """
        kernel f(in src: f32[2, 15, 15], in w: f32[3], out dst: f32[2, 3, 7, 7]):
          alloc acc: f32[2, 3, 7, 7]
          compute first(mb in 2, oc in 3, oh in 7, ow in 7):
            s = src[mb, oh * 2, ow * 2]
            v = w[oc]
            acc[mb, oc, oh, ow] = s * v
          compute last(mb in 2, oc in 3, oh in 7, ow in 7):
            a = acc[mb, oc, oh, ow]
            dst[mb, oc, oh, ow] = a
        """,
        lambda k: linearize(k, ["mb", "oh", "ow"], "m"),
        """
        kernel f(in src: f32[2, 15, 15], in w: f32[3], out dst: f32[2, 3, 7, 7]):
          alloc acc: f32[98, 3]
          compute first(m in 98, oc in 3):
            s = src[m // 49, m // 7 % 7 * 2, m % 7 * 2]
            v = w[oc]
            acc[m, oc] = s * v
          compute last(m in 98, oc in 3):
            a = acc[m, oc]
            dst[m // 49, oc, m // 7 % 7, m % 7] = a
        """,
    )


def test_linearize_in_another_order_under_an_old_name() -> None:
    naive = convolution(mb=2, oc=3)
    kernel = linearize(naive, ["ow", "mb"], "ow")
    equal(naive, kernel)
    text = to_text(kernel)
    assert "alloc acc: f32[14, 3, 6]" in text
    assert "dst[ow % 2, oc, oh, ow // 2] = max(a + b, 0.0)" in text


def test_linearize_keeps_buffers_that_are_reached_otherwise() -> None:
    becomes(
        """
        kernel f(in x: f32[4, 6], out y: f32[4, 6], out z: f32[4]):
          alloc t: f32[4, 6] {1:6:4 0:4:1} private
          alloc u: f32[4, 6]
          compute first(i in 4, j in 6):
            v = x[i, j]
            t[i, j] = v
          compute second(i in 4, j in 6):
            v = t[i, j]
            u[i, 5 - j] = v
          compute third(i in 4, j in 6):
            v = u[i, j]
            y[i, j] = v
          compute fourth(i in 4):
            v = t[i, 2]
            z[i] = v
        """,
        lambda k: linearize(k, ["i", "j"], "n"),
        """
        kernel f(in x: f32[4, 6], out y: f32[4, 6], out z: f32[4]):
          alloc t: f32[4, 6] {1:6:4 0:4:1} private
          alloc u: f32[4, 6]
          compute first(n in 24):
            v = x[n // 6, n % 6]
            t[n // 6, n % 6] = v
          compute second(n in 24):
            v = t[n // 6, n % 6]
            u[n // 6, 5 - n % 6] = v
          compute third(n in 24):
            v = u[n // 6, n % 6]
            y[n // 6, n % 6] = v
          compute fourth(i in 4):
            v = t[i, 2]
            z[i] = v
        """,
    )


def test_linearize_keeps_buffers_with_other_places_or_room() -> None:
    naive = parse_kernel(
        """
        kernel f(in x: f32[4, 4], out y: f32[4, 4]):
          alloc t: f32[4, 4]
          alloc u: f32[5, 4]
          compute first(i in 4, j in 4):
            v = x[i, j]
            t[j, i] = v
          compute second(i in 4, j in 4):
            v = t[i, j]
            u[i, j] = v
          compute third(i in 4, j in 4):
            v = u[i, j]
            y[i, j] = v
        """
    )
    kernel = linearize(naive, ["i", "j"], "n")
    equal(naive, kernel)
    assert "alloc t: f32[4, 4]\n  alloc u: f32[5, 4]\n" in to_text(kernel)


def test_linearize_with_masks_and_extents_of_one() -> None:
    becomes(
        """
        kernel f(in x: f32[4, 1, 3], out y: f32[4, 1, 3]):
          compute f(i in 4, j in 1, k in 3):
            v = x[i, j, k | 1 <= i and k < 2]
            y[i, j, k] = v
        """,
        lambda k: linearize(k, ["i", "j", "k"], "n"),
        """
        kernel f(in x: f32[4, 1, 3], out y: f32[4, 1, 3]):
          compute f(n in 12):
            v = x[n // 3, 0, n % 3 | 3 <= n and n % 3 < 2]
            y[n // 3, 0, n % 3] = v
        """,
    )


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dims", [("mb", "oh", "ow"), ("oc", "mb"), ("kh", "ic", "kw")])
def test_linearize_convolutions(channels_last: bool, dims: tuple[str, ...]) -> None:
    naive = convolution(
        mb=2, ih=5, iw=6, stride=(2, 1), dilation=(1, 2), pad=(2, 1), channels_last=channels_last
    )
    equal(naive, linearize(naive, dims, "m"))
    equal(naive, linearize(naive, dims[::-1], "m"))


def test_linearize_reduced_dims_only_where_they_are() -> None:
    naive = matmul()
    kernel = linearize(naive, ["k", "m"], "q")
    equal(naive, kernel)
    assert "zero(m in 7, n in 9)" in to_text(kernel)


def test_linearize_refuses() -> None:
    naive = matmul(4, 16, 2)
    for dims in (["m"], [], ["m", "m"]):
        with pytest.raises(ScheduleError, match=r"one dim is none[^$]*where: kernel matmul"):
            linearize(naive, dims, "q")
    for name in ("n", "x"):
        with pytest.raises(ScheduleError, match=f"the name '{name}' is taken"):
            linearize(naive, ["m", "k"], name)
    with pytest.raises(ScheduleError, match=r"no compute has the dims m, q[^$]*before tiling"):
        linearize(naive, ["m", "q"], "p")
    with pytest.raises(ScheduleError, match="an extent is not constant"):
        linearize(tile(naive, "mul", {"n": 5}), ["m", "n"], "p")
    with pytest.raises(ScheduleError, match=r"the extents differ[^$]*rename the dims of one"):
        linearize(tile(naive, "mul", {"m": 2}), ["m", "n"], "p")
    with pytest.raises(ScheduleError, match=r"an instruction has the dims[^$]*before tensorizing"):
        linearize(tensorized(naive), ["m", "n"], "p")


# merge_loops


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
    with pytest.raises(ScheduleError, match=r"no loop is named[^$]*the outermost first"):
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
