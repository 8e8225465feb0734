"""fuse_dims: golden texts, results, refusals."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from schedule_cases import becomes, convolution, equal, matmul, tensorized
from tilewright.errors import ScheduleError
from tilewright.ir import Kernel, parse_kernel, to_text
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.staging.stage import stage


def test_fuse_dims_of_images() -> None:
    naive = convolution(kh=1, kw=1, pad=(0, 0), mb=2)
    kernel = fuse_dims(naive, ["oh", "ow"], "m")
    equal(naive, kernel)
    text = to_text(kernel)
    assert "in src: f32[2, 3, 42] {0:2:126 2:42:3 1:3:1}" in text
    assert "compute conv(mb in 2, oc in 5, m in 42, ic in 3):" in text
    assert "dst[mb, oc, m] = max(a + b, 0.0)" in text


def test_fuse_dims_of_several_results() -> None:
    becomes(
        """
        kernel f(in x: f32[4, 6, 8], inout least: f32[4, 6], inout most: f32[4, 6]):
          compute f(i in 4, j in 6, k in 8):
            v = x[i, j, k]
            least[i, j] min= v
            most[i, j] max= v
        """,
        lambda k: fuse_dims(k, ["i", "j"], "n"),
        """
        kernel f(in x: f32[24, 8], inout least: f32[24], inout most: f32[24]):
          compute f(n in 24, k in 8):
            v = x[n, k]
            least[n] min= v
            most[n] max= v
        """,
    )


@pytest.mark.parametrize(("stride", "pad"), [(1, 1), (2, 3), (2, 0), (3, 2)])
def test_fuse_dims_of_taps_and_channels(stride: int, pad: int) -> None:
    naive = convolution(mb=2, ic=3, iw=9, kh=5, kw=5, stride=(stride, stride), pad=(pad, pad))
    kernel = fuse_dims(naive, ["kw", "ic"], "k")
    equal(naive, kernel)
    assert f"k + ow * {3 * stride}" in to_text(kernel)


def test_fuse_dims_rewrites_bounds_exactly() -> None:
    kernel = fuse_dims(
        convolution(ic=3, ih=14, iw=224, kh=7, kw=7, stride=(2, 2), pad=(3, 3)), ["kw", "ic"], "k"
    )
    assert "9 <= k + ow * 6 and k + ow * 6 < 681]" in to_text(kernel)


def _masked(condition: str) -> Kernel:
    return parse_kernel(
        f"""
        kernel f(in x: f32[5, 3, 2], out y: f32[7, 5, 3, 2]):
          compute f(a in 7, i in 5, j in 3, k in 2):
            v = x[i, j, k | {condition}]
            y[a, i, j, k] = v
        """
    )


def test_fuse_three_dims() -> None:
    """A bound on outer dims is one on the number of all, whatever the inner ones are."""
    becomes(
        to_text(_masked("i < a + 2 and 5 <= a + i * 3 + j and 0 <= k + i * 6 + j * 2 - a")),
        lambda k: fuse_dims(k, ["i", "j", "k"], "n"),
        """
        kernel f(in x: f32[30], out y: f32[7, 30]):
          compute f(a in 7, n in 30):
            v = x[n | n < a * 6 + 12 and 10 <= a * 2 + n and a <= n]
            y[a, n] = v
        """,
    )


@pytest.mark.parametrize("seed", range(8))
def test_fuse_dims_of_random_masks(seed: int) -> None:
    r = Random(seed)
    for dims in (["i", "j", "k"], ["i", "j"], ["j", "k"]):
        terms = " + ".join(f"{v} * {r.choice((-1, 0, 1, 2, 3))}" for v in "aijk")
        naive = _masked(f"{r.randint(-3, 3)} <= {terms} and i * {r.choice((1, 2))} < a")
        equal(naive, fuse_dims(naive, dims, "n", digits=True))
        with suppress(ScheduleError):
            equal(naive, fuse_dims(naive, dims, "n"))


def test_fuse_dims_in_named_computes_rewrites_the_others() -> None:
    naive = convolution(channels_last=False, kw=3, ic=4)
    packed = stage(naive, "conv", "w", shape="dims", layout=["oc", "kh", "kw", "ic"])
    packed = stage(packed, "conv", "s", layout=["oh_kh", "ow_kw", "ic"])
    kernel = fuse_dims(packed, ["kw", "ic"], "k", computes=["conv"])
    equal(naive, kernel)
    assert "weights_packed[oc, kh, ic + kw * 4] = w" in to_text(kernel)


def test_fuse_dims_keeps_blocks() -> None:
    naive = convolution(ic=4, oc=16)
    blocks = ["oc", "kh", "kw", "ic", ("oc", 16), ("ic", 2)]
    packed = stage(naive, "conv", "w", shape="dims", layout=blocks)
    kernel = fuse_dims(packed, ["kw", "ic"], "k", computes=["conv"])
    equal(naive, kernel)
    assert "weights_packed: f32[16, 3, 12] {0:1:576 1:3:192 2:6:32 0:16:2 2:2:1}" in to_text(kernel)


def test_fuse_dims_refuses() -> None:
    with pytest.raises(ScheduleError, match="'oh' and 'ow' do not fuse in the mask of 'src'"):
        fuse_dims(convolution(), ["oh", "ow"], "m")
    with pytest.raises(ScheduleError, match="a step of dim 2 is not the whole of dim 1"):
        fuse_dims(convolution(), ["kh", "ic"], "k")
    with pytest.raises(ScheduleError, match="'kw' and 'ic' do not fuse in 'src'"):
        fuse_dims(convolution(dilation=(1, 2)), ["kw", "ic"], "k")
    with pytest.raises(ScheduleError, match="no compute has the dims oh, x"):
        fuse_dims(convolution(), ["oh", "x"], "m")
    with pytest.raises(ScheduleError, match="the name 'mb' is taken"):
        fuse_dims(convolution(mb=2), ["kw", "ic"], "mb")
    with pytest.raises(ScheduleError, match=r"there is no parameter 'other'[^$]*src, weights"):
        fuse_dims(convolution(), ["mb", "oh"], "m", digits=True, tensors=["other"])


# Dims that stay digits.


def test_fuse_to_digits_dims_that_are_apart() -> None:
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
        lambda k: fuse_dims(k, ["mb", "oh", "ow"], "m", digits=True),
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


def test_fuse_to_digits_in_another_order_under_an_old_name() -> None:
    naive = convolution(mb=2, oc=3)
    kernel = fuse_dims(naive, ["ow", "mb"], "ow", digits=True)
    equal(naive, kernel)
    text = to_text(kernel)
    assert "alloc acc: f32[3, 6, 14]" in text
    assert "dst[ow % 2, oc, oh, ow // 2] = max(a + b, 0.0)" in text


def test_fuse_to_digits_keeps_buffers_that_are_reached_otherwise() -> None:
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
        lambda k: fuse_dims(k, ["i", "j"], "n", digits=True),
        """
        kernel f(in x: f32[4, 6], out y: f32[4, 6], out z: f32[4]):
          alloc t: f32[24] private
          alloc u: f32[4, 6]
          compute first(n in 24):
            v = x[n // 6, n % 6]
            t[n] = v
          compute second(n in 24):
            v = t[n]
            u[n // 6, 5 - n % 6] = v
          compute third(n in 24):
            v = u[n // 6, n % 6]
            y[n // 6, n % 6] = v
          compute fourth(i in 4):
            v = t[i * 6 + 2]
            z[i] = v
        """,
    )


def test_fuse_to_digits_keeps_buffers_with_other_places_or_gaps() -> None:
    naive = parse_kernel(
        """
        kernel f(in x: f32[4, 4], out y: f32[4, 4]):
          alloc t: f32[4, 4]
          alloc u: f32[4, 5]
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
    kernel = fuse_dims(naive, ["i", "j"], "n", digits=True)
    equal(naive, kernel)
    assert "alloc t: f32[4, 4]\n  alloc u: f32[4, 5]\n" in to_text(kernel)


def test_fuse_to_digits_with_masks_and_extents_of_one() -> None:
    becomes(
        """
        kernel f(in x: f32[4, 1, 3], out y: f32[4, 1, 3]):
          compute f(i in 4, j in 1, k in 3):
            v = x[i, j, k | 1 <= i and k < 2]
            y[i, j, k] = v
        """,
        lambda k: fuse_dims(k, ["i", "j", "k"], "n", digits=True),
        """
        kernel f(in x: f32[4, 1, 3], out y: f32[4, 1, 3]):
          compute f(n in 12):
            v = x[n // 3, 0, n % 3 | 3 <= n and n % 3 < 2]
            y[n // 3, 0, n % 3] = v
        """,
    )


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dims", [("mb", "oh", "ow"), ("oc", "mb"), ("kh", "ic", "kw")])
def test_fuse_to_digits_convolutions(channels_last: bool, dims: tuple[str, ...]) -> None:
    naive = convolution(
        mb=2, ih=5, iw=6, stride=(2, 1), dilation=(1, 2), pad=(2, 1), channels_last=channels_last
    )
    equal(naive, fuse_dims(naive, dims, "m", digits=True))
    equal(naive, fuse_dims(naive, dims[::-1], "m", digits=True))


def test_fuse_to_digits_reduced_dims_only_where_they_are() -> None:
    naive = matmul()
    kernel = fuse_dims(naive, ["k", "m"], "q", digits=True)
    equal(naive, kernel)
    assert "zero(m in 7, n in 9)" in to_text(kernel)


def test_fuse_tensors_of_images() -> None:
    naive = convolution(kh=1, kw=1, pad=(0, 0), mb=2)
    plain = fuse_dims(naive, ["mb", "oh", "ow"], "m", digits=True)
    kernel = fuse_dims(naive, ["mb", "oh", "ow"], "m", digits=True, tensors=["src"])
    equal(naive, kernel)
    text = to_text(kernel)
    assert "in src: f32[84, 3]" in text and "src[m, ic]" in text
    # The result is as it was; here, too, it could have one dim.
    assert to_text(plain).splitlines()[-1] == text.splitlines()[-1]


def test_fuse_tensors_of_taps() -> None:
    """Where a mask hides what is outside, the number may be that of another row."""
    naive = convolution(mb=2, ih=4, iw=4)
    kernel = fuse_dims(naive, ["mb", "oh", "ow"], "m", digits=True, tensors=["src"])
    equal(naive, kernel)
    assert "src: f32[32, 3]" in to_text(kernel)


@pytest.mark.parametrize("changed", [{"channels_last": False}, {"stride": (2, 2), "iw": 9}])
def test_fuse_tensors_leaves_what_does_not_lie_so(changed: dict[str, Any]) -> None:
    """Images are not one behind another in channels-first tensors; strides skip rows."""
    naive = convolution(kh=1, kw=1, pad=(0, 0), mb=2, **changed)
    kernel = fuse_dims(naive, ["mb", "oh", "ow"], "m", digits=True, tensors=["src"])
    assert "src: f32[84, 3]" not in to_text(kernel) and "src: f32[108, 3]" not in to_text(kernel)
    equal(naive, kernel)


def test_fuse_tensors_by_some_of_the_digits() -> None:
    """Taps along rows and channels are one behind another, those along columns are not."""
    naive = convolution(pad=(0, 0), relu=False)
    kernel = fuse_dims(naive, ["kh", "kw", "ic"], "k", digits=True, tensors=["src"])
    equal(naive, kernel)
    assert "src: f32[1, 6, 21]" in to_text(kernel)
    assert "src[0, k // 9 + oh, k % 9 + ow * 3]" in to_text(kernel)


def test_fuse_dims_leaves_what_an_opaque_nest_reaches() -> None:
    kernel = parse_kernel(
        """
        kernel f(in x: f32[4, 6], out y: f32[4, 6]):
          alloc t: f32[4, 6]
          compute first(i in 4, j in 6):
            v = x[i, j]
            t[i, j] = v
          opaque twice writes t:
            for i in 4:
              for j in 6:
                t[i, j] = t[i, j] * 2.0
          compute last(i in 4, j in 6):
            v = t[i, j]
            y[i, j] = v
        """
    )
    fused = fuse_dims(kernel, ["i", "j"], "n", digits=True)
    equal(kernel, fused)
    assert "alloc t: f32[4, 6]\n" in to_text(fused) and "first(n in 24)" in to_text(fused)
    with pytest.raises(ScheduleError, match="inside of the opaque nest 'twice'"):
        fuse_dims(kernel, ["i", "j"], "n")


def test_fuse_dims_refuses_names_and_extents() -> None:
    naive = matmul(4, 16, 2)
    for dims in (["m"], [], ["m", "m"]):
        with pytest.raises(ScheduleError, match=r"one dim is none[^$]*where: kernel matmul"):
            fuse_dims(naive, dims, "q")
    for name in ("n", "x"):
        with pytest.raises(ScheduleError, match=f"the name '{name}' is taken"):
            fuse_dims(naive, ["m", "k"], name)
    with pytest.raises(ScheduleError, match=r"no compute has the dims m, q[^$]*before they are ti"):
        fuse_dims(naive, ["m", "q"], "p")
    with pytest.raises(ScheduleError, match="an inner extent is not constant"):
        fuse_dims(tile(naive, "mul", {"n": 5}), ["m", "n"], "p", digits=True)
    with pytest.raises(ScheduleError, match=r"the extents differ[^$]*rename the dims of one"):
        fuse_dims(tile(naive, "mul", {"n": 8}), ["m", "n"], "p", digits=True)
    with pytest.raises(ScheduleError, match=r"an instruction has the dims[^$]*before tensorizing"):
        fuse_dims(tensorized(naive), ["m", "n"], "p")
