"""tile, reorder, compute_at, drop_unit_dims, pad: golden texts, results, refusals."""

from __future__ import annotations

import textwrap

import pytest

from schedule_cases import becomes, convolution, equal, matmul, softmax
from tilewright.errors import ScheduleError
from tilewright.ir import parse_kernel, to_text
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.reorder import reorder
from tilewright.schedule.loops.tile import Tail, tile
from tilewright.schedule.staging.stage import stage

COPY = """
    kernel copy(in x: f32[10, 8], out y: f32[10, 8]):
      compute copy(i in 10, j in 8):
        v = x[i, j]
        y[i, j] = v
"""


def test_tile_makes_loops_around_the_same_compute() -> None:
    becomes(
        COPY,
        lambda k: tile(k, "copy", {"i": 4, "j": 1}, ["j", "i"]),
        """
        kernel copy(in x: f32[10, 8], out y: f32[10, 8]):
          for j in 8:
            for i_o in 3:
              compute copy(i in min(10 - i_o * 4, 4)):
                v = x[i + i_o * 4, j]
                y[i + i_o * 4, j] = v
        """,
    )


def test_tile_sizes_that_divide_or_hold_all() -> None:
    becomes(
        COPY,
        lambda k: tile(k, "copy", {"j": 2, "i": 16}),
        """
        kernel copy(in x: f32[10, 8], out y: f32[10, 8]):
          for j_o in 4:
            compute copy(i in 10, j in 2):
              v = x[i, j + j_o * 2]
              y[i, j + j_o * 2] = v
        """,
    )


def test_a_shorter_last_tile_apart() -> None:
    becomes(
        COPY,
        lambda k: tile(k, "copy", {"i": 4, "j": 1}, ["j", "i"], tail="apart"),
        """
        kernel copy(in x: f32[10, 8], out y: f32[10, 8]):
          for j in 8:
            for i_o in 2:
              compute copy(i in 4):
                v = x[i + i_o * 4, j]
                y[i + i_o * 4, j] = v
            compute copy(i in 2):
              v = x[i + 8, j]
              y[i + 8, j] = v
        """,
    )


@pytest.mark.parametrize("tail", ["apart", "borders"])
def test_tails_are_those_of_partitions(tail: Tail) -> None:
    naive = convolution(oc=20)
    sizes = {"oc": 16, "ow": 2}
    apart = compute_at(naive, "epilogue", sizes, tail=tail)
    equal(naive, apart)
    masked = expected = compute_at(naive, "epilogue", sizes)
    for loop in ("oc_o", "ow_o"):
        expected = partition(expected, loop, tail == "borders")
    assert to_text(apart) == to_text(expected) != to_text(masked)


def test_other_words_for_tails_are_refused() -> None:
    for transform in (tile, compute_at):
        with pytest.raises(ScheduleError, match=r"tail='cut'[^$]*'mask', 'apart', 'borders'"):
            transform(parse_kernel(textwrap.dedent(COPY)), "copy", {"i": 4}, tail="cut")


def test_tiles_of_tiles_get_fresh_names() -> None:
    becomes(
        COPY,
        lambda k: tile(tile(k, "copy", {"j": 4}), "copy", {"j": 2}),
        """
        kernel copy(in x: f32[10, 8], out y: f32[10, 8]):
          for j_o in 2:
            for j_o2 in 2:
              compute copy(i in 10, j in 2):
                v = x[i, j + j_o * 4 + j_o2 * 2]
                y[i, j + j_o * 4 + j_o2 * 2] = v
        """,
    )


def test_tiles_of_short_tiles_keep_within_them() -> None:
    naive = matmul(11, 13, 7)
    kernel = tile(tile(naive, "mul", {"m": 6, "n": 8, "k": 4}), "mul", {"n": 3, "m": 4, "k": 1})
    equal(naive, kernel)


@pytest.mark.parametrize("channels_last", [False, True])
def test_tiled_convolution_with_stride_and_dilation(channels_last: bool) -> None:
    naive = convolution(
        mb=2, ic=4, ih=9, iw=11, stride=(2, 1), dilation=(1, 2), channels_last=channels_last
    )
    kernel = tile(naive, "conv", {"mb": 1, "ow": 3, "oh": 2, "ic": 3, "kw": 2}, ["ow", "mb", "ic"])
    equal(naive, kernel)


