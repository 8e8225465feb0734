"""stage, stage_result, hoist_pack: golden texts, results, refusals."""

from __future__ import annotations

import pytest

from schedule_cases import becomes, convolution, equal, matmul
from tilewright.dtypes import bf16, f32
from tilewright.errors import ScheduleError
from tilewright.ir import Compute, Space, parse_kernel, same, to_text
from tilewright.ir.symbols import bind_scalars
from tilewright.ir.visit import walk_stmts
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.staging.hoist import hoist_pack
from tilewright.schedule.staging.stage import stage
from tilewright.schedule.staging.stage_result import stage_result

BOX = """
    kernel f(in x: f32[56], out y: f32[56]):
      compute zero(i in 56):
        y[i] = 0.0
      for o in 14:
        compute sum(i in 4, k in 3):
          s = x[i + k + o * 4 - 1 | 1 <= i + k + o * 4 and i + k + o * 4 < 57]
          y[i + o * 4] add= s
"""


def test_stage_a_footprint_with_its_halo() -> None:
    becomes(
        BOX,
        lambda k: stage(k, "sum", "s", at="o"),
        """
        kernel f(in x: f32[56], out y: f32[56]):
          compute zero(i in 56):
            y[i] = 0.0
          for o in 14:
            alloc x_packed: f32[6] workgroup
            compute s_pack(i_k in 6):
              s = x[i_k + o * 4 - 1 | 1 <= i_k + o * 4 and i_k + o * 4 < 57]
              x_packed[i_k] = s
            compute sum(i in 4, k in 3):
              s = x_packed[i + k]
              y[i + o * 4] add= s
        """,
    )


def test_stage_for_several_results() -> None:
    becomes(
        """
        kernel f(in x: f32[4, 8], inout least: f32[4], inout most: f32[4]):
          compute f(i in 4, k in 8):
            v = x[i, k]
            least[i] min= v
            most[i] max= v
        """,
        lambda k: stage(k, "f", "v", at="f", shape="dims", layout=["k", ("i", 4)]),
        """
        kernel f(in x: f32[4, 8], inout least: f32[4], inout most: f32[4]):
          alloc x_packed: f32[4, 8] {0:1:32 1:8:4 0:4:1} workgroup
          compute v_pack(i in 4, k in 8):
            v = x[i, k]
            x_packed[i, k] = v
          compute f(i in 4, k in 8):
            v = x_packed[i, k]
            least[i] min= v
            most[i] max= v
        """,
    )


def test_stage_by_dims() -> None:
    becomes(
        BOX,
        lambda k: stage(k, "sum", "s", at="o", shape="dims", name="columns", layout=["k", "i"]),
        """
        kernel f(in x: f32[56], out y: f32[56]):
          compute zero(i in 56):
            y[i] = 0.0
          for o in 14:
            alloc columns: f32[4, 3] {1:3:4 0:4:1} workgroup
            compute s_pack(i in 4, k in 3):
              s = x[i + k + o * 4 - 1 | 1 <= i + k + o * 4 and i + k + o * 4 < 57]
              columns[i, k] = s
            compute sum(i in 4, k in 3):
              s = columns[i, k]
              y[i + o * 4] add= s
        """,
    )


def test_stage_the_exact_box_of_a_tile() -> None:
    naive = convolution(ic=3, ih=64, iw=64, oc=4, kh=7, kw=7, stride=(2, 2), pad=(3, 3))
    kernel = compute_at(naive, "epilogue", {"oh": 16, "ow": 16})
    kernel = stage(kernel, "conv", "s", at="ow_o")
    assert "alloc src_packed: f32[3, 37, 37] workgroup" in to_text(kernel)
    assert "s = src_packed[ic, kh + oh * 2, kw + ow * 2]" in to_text(kernel)
    equal(naive, kernel)


