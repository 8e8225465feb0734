"""partition, trim, the kinds of loops, lower_computes: golden texts, results, refusals."""

from __future__ import annotations

import pytest

from schedule_cases import becomes, convolution, equal, matmul, softmax
from tilewright.errors import ScheduleError
from tilewright.ir import LoopKind, parse_kernel, to_text
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.loops.narrow import narrow
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.loops.trim import trim
from tilewright.schedule.staging.stage_result import stage_result

TAPS = """
    kernel f(in x: f32[56], out y: f32[56]):
      compute zero(i in 56):
        y[i] = 0.0
      for i in 56:
        compute sum(k in 5):
          s = x[i + k - 2 | 2 <= i + k and i + k < 58]
          y[i] add= s
"""


def test_partition() -> None:
    becomes(
        TAPS,
        lambda k: partition(k, "i"),
        """
        kernel f(in x: f32[56], out y: f32[56]):
          compute zero(i in 56):
            y[i] = 0.0
          for i_head in 2:
            compute sum(k in 5):
              s = x[i_head + k - 2 | 2 <= i_head + k]
              y[i_head] add= s
          for i in 52:
            compute sum(k in 5):
              s = x[i + k]
              y[i + 2] add= s
          for i_tail in 2:
            compute sum(k in 5):
              s = x[i_tail + k + 52 | i_tail + k < 4]
              y[i_tail + 54] add= s
        """,
    )


def test_partition_writes_borders_out() -> None:
    naive = parse_kernel(TAPS)
    kernel = partition(naive, "i", split_borders=True)
    equal(naive, kernel)
    assert to_text(kernel).count("compute sum") == 5
    assert to_text(kernel).count("for ") == 1


def test_partition_writes_out_a_short_loop_that_is_all_border() -> None:
    naive = convolution(ih=5, iw=6, ic=2)
    kernel = compute_at(naive, "epilogue", {"oh": 1, "ow": 4})
    assert partition(kernel, "ow_o") is kernel
    kernel = partition(kernel, "ow_o", split_borders=True)
    equal(naive, kernel)
    assert "ow_o" not in to_text(kernel)
    assert "min(" not in to_text(kernel)


def test_partition_of_a_loop_that_is_all_border_makes_tiles_whole() -> None:
    """Taps that reach over both ends left all tiles of a length that was not a number."""
    becomes(
        """
        kernel f(in x: f32[22], inout y: f32[22]):
          for i_o in 6:
            compute sum(i in min(22 - i_o * 4, 4), k in 41):
              s = x[i + i_o * 4 + k - 20 | 20 <= i + i_o * 4 + k and i + i_o * 4 + k < 42]
              y[i + i_o * 4] add= s
        """,
        lambda k: partition(k, "i_o"),
        """
        kernel f(in x: f32[22], inout y: f32[22]):
          for i_o in 5:
            compute sum(i in 4, k in 41):
              s = x[i + i_o * 4 + k - 20 | 20 <= i + i_o * 4 + k and i + i_o * 4 + k < 42]
              y[i + i_o * 4] add= s
          compute sum(i in 2, k in 41):
            s = x[i + k | i + k < 22]
            y[i + 20] add= s
        """,
    )


def test_partition_makes_tiles_whole() -> None:
    naive = convolution(ih=5, iw=13, ic=2)
    kernel = compute_at(naive, "epilogue", {"oh": 1, "ow": 4})
    kernel = partition(kernel, "ow_o")
    equal(naive, kernel)
    steady = to_text(kernel).partition("for ow_o in 2:")[2].partition("epilogue")[0]
    assert "ow in 4" in steady
    assert "min(" not in steady
    assert "kw + ow" not in steady.partition("|")[2]


def test_partition_of_nothing_changes_nothing() -> None:
    kernel = tile(matmul(8, 8, 8), "mul", {"m": 2})
    assert partition(kernel, "m_o") is kernel
    with pytest.raises(ScheduleError, match=r"there is no loop 'x'[^$]*choose one of m_o"):
        partition(kernel, "x")


def test_trim() -> None:
    becomes(
        """
        kernel f(in x: f32[9, 4], in w: f32[3], inout y: f32[9, 4]):
          for i in 9:
            for k in 3:
              compute sum(j in 4):
                s = x[i + k - 1, j | 1 <= i + k and i + k < 10]
                t = w[k]
                y[i, j] add= s * t
        """,
        lambda k: trim(k, "k"),
        """
        kernel f(in x: f32[9, 4], in w: f32[3], inout y: f32[9, 4]):
          for i in 9:
            k_lo = max(1 - i, 0)
            for k in min(10 - i, 3) - k_lo:
              compute sum(j in 4):
                s = x[i + k + k_lo - 1, j]
                t = w[k + k_lo]
                y[i, j] add= s * t
        """,
    )


