"""pad with what makes a result, and compute_at on levels: golden texts, results, refusals."""

from __future__ import annotations

import pytest

from schedule_cases import becomes, convolution, equal, matmul, softmax, tensorized
from tilewright.errors import ScheduleError
from tilewright.ir import Kernel, LoopKind, parse_kernel, to_text, verify
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.tile import tile

GRID, WORKGROUP = LoopKind.GRID, LoopKind.WORKGROUP


# pad

SUM = """
    kernel f(in x: f32[10, 5], out dst: f32[10]):
      alloc acc: f32[10]
      compute zero(i in 10):
        acc[i] = 0.0
      compute sum(i in 10, k in 5):
        v = x[i, k]
        acc[i] add= v
      compute store(i in 10):
        a = acc[i]
        dst[i] = a
"""


def test_pad() -> None:
    becomes(
        SUM,
        lambda k: pad(k, "store", {"i": 12}),
        """
        kernel f(in x: f32[10, 5], out dst: f32[10]):
          alloc acc: f32[12]
          compute zero(i in 12):
            acc[i] = 0.0
          compute sum(i in 12, k in 5):
            v = x[i, k | i < 10]
            acc[i] add= v
          compute store(i in 12):
            a = acc[i]
            dst[i | i < 10] = a
        """,
    )


def test_pad_leaves_buffers_that_are_reached_otherwise() -> None:
    becomes(
        """
        kernel f(in x: f32[10, 3], out dst: f32[10, 3]):
          alloc acc: f32[3, 10]
          alloc other: f32[10]
          compute one(j in 10):
            other[j] = 2.0
          compute make(i in 10, j in 3):
            v = x[i, j]
            acc[j, i] = v
          compute store(i in 10, j in 3):
            a = acc[j, i]
            b = other[9 - i]
            c = acc[j, i]
            dst[i, j] = a * b + c
        """,
        lambda k: pad(k, "store", {"i": 12, "j": 4}),
        """
        kernel f(in x: f32[10, 3], out dst: f32[10, 3]):
          alloc acc: f32[4, 12]
          alloc other: f32[10]
          compute one(j in 10):
            other[j] = 2.0
          compute make(i in 12, j in 4):
            v = x[i, j | i < 10 and j < 3]
            acc[j, i] = v
          compute store(i in 12, j in 4):
            a = acc[j, i]
            b = other[9 - i | i < 10]
            c = acc[j, i]
            dst[i, j | i < 10 and j < 3] = a * b + c
        """,
    )


@pytest.mark.parametrize(
    "making",
    [
        "compute make(j in 4):\n    t[j] = 2.0",  # by another name
        "for i in 4:\n    t[i] = 2.0",  # by stores
        "compute make(i in 4):\n    t[3 - i] = 2.0",  # in another order
    ],
)
def test_pad_reads_what_does_not_grow_under_a_mask(making: str) -> None:
    naive = parse_kernel(
        f"""
kernel f(in x: f32[4], out y: f32[4]):
  alloc t: f32[4]
  {making}
  compute store(i in 4):
    a = t[i]
    b = x[i]
    y[i] = a + b
"""
    )
    kernel = pad(naive, "store", {"i": 6})
    equal(naive, kernel)
    assert "a = t[i | i < 4]" in to_text(kernel)


def test_pad_a_chain_masks_its_middle() -> None:
    naive = softmax()
    kernel = pad(naive, "scale", {"r": 8, "c": 6})
    equal(naive, kernel)
    assert "y[r, c | r < 5] = " in to_text(kernel)


def test_pad_convolutions_to_whole_tiles() -> None:
    naive = convolution(mb=2, ih=7, iw=5, oc=5, stride=(2, 1))
    kernel = pad(naive, "epilogue", {"mb": 2, "oc": 8, "oh": 4, "ow": 6})
    equal(naive, kernel)
    assert "alloc acc: f32[2, 8, 4, 6]" in to_text(kernel)
    assert pad(kernel, "epilogue", {"oc": 8}) is kernel


def test_pad_refuses() -> None:
    naive = parse_kernel("\n".join(line[4:] for line in SUM.splitlines()))
    with pytest.raises(ScheduleError, match=r"'store' has no dim 'q'"):
        pad(naive, "store", {"q": 12})
    with pytest.raises(ScheduleError, match="'i' is longer than 9"):
        pad(naive, "store", {"i": 9})
    with pytest.raises(ScheduleError, match="'i' is longer than 3"):
        pad(tile(naive, "store", {"i": 4}), "store", {"i": 3})
    with pytest.raises(ScheduleError, match="there is no compute 'q'"):
        pad(naive, "q", {"i": 9})
    most = parse_kernel(to_text(naive).replace("add=", "max="))
    with pytest.raises(ScheduleError, match="the surplus of 'k' would count"):
        pad(most, "sum", {"k": 8})
    longer = parse_kernel(to_text(naive).replace("zero(i in 10)", "zero(i in 8)"))
    with pytest.raises(
        ScheduleError,
        match=r"its 'i' is not as long as that of 'store'[^$]*before computes are tiled",
    ):
        pad(longer, "store", {"i": 12})
    with pytest.raises(ScheduleError, match="an instruction has its dims"):
        pad(tensorized(naive), "store", {"i": 12})