@pytest.mark.parametrize("shape", ["box", "dims"])
@pytest.mark.parametrize("at", [None, "oh_o", "ow_o"])
def test_stage_anywhere_with_tails(shape: str, at: str | None) -> None:
    naive = convolution(mb=2, ic=3, ih=9, iw=8, oc=5, stride=(2, 1), pad=(1, 2))
    kernel = tile(naive, "conv", {"oh": 2, "ow": 3, "ic": 2}, ["oh", "ow", "ic"])
    kernel = stage(kernel, "conv", "s", at=at, shape=shape)  # type: ignore[arg-type]
    kernel = stage(kernel, "conv", "w", at=at, shape=shape)  # type: ignore[arg-type]
    equal(naive, kernel)


def test_stage_into_blocks_with_zero_padding() -> None:
    naive = convolution(ic=5, oc=19)
    blocks = [("oc", None), "kh", "kw", ("ic", None), ("oc", 16), ("ic", 2)]
    kernel = stage(naive, "conv", "w", shape="dims", layout=blocks, row_padding={"kh": 8})
    equal(naive, kernel)
    text = to_text(kernel)
    assert "f32[32, 6, 3, 3] {0:2:888 2:3:296 3:3:96 1:3:32 0:16:2 1:2:1} workgroup" in text
    assert "w = weights[oc, ic, kh, kw | oc < 19 and ic < 5]" in text


@pytest.mark.parametrize(
    ("least", "read", "long"),
    [(0, "i + k", "n + 2"), (1, "i * 2 + k", "n * 2 + 1"), (0, "i * 2", "197"), (0, "i", "n")],
)
def test_stage_what_calls_say_how_long_it_is(least: int, read: str, long: str) -> None:
    """No longer than that, unless it might have less than no elements."""
    naive = parse_kernel(
        f"""
        kernel f(n: s64 in {least}..99, in x: f32[300], out y: f32[n]):
          compute zero(i in n):
            y[i] = 0.0
          compute sum(i in n, k in 3):
            s = x[{read} + 1]
            y[i] add= s
        """
    )
    kernel = stage(naive, "sum", "s", space=Space.GLOBAL)
    assert f"alloc x_packed: f32[{long}]\n" in to_text(kernel)
    for size in range(least, 4):
        equal(bind_scalars(naive, {"n": size}), bind_scalars(kernel, {"n": size}))


def test_stage_keeps_conditions_that_are_no_bounds() -> None:
    naive = parse_kernel(
        """
        kernel f(in x: f32[12], out y: f32[8]):
          compute zero(i in 8):
            y[i] = 0.0
          compute sum(i in 8, k in 3):
            s = x[i + k | i + k < 9 and (i + k * 2) % 3 == 0]
            y[i] add= s
        """
    )
    kernel = stage(naive, "sum", "s")
    equal(naive, kernel)
    assert "s = x[i_k | i_k < 9]" in to_text(kernel)
    assert "s = x_packed[i + k | (i + k * 2) % 3 == 0]" in to_text(kernel)


def test_stage_converts() -> None:
    naive = convolution()
    kernel = stage(naive, "conv", "s", cast=bf16)
    equal(naive, kernel)
    assert "acc[0, oc, oh, ow] add= f32(s) * w" in to_text(kernel)
    half = convolution(dtype="bf16")
    wide = stage(half, "conv", "s", cast=f32)
    equal(half, wide)
    assert "acc[0, oc, oh, ow] add= s * f32(w)" in to_text(wide)