@pytest.mark.parametrize(
    ("stride", "dilation", "pad"), [(1, 1, 3), (2, 1, 2), (1, 3, 2), (3, 2, 9)]
)
def test_trim_all_of_a_convolution(stride: int, dilation: int, pad: int) -> None:
    naive = convolution(
        ih=6, iw=5, stride=(stride, stride), dilation=(dilation, dilation), pad=(pad, pad)
    )
    kernel = tile(naive, "conv", {"oh": 1, "ow": 1, "kh": 1, "kw": 1}, ["oh", "ow", "kh", "kw"])
    kernel = trim(trim(kernel, "kh"), "kw")
    equal(naive, kernel)
    assert "|" not in to_text(kernel)


def test_trim_leaves_out_what_a_select_makes_neutral() -> None:
    naive = parse_kernel(
        """
        kernel pool(in x: f32[9], inout y: f32[9]):
          for i in 9:
            for k in 3:
              compute peak():
                s = x[i + k - 1 | 1 <= i + k and i + k < 10]
                y[i] max= select(1 <= i + k and i + k < 10, s, -inf)
        """
    )
    kernel = trim(naive, "k")
    equal(naive, kernel)
    assert "select" not in to_text(kernel)


def test_trim_keeps_what_counts() -> None:
    naive = parse_kernel(
        """
        kernel f(in x: f32[9], inout y: f32[9]):
          for i in 9:
            for k in 3:
              compute sum():
                s = x[i + k - 1 | 1 <= i + k and i + k < 10]
                y[i] add= exp(s)
        """
    )
    assert trim(naive, "k") is naive
    with pytest.raises(ScheduleError, match="the loop 'oc' does not reduce"):
        trim(tile(convolution(), "zero", {"oc": 1}), "oc")


LONGER = """
    kernel f(in x: f32[12, 5], out y: f32[10]):
      alloc acc: f32[12] private
      compute init(i in 12):
        acc[i] = 0.0
      compute sum(i in 12, k in 5):
        s = x[i, k]
        acc[i] add= s
      compute store(i in 12):
        a = acc[i]
        y[i | i < 10] = a
    """


def test_narrow_to_a_number() -> None:
    shorter = LONGER.replace("(i in 12", "(i in 10").replace(" | i < 10", "")
    becomes(LONGER, lambda k: narrow(k, "store", "i", 1), shorter)
    naive = parse_kernel(shorter)
    assert narrow(naive, "store", "i", 1) is naive
    naive = parse_kernel(LONGER)
    assert narrow(naive, "store", "i", 4) is naive
    assert "store(i in 11" in to_text(narrow(naive, "store", "i", 11))


def test_narrow_keeps_what_is_read() -> None:
    naive = parse_kernel(LONGER.replace("a = acc[i]", "a = acc[11 - i]"))
    alone = narrow(naive, "store", "i", 1)
    equal(naive, alone)
    assert "sum(i in 12" in to_text(alone) and "store(i in 10" in to_text(alone)


def test_kinds() -> None:
    naive = convolution(mb=2, ic=2, oc=8)
    kernel = compute_at(naive, "epilogue", {"mb": 1, "oc": 4, "oh": 1}, ["mb", "oh", "oc"])
    kernel = tile(kernel, "conv", {"kw": 1})
    kernel = set_kind(set_kind(kernel, ["mb", "oh"], LoopKind.PARALLEL), "kw", LoopKind.UNROLLED)
    equal(naive, kernel)
    text = to_text(kernel)
    assert "  parallel for mb in 2:\n    parallel for oh in 6:\n      for oc_o in 2:" in text
    assert "unrolled for kw in 3:" in text
    assert "subgroup for oc_o in 2" in to_text(set_kind(kernel, "oc_o", LoopKind.SUBGROUP))


def test_kinds_refuse() -> None:
    kernel = tile(matmul(), "mul", {"k": 3, "m": 4})
    with pytest.raises(ScheduleError, match=r"iterations of 'k_o' may write the same[^$]*c\[m"):
        set_kind(kernel, ["k_o"], LoopKind.PARALLEL)
    with pytest.raises(ScheduleError, match="'k_o' is not directly inside 'm_o'"):
        set_kind(tile(matmul(), "mul", {"m": 4, "n": 2, "k": 3}), ["m_o", "k_o"], LoopKind.PARALLEL)
    short = tile(tile(matmul(9), "mul", {"m": 4}), "mul", {"m": 2})
    with pytest.raises(ScheduleError, match="the extent of 'm_o2' is not constant"):
        set_kind(short, "m_o2", LoopKind.UNROLLED)
    inside = set_kind(tile(matmul(), "mul", {"k": 3, "n": 1}), "k_o", LoopKind.UNROLLED)
    with pytest.raises(ScheduleError, match="'n' cannot be parallel here"):
        set_kind(inside, ["n"], LoopKind.PARALLEL)
    with pytest.raises(ScheduleError, match="the extent of 'm_o2' depends on 'm_o'"):
        set_kind(short, ["m_o", "m_o2"], LoopKind.PARALLEL)