# compute_at on levels

STORE = """
    kernel f(in x: f32[128], out dst: f32[128]):
      alloc acc: f32[128]
      compute init(m in 128):
        v = x[m]
        acc[m] = v
      compute store(m in 128):
        a = acc[m]
        dst[m] = a
"""


def _store() -> Kernel:
    return parse_kernel("\n".join(line[4:] for line in STORE.splitlines()))


def test_distribute() -> None:
    becomes(
        STORE,
        lambda k: compute_at(k, "store", [(GRID, {"m": 64}), (WORKGROUP, {"m": 4})]),
        """
        kernel f(in x: f32[128], out dst: f32[128]):
          grid for m_o in 2:
            workgroup for m_o2 in 16:
              alloc acc: f32[4] private
              compute init(m in 4):
                v = x[m + m_o * 64 + m_o2 * 4]
                acc[m] = v
              compute store(m in 4):
                a = acc[m]
                dst[m + m_o * 64 + m_o2 * 4] = a
        """,
    )


def test_distribute_a_level_that_holds_all_and_one_in_order() -> None:
    kernel = compute_at(
        _store(), "store", [(GRID, {"m": 128}), (LoopKind.SERIAL, {"m": 32}), (WORKGROUP, {"m": 4})]
    )
    assert "\n  for m_o in 4:\n    workgroup for m_o2 in 8:\n" in to_text(kernel)
    verify(kernel)
    equal(_store(), kernel)


def test_distribute_leaves_loops_that_are_there() -> None:
    kernel = tile(matmul(8, 12, 5), "mul", {"m": 4})
    kernel = compute_at(kernel, "mul", [(GRID, {"n": 6}), (WORKGROUP, {"n": 2})], producers=[])
    text = to_text(kernel)
    assert "\n  for m_o in 2:\n    grid for n_o in 2:\n      workgroup for n_o2 in 3:\n" in text
    equal(matmul(8, 12, 5), kernel)


@pytest.mark.parametrize("order", [("m", "oc"), ("oc", "m")])
@pytest.mark.parametrize("channels_last", [True, False])
def test_distribute_dims_made_one(channels_last: bool, order: tuple[str, str]) -> None:
    naive = convolution(mb=2, ih=5, iw=6, oc=5, channels_last=channels_last)
    kernel = fuse_dims(naive, ["mb", "oh", "ow"], "m", digits=True)
    kernel = pad(kernel, "epilogue", {"m": 64, "oc": 8})
    levels = [(GRID, {"m": 16, "oc": 4}), (WORKGROUP, {"m": 4, "oc": 2})]
    kernel = compute_at(kernel, "epilogue", levels, order, storage=("m", "oc"))
    equal(naive, kernel)
    outer, inner = order
    loops = [
        line.split(" in ")[0].strip() for line in to_text(kernel).splitlines() if "for " in line
    ]
    assert loops == [
        f"grid for {outer}_o",
        f"grid for {inner}_o",
        f"workgroup for {outer}_o2",
        f"workgroup for {inner}_o2",
    ]
    assert "alloc acc: f32[4, 2] private" in to_text(kernel)


def test_distribute_refuses() -> None:
    with pytest.raises(ScheduleError, match="there is no compute 'q'"):
        compute_at(_store(), "q", [(GRID, {"m": 4})])
    with pytest.raises(ScheduleError, match="no dim 'q'"):
        compute_at(_store(), "store", [(GRID, {"q": 4})])
    with pytest.raises(ScheduleError, match=r"compute_at: the iterations of 'k_o' may write the s"):
        compute_at(matmul(), "mul", [(GRID, {"k": 2})], producers=[])
    levels = [(WORKGROUP, {"m": 16}), (GRID, {"m": 4})]
    with pytest.raises(ScheduleError, match="compute_at: 'm_o2' cannot be grid here"):
        compute_at(_store(), "store", levels)
    with pytest.raises(ScheduleError, match="the extent of 'm_o2' is not constant"):
        compute_at(_store(), "store", [(GRID, {"m": 48}), (WORKGROUP, {"m": 4})])


def test_distribute_refuses_levels_of_nothing() -> None:
    with pytest.raises(ScheduleError, match=r"compute_at: sizes\['m'\] is 0"):
        compute_at(_store(), "store", [(GRID, {"m": 64}), (WORKGROUP, {"m": 0})])