def test_tile_refuses() -> None:
    with pytest.raises(ScheduleError, match=r"no compute 'x'[^$]*choose one of zero, conv"):
        tile(convolution(), "x", {"oc": 4})
    with pytest.raises(ScheduleError, match=r"'conv' has no dim 'q'[^$]*choose one of mb, oc"):
        tile(convolution(), "conv", {"q": 4})
    with pytest.raises(ScheduleError, match=r"tile: sizes\['oc'\] is 0"):
        tile(convolution(), "conv", {"oc": 0})
    with pytest.raises(ScheduleError, match="the order names 'ow', which has no size"):
        tile(convolution(), "conv", {"oc": 4}, ["ow"])


def test_reorder() -> None:
    becomes(
        COPY,
        lambda k: reorder(tile(k, "copy", {"i": 5, "j": 1}), ["j", "i_o"]),
        """
        kernel copy(in x: f32[10, 8], out y: f32[10, 8]):
          for j in 8:
            for i_o in 2:
              compute copy(i in 5):
                v = x[i + i_o * 5, j]
                y[i + i_o * 5, j] = v
        """,
    )


def test_reorder_reductions_and_dependent_loops() -> None:
    naive = matmul()
    kernel = tile(naive, "mul", {"m": 2, "n": 4, "k": 3})
    equal(naive, reorder(kernel, ["k_o", "n_o", "m_o"]))
    scan = parse_kernel(
        """
        kernel scan(inout x: f32[9, 9]):
          for i in 8:
            for j in 8:
              x[i + 1, j] = x[i, j + 1] + 1.0
        """
    )
    with pytest.raises(ScheduleError, match="iterations of 'i' and 'j' depend on each other"):
        reorder(scan, ["j", "i"])


def test_reorder_refuses() -> None:
    kernel = tile(matmul(), "mul", {"m": 2, "n": 4, "k": 3})
    with pytest.raises(ScheduleError, match="'n_o' is in between"):
        reorder(kernel, ["k_o", "m_o"])
    with pytest.raises(ScheduleError, match="names a loop twice"):
        reorder(kernel, ["k_o", "k_o"])
    twice = tile(tile(matmul(9), "mul", {"m": 4}), "mul", {"m": 2})
    with pytest.raises(ScheduleError, match="depends on a loop that would be inside"):
        reorder(twice, ["m_o2", "m_o"])


def test_tile_and_fuse_shrinks_the_buffer_between() -> None:
    naive = convolution(ic=2, ih=4, iw=4, oc=20, kh=1, kw=1, pad=(0, 0))
    sizes = {"oc": 16, "oh": 1, "ow": 2}
    kernel = compute_at(naive, "epilogue", sizes, ["oh", "oc", "ow"], storage=["ow", "oc"])
    equal(naive, kernel)
    text = to_text(drop_unit_dims(kernel))
    assert (
        text.partition("):\n")[2]
        == """\
  for oh in 4:
    for oc_o in 2:
      for ow_o in 2:
        alloc acc: f32[16, 2] {1:2:16 0:16:1} private
        compute zero(oc in min(20 - oc_o * 16, 16), ow in 2):
          acc[oc, ow] = 0.0
        compute conv(oc in min(20 - oc_o * 16, 16), ow in 2, ic in 2):
          s = src[0, ic, oh, ow + ow_o * 2]
          w = weights[oc + oc_o * 16, ic, 0, 0]
          acc[oc, ow] add= s * w
        compute epilogue(oc in min(20 - oc_o * 16, 16), ow in 2):
          a = acc[oc, ow]
          b = bias[oc + oc_o * 16]
          dst[0, oc + oc_o * 16, oh, ow + ow_o * 2] = max(a + b, 0.0)"""
    )
    equal(naive, drop_unit_dims(kernel))


def test_tile_and_fuse_follows_chains() -> None:
    naive = softmax()
    kernel = compute_at(naive, "scale", {"r": 2})
    equal(naive, kernel)
    text = to_text(kernel)
    assert "alloc top: f32[2] private" in text
    assert "alloc total: f32[2] private" in text
    one = drop_unit_dims(compute_at(naive, "scale", {"r": 1, "c": 4}))
    equal(naive, one)
    assert to_text(one).count("for ") == 2