def test_parallel_needs_separate_elements() -> None:
    overlap = parse_kernel(
        """
        kernel f(in x: f32[8], out y: f32[9]):
          for i in 8:
            for j in 2:
              y[i + j] = x[i]
        """
    )
    with pytest.raises(ScheduleError, match="may write the same element"):
        set_kind(overlap, ["i"], LoopKind.PARALLEL)
    apart = parse_kernel(
        """
        kernel f(in x: f32[8], out y: f32[16]):
          for i in 8:
            for j in 2:
              y[i * 2 + j] = x[i]
        """
    )
    equal(apart, set_kind(apart, ["i"], LoopKind.PARALLEL))


def test_lower_computes() -> None:
    becomes(
        """
        kernel f(in x: f32[2, 20], inout y: f32[20]):
          compute sum(j in 20, i in 2):
            v = x[i, j | j < 18]
            y[j] add= v
        """,
        lambda k: lower_computes(k, vector="j", lanes=16),
        """
        kernel f(in x: f32[2, 20], inout y: f32[20]):
          for i in 2:
            for j_o in 2:
              vector for j in 16:
                if j + j_o * 16 < 20:
                  y[j + j_o * 16] = y[j + j_o * 16] + x[i, j + j_o * 16 | j + j_o * 16 < 18]
        """,
    )


def test_lower_computes_of_whole_vectors_has_no_masks() -> None:
    naive = convolution(oc=32, ic=2)
    kernel = compute_at(naive, "epilogue", {"oc": 16, "ow": 7, "oh": 1}, storage=["ow", "oc"])
    kernel = lower_computes(drop_unit_dims(kernel), vector="oc", lanes=16, unroll=["ow"])
    equal(naive, kernel)
    text = to_text(kernel)
    assert "unrolled for ow in 7:\n" in text
    assert "if " not in text


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_lower_everything(lanes: int) -> None:
    for naive, vector in [
        (convolution(mb=2, oc=7, stride=(2, 1)), "oc"),
        (matmul(5, 9, 4), "n"),
        (softmax(5, 6), "r"),
    ]:
        equal(naive, lower_computes(naive, vector=vector, lanes=lanes))
    naive = softmax(4, 9)
    equal(naive, lower_computes(naive, vector={"scale": "c"}, lanes=lanes))


def test_lower_short_tiles() -> None:
    naive = matmul(7, 21, 5)
    kernel = tile(naive, "mul", {"m": 3, "n": 8, "k": 2}, ["m", "n", "k"])
    kernel = stage_result(kernel, "mul", at="k_o")
    equal(naive, lower_computes(kernel, vector="n", lanes=8))
    equal(naive, lower_computes(kernel, ["mul"], vector="n", lanes=4, order=["n", "k", "m"]))


def test_lower_refuses_lanes_that_write_one_element() -> None:
    with pytest.raises(ScheduleError, match="'k' is reduced, so it cannot run in lanes"):
        lower_computes(matmul(), vector="k", lanes=4)


def test_lower_refuses_lanes_that_may_add_to_one_element() -> None:
    kernel = parse_kernel("""
kernel halves(in x: f32[8], out y: f32[2]):
  compute sum(i in 8):
    v = x[i]
    y[i // 4] add= v
""")
    with pytest.raises(ScheduleError, match="two lanes may add to one element of y"):
        lower_computes(kernel, vector="i", lanes=8)
    digits = parse_kernel("""
kernel turned(in x: f32[8], out y: f32[4, 2]):
  compute sum(i in 8):
    v = x[i]
    y[i % 4, i // 4] add= v
""")
    assert "vector for i in 8" in to_text(lower_computes(digits, vector="i", lanes=8))


def test_lanes_have_the_other_dims_in_common() -> None:
    """Those along ``t`` add to elements side by side, though other ``d`` add to the same ones."""
    naive = parse_kernel("""
kernel spread(in x: f32[3, 8], inout y: f32[26]):
  compute add(d in 3, t in 8):
    v = x[d, t]
    y[(d * 8 + 2) // 3 + t] add= v
""")
    equal(naive, lower_computes(naive, vector="t", lanes=4))
    crowded = parse_kernel("""
kernel crowded(in x: f32[8, 3], inout y: f32[26]):
  compute add(d in 8, t in 3):
    v = x[d, t]
    y[d * 2 // 3 + t] add= v
""")
    with pytest.raises(ScheduleError, match="two lanes may add to one element of y"):
        lower_computes(crowded, vector="d", lanes=2)