def test_stage_refuses() -> None:
    with pytest.raises(ScheduleError, match=r"no operand 'q'[^$]*choose one of s, w"):
        stage(convolution(), "conv", "q")
    with pytest.raises(ScheduleError, match="'y' is written where it would be copied"):
        stage(
            parse_kernel(
                """
                kernel f(in x: f32[8], inout y: f32[8]):
                  for k in 2:
                    compute f(i in 4):
                      a = x[i + k * 4]
                      b = y[i + 4 - k * 4]
                      y[i + k * 4] = a + b
                """
            ),
            "f",
            "b",
            at="k",
        )
    with pytest.raises(ScheduleError, match="the loop 'oc_o' does not hold the compute 'conv'"):
        stage(tile(convolution(), "zero", {"oc": 2}), "conv", "s", at="oc_o")
    with pytest.raises(ScheduleError, match="the new buffer has no dim 'oh'"):
        stage(convolution(), "conv", "w", shape="dims", layout=["oh"])
    with pytest.raises(ScheduleError, match=r"\('oc', None\) is not the outermost block"):
        stage(convolution(), "conv", "w", shape="dims", layout=[("oc", 4), ("oc", None)])
    folded = parse_kernel(
        """
        kernel f(in x: f32[12], out y: f32[8]):
          compute f(i in 8):
            s = x[i // 2]
            y[i] = s
        """
    )
    with pytest.raises(ScheduleError, match=r'is no box[^$]*shape="dims"'):
        stage(folded, "f", "s")
    equal(folded, stage(folded, "f", "s", shape="dims"))


def test_stage_behind_what_fills_the_buffer() -> None:
    naive = convolution()
    staged = stage(naive, "epilogue", "a")
    names = [s.name for s in walk_stmts(staged.body) if isinstance(s, Compute)]
    assert names == ["zero", "conv", "a_pack", "epilogue"]
    equal(naive, staged)


@pytest.mark.parametrize(
    ("whole", "dim", "place"),
    [
        (None, "min(10 - i_o * 4, 4)", "i + i_o * 4"),
        (True, "4", "i + i_o * 4 | i < min(10 - i_o * 4, 4)"),
    ],
)
def test_stage_result(whole: bool | None, dim: str, place: str) -> None:
    becomes(
        """
        kernel f(in x: f32[8, 10], inout y: f32[10]):
          for k_o in 2:
            for i_o in 3:
              compute sum(i in min(10 - i_o * 4, 4), k in 4):
                v = x[k + k_o * 4, i + i_o * 4]
                y[i + i_o * 4] add= v
        """,
        lambda k: stage_result(k, "sum", at="i_o", whole=whole),
        f"""
        kernel f(in x: f32[8, 10], inout y: f32[10]):
          for k_o in 2:
            for i_o in 3:
              alloc y_tile: f32[4] private
              compute sum_load(i in {dim}):
                value = y[{place}]
                y_tile[i] = value
              compute sum(i in min(10 - i_o * 4, 4), k in 4):
                v = x[k + k_o * 4, i + i_o * 4]
                y_tile[i] add= v
              compute sum_store(i in min(10 - i_o * 4, 4)):
                value = y_tile[i]
                y[i + i_o * 4] = value
        """,
    )


def test_stage_result_of_a_blocked_convolution() -> None:
    naive = convolution(ic=4, oc=6, mb=2)
    kernel = tile(
        naive, "conv", {"ic": 2, "oc": 4, "oh": 2, "ow": 3, "mb": 1}, ["ic", "mb", "oc", "oh", "ow"]
    )
    equal(naive, stage_result(kernel, "conv", at="ow_o", layout=["ow", "oc"]))
    equal(naive, stage_result(kernel, "conv", at="ow_o", space=Space.WORKGROUP))


def test_stage_result_refuses() -> None:
    kernel = tile(matmul(), "mul", {"m": 4, "n": 4})
    with pytest.raises(ScheduleError, match="an extent varies with a loop inside"):
        stage_result(kernel, "mul", at="m_o")
    with pytest.raises(ScheduleError, match="does not hold the compute 'zero'"):
        stage_result(kernel, "zero", at="m_o")