def test_tile_and_fuse_only_what_was_named() -> None:
    naive = softmax()
    kernel = compute_at(naive, "scale", {"r": 2}, producers=["none", "add"])
    equal(naive, kernel)
    assert "alloc top: f32[5]\n" in to_text(kernel)


def test_tile_and_fuse_without_producers_tiles() -> None:
    naive = parse_kernel(COPY)
    assert to_text(compute_at(naive, "copy", {"i": 4})) == to_text(tile(naive, "copy", {"i": 4}))


def test_tile_and_fuse_renames_what_clashes() -> None:
    becomes(
        """
        kernel f(in x: f32[4, 6], out y: f32[4]):
          alloc t: f32[4]
          compute zero(a in 4):
            t[a] = 0.0
          compute sum(a in 4, i in 6):
            v = x[a, i]
            t[a] add= v
          compute out(i in 4):
            v = t[i]
            y[i] = v
        """,
        lambda k: compute_at(k, "out", {"i": 1}),
        """
        kernel f(in x: f32[4, 6], out y: f32[4]):
          for i in 4:
            alloc t: f32[1] private
            t[0] = 0.0
            compute sum(i2 in 6):
              v = x[i, i2]
              t[0] add= v
            compute out():
              v = t[0]
              y[i] = v
        """.replace(
            "            t[0] = 0.0\n", "            compute zero():\n              t[0] = 0.0\n"
        ),
    )


def test_tile_and_fuse_refuses() -> None:
    halo = parse_kernel(
        """
        kernel f(in x: f32[9], out y: f32[8]):
          alloc t: f32[9]
          compute first(i in 9):
            v = x[i]
            t[i] = v
          compute second(i in 8):
            a = t[i]
            b = t[i + 1]
            y[i] = a + b
        """
    )
    assert "alloc t: f32[5] private" in to_text(compute_at(halo, "second", {"i": 4}))
    folded = parse_kernel(to_text(halo).replace("t[i + 1]", "t[i * i % 9]"))
    with pytest.raises(ScheduleError, match=r"'second' reaches 't' at [^$]*stage"):
        compute_at(folded, "second", {"i": 4})
    with pytest.raises(ScheduleError, match="'top' is used outside of what is fused"):
        compute_at(softmax(), "add", {"r": 2})
    with pytest.raises(ScheduleError, match="'top' is also written by something that is not"):
        compute_at(softmax(), "scale", {"r": 2}, producers=["peak", "add", "none"])


def test_drop_unit_dims_keeps_one() -> None:
    becomes(
        """
        kernel f(in x: f32[1, 4], out y: f32[1, 4]):
          alloc t: f32[1, 4]
          compute first(i in 1, j in 4):
            v = x[i, j]
            t[i, j] = v
          compute second(i in 1, j in 4):
            v = t[i, j]
            y[i, j] = v
        """,
        drop_unit_dims,
        """
        kernel f(in x: f32[1, 4], out y: f32[1, 4]):
          alloc t: f32[4]
          compute first(j in 4):
            v = x[0, j]
            t[j] = v
          compute second(j in 4):
            v = t[j]
            y[0, j] = v
        """,
    )


def test_pad_a_tile_and_a_reduction() -> None:
    naive = convolution(oc=20, ic=5)
    packed = stage(naive, "conv", "w", shape="dims", layout=["oc", "ic", ("oc", 16), ("ic", 2)])
    padded = pad(packed, "conv", {"ic": 6})
    equal(naive, padded)
    # Only the activations, which are not padded, got a mask.
    assert "ic < 5]\n    w = weights_packed[oc, ic, kh, kw]\n" in to_text(padded)
    tiled = compute_at(
        padded, "epilogue", {"oc": 16, "ow": 2}, storage=["oc"], producers=["zero", "conv"]
    )
    wide = pad(tiled, "epilogue", {"oc": 16})
    equal(naive, wide)
    assert "compute conv(oc in 16" in to_text(wide)
    alone = pad(tiled, "conv", {"oc": 16})
    equal(naive, alone)
    assert "acc[0, oc, oh, ow | oc < min(20 - oc_o * 16, 16)] add= " in to_text(alone)


def test_pad_refuses() -> None:
    naive = convolution(oc=20)
    with pytest.raises(ScheduleError, match="'oc' is longer than 16"):
        pad(naive, "conv", {"oc": 16})
    with pytest.raises(ScheduleError, match="the surplus of 'c' would count"):
        pad(softmax(), "peak", {"c": 8})