def test_hoist_pack() -> None:
    naive = convolution(ic=5, oc=19)
    kernel = stage(naive, "conv", "w", shape="dims", layout=["oc", "ic", ("oc", 16)])
    pack, main = hoist_pack(kernel, "weights_packed")
    equal(naive, main, pack)
    assert [p.name for p in main.params] == ["src", "weights_packed", "bias", "dst"]
    assert (
        to_text(pack)
        == """\
kernel conv_pack_weights(
    in weights: f32[19, 5, 3, 3] {0:19:45 2:3:15 3:3:5 1:5:1},
    out weights_packed: f32[32, 5, 3, 3] {2:3:480 3:3:160 0:2:80 1:5:16 0:16:1},
):
  compute w_pack(oc in 32, ic in 5, kh in 3, kw in 3):
    w = weights[oc, ic, kh, kw | oc < 19]
    weights_packed[oc, ic, kh, kw] = w"""
    )
    assert same(hoist_pack(kernel, "weights_packed")[1], main)


def test_hoist_pack_refuses() -> None:
    with pytest.raises(ScheduleError, match="no buffer 'weights_packed' is allocated at the top"):
        hoist_pack(convolution(), "weights_packed")
    with pytest.raises(ScheduleError, match="'acc' is not filled from one input"):
        hoist_pack(convolution(), "acc")
    kernel = parse_kernel(
        """
        kernel f(in x: f32[8], out y: f32[8]):
          compute f(i in 8):
            a = x[i]
            b = x[7 - i]
            y[i] = a + b
        """
    )
    with pytest.raises(ScheduleError, match="'x' is still read without packing"):
        hoist_pack(stage(kernel, "f", "a"), "x_packed")


SUMS = """
    kernel f(in x: f32[4, 8], in w: f32[8, 6], in z: f32[6], out y: f32[4, 6]):
      alloc wide: f32[8, 6]
      alloc sums: f32[6]
      alloc twice: f32[6]
      alloc both: f32[6]
      compute copy(k in 8, n in 6):
        wide[k, n] = w[k, n]
      compute clear(n in 6):
        sums[n] = 0.0
      compute add(n in 6, k in 8):
        sums[n] add= w[k, n]
      compute twice(n in 6):
        twice[n] = sums[n] + sums[n]
      compute both(n in 6):
        both[n] = twice[n] * z[n]
      compute start(m in 4, n in 6):
        y[m, n] = both[n] + twice[n]
      compute main(m in 4, n in 6, k in 8):
        y[m, n] add= x[m, k] * wide[k, n]
"""


def test_hoist_pack_takes_all_that_is_made_of_the_input_alone() -> None:
    """``sums`` is no longer needed then, ``both`` is made of something else, too."""
    naive = parse_kernel(SUMS)
    pack, main = hoist_pack(naive, "wide")
    equal(naive, main, pack)
    assert [p.name for p in main.params] == ["x", "wide", "twice", "z", "y"]
    assert (
        to_text(pack)
        == """\
kernel f_pack_w(in w: f32[8, 6], out wide: f32[8, 6], out twice: f32[6]):
  alloc sums: f32[6]
  compute copy(k in 8, n in 6):
    wide[k, n] = w[k, n]
  compute clear(n in 6):
    sums[n] = 0.0
  compute add(n in 6, k in 8):
    sums[n] add= w[k, n]
  compute twice(n in 6):
    twice[n] = sums[n] + sums[n]"""
    )
    # The other way round, what is copied is taken along.
    pack, main = hoist_pack(naive, "sums")
    equal(naive, main, pack)
    assert [p.name for p in pack.params] == ["w", "sums", "wide", "twice"]


def test_hoist_pack_leaves_what_is_written_again() -> None:
    """A buffer that is read before all of it is made: its second contents come too late."""
    again = """
      compute again(n in 6):
        twice[n] = sums[n]
      compute finish(m in 4, n in 6):
        y[m, n] add= twice[n]
"""
    naive = parse_kernel(SUMS.rstrip() + again.rstrip())
    pack, main = hoist_pack(naive, "wide")
    equal(naive, main, pack)
    assert [p.name for p in main.params] == ["x", "wide", "sums", "z", "y"]
