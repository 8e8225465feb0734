"""Convolutions on instructions on matrices: which dims they reduce, how they store."""

from __future__ import annotations

import re

import pytest

import tilewright as tw
from assembly import assembled
from staged import check_races
from sweeps import in_turns
from tilewright.errors import ScheduleError
from tilewright.ir import to_text
from tilewright.ir.expr import const
from tilewright.ir.stmt import For
from tilewright.ir.visit import walk_stmts
from tilewright.machines import nvidia
from tilewright.ops.op import Op
from tilewright.passes import run
from tilewright.recipes import choose
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.start import Start
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.testing.check import check_op
from workgroup_configs import with_fields

MACHINE = nvidia.machine("sm_80")


def _convolution(direction: str, layout: str, problem: str) -> Op:
    return tw.convolution(problem, direction=direction, dtype="bf16", src=layout, dst=layout)


def _chosen(op: Op) -> WorkgroupConfig:
    op = op.resolved()
    config, _ = choose.choose(Start.of(op), MACHINE)
    assert isinstance(config, WorkgroupConfig)
    return config


# Reduced dims as one.

FIRST = "mb1ic3ih17oc32oh8kh3sh2ph1"
JOINED: dict[str, tuple[Op, tuple[str, ...]]] = {
    "enough channels": (_convolution("fwd", "nhwc", "mb1ic32ih8oc64oh8kh3ph1"), ()),
    "three channels": (_convolution("fwd", "nhwc", FIRST), ("kh", "kw", "ic")),
    "three planes": (_convolution("fwd", "nchw", FIRST), ("ic", "kh", "kw")),
    "small images": (_convolution("bwd_w", "nhwc", "mb4ic32ih7oc32oh7kh3ph1"), ("mb", "oh", "ow")),
    "one dim": (tw.matmul("64x64:64x64", dtype="bf16"), ()),
    "no such products": (tw.convolution(FIRST, dtype="f32", src="nhwc", dst="nhwc"), ()),
}


@pytest.mark.parametrize("name", JOINED)
def test_reduced_dims_are_one_where_that_pads_less(name: str) -> None:
    op, expected = JOINED[name]
    assert _chosen(op).reduction.fused == expected


def test_the_products_of_a_first_layer() -> None:
    op = _convolution("fwd", "nhwc", "mb1ic3ih16oc16oh8kh7sh2ph3").resolved()
    _, scheduled = choose.choose(Start.of(op), MACHINE)
    kernel = scheduled.stages["tensorized"]
    loops = [s for s in walk_stmts(kernel.body) if isinstance(s, For) and s.var.name == "step"]
    # 147 elements to add up are five steps of 32; taps or channels alone, 21 or 49 of 16.
    assert [loop.extent for loop in loops] == [const(5)]


@pytest.mark.parametrize("fused", [("kh", "kw"), ("kw", "ic"), ("ic", "kw", "kh")], ids=str)
def test_any_reduced_dims_may_be_one(fused: tuple[str, ...]) -> None:
    op = _convolution("fwd", "nhwc", "mb1ic6ih6oc32oh6kh3ph1")
    k = "_".join(fused)
    config = with_fields(_chosen(op), fused=fused, k=k, step={k: 16}, slices=(), reduce_order=(k,))
    check_races(op, MACHINE, config)


def test_joined_dims_are_reduced() -> None:
    op = _convolution("fwd", "nhwc", "mb1ic32ih8oc64oh8kh3ph1").resolved()
    config = _chosen(op)
    for fused, message in (
        (("kh", "oc"), "'oc' is no reduced dim"),
        (("kh",), "one dim is one already"),
    ):
        with pytest.raises(ScheduleError, match=message):
            choose.schedule(Start.of(op), MACHINE, with_fields(config, fused=fused))


# Tiles of the result through shared memory.


def _stored(op: Op, config: WorkgroupConfig) -> float:
    """Which part of what the store of the result moves is needed."""
    reports = check_op(op, MACHINE, config=config)
    assert [issue for report in reports for issue in report.issues] == []
    notes = [note for report in reports for note in report.notes]
    (result,) = (n.efficiency for n in notes if n.buffer == "dst" and n.access == "store")
    return result


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_lanes_store_rows_together(layout: str) -> None:
    """A lane holds pairs, 4 bytes: four lanes fill half a segment of global memory."""
    op = _convolution("fwd", layout, "mb1ic16ih8oc64oh8kh3ph1").resolved()
    config = _chosen(op)
    assert config.storing.tile and config.storing.padding == 8
    assert _stored(op, with_fields(config, epilogue_tile={})) == 0.5
    assert _stored(op, config) == 1.0


def test_lanes_store_whole_segments_directly() -> None:
    """Pairs of floats are 8 bytes: four lanes fill a segment."""
    op = tw.convolution("mb1ic16ih8oc64oh8kh3ph1", dtype="bf16:bf16:f32", src="nhwc", dst="nhwc")
    config = _chosen(op)
    assert config.product.k and not config.storing.tile


@pytest.mark.parametrize(("layout", "pieces"), in_turns(2, ["nhwc", "nchw"], [8, 16, 32]))
def test_tiles_go_through_in_pieces(layout: str, pieces: int) -> None:
    op = tw.convolution(
        "mb2ic16ih7oc40oh7kh3ph1",
        dtype="bf16",
        src=layout,
        dst=layout,
        epilogue=[tw.sum(), tw.relu()],
    )
    config = _chosen(op)
    rows = next(d for d in config.tile.item if d != config.product.lanes)
    tiles = {config.product.lanes: 32, rows: 32}
    config = with_fields(
        config, group={d: 64 for d in tiles}, item=tiles, epilogue_tile={rows: pieces}
    )
    stages = check_races(op, MACHINE, config).stages
    text = to_text(stages["epilogue"])
    assert (f"unrolled for {rows}_o" in text) == (pieces < 32)


def test_pieces_of_which_lanes_hold_unlike_parts() -> None:
    op = _convolution("fwd", "nhwc", "mb1ic16ih8oc64oh8kh1").resolved()
    config = _chosen(op)
    config = with_fields(config, epilogue_tile={d: min(4, n) for d, n in config.tile.item.items()})
    with pytest.raises(
        ScheduleError, match="are no piece of 'acc' of which all lanes hold as much"
    ):
        choose.schedule(Start.of(op), MACHINE, config)


# Banks of shared memory.


def _turns(op: Op, config: WorkgroupConfig) -> dict[tuple[str, str], float]:
    """Turns of the banks per access of the operands' tiles: by the copies, and by ldmatrix."""
    reports = check_op(op, MACHINE, config=config)
    assert [issue for report in reports for issue in report.issues] == []
    notes = [note for report in reports for note in report.notes]
    return {(n.buffer, n.access): n.conflicts for n in notes if "_packed" in n.buffer}


def test_loads_of_matrices_are_counted_by_eight_rows() -> None:
    """Rows of 64 bytes: of eight in a column, every other one is in the same banks. Of 128 bytes,
    all are."""
    op = tw.matmul("64x64:64x64", dtype="bf16").resolved()
    config = with_fields(
        _chosen(op),
        group={"m": 64, "n": 64},
        item={"m": 32, "n": 32},
        step={"k": 32},
        slices=(),
        padding={},
        swizzle={},
    )
    plain = _turns(op, config)
    assert plain["src_packed", "load"] == 4 and plain["weights_packed2", "load"] == 8
    for changed in (
        {"padding": {"a": 8, "b": 8}},
        {"swizzle": {"a": (2, 3, 3), "b": (3, 3, 3)}},
    ):
        apart = _turns(op, with_fields(config, **changed))
        assert apart["src_packed", "load"] == apart["weights_packed2", "load"] == 1
    half = _turns(op, with_fields(config, swizzle={"a": (1, 3, 3), "b": (3, 3, 3)}))
    assert half["src_packed", "load"] == 2


@pytest.mark.parametrize(
    ("direction", "layout"), in_turns(2, ["fwd", "bwd_d", "bwd_w"], ["nhwc", "nchw"])
)
def test_tiles_for_matrices_have_no_conflicts(direction: str, layout: str) -> None:
    op = _convolution(direction, layout, "mb2ic32ih8oc64oh8kh3ph1").resolved()
    config = _chosen(op)
    turns = _turns(op, config)
    assert turns["src_packed" if direction != "bwd_d" else "dst_packed", "load"] == 1
    if layout == "nhwc":
        assert set(turns.values()) == {1}


def test_swizzled_rows_are_loaded_as_matrices() -> None:
    op = _convolution("fwd", "nhwc", "mb2ic32ih8oc64oh8kh3ph1")
    config = _chosen(op)
    # No memory between rows, where that would be an eighth of a tile or more.
    assert config.staging.swizzle.keys() == {"a", "b"} and config.staging.swizzle["a"] == (2, 3, 3)
    assert not config.staging.padding
    text = to_text(check_races(op, MACHINE, config).kernel)
    assert "ldmatrix_m16k16_bf16>" in text and "ldmatrix_k16n16_bf16_trans>" in text
    assert "^2:3:3}" in text
    # A swizzle of shorter runs would cut rows apart: no such instruction loads them.
    config = with_fields(config, swizzle={**config.staging.swizzle, "a": (2, 2, 3)})
    assert "ldmatrix_m16k16_bf16>" not in to_text(check_races(op, MACHINE, config).kernel)


# Pixels of an image, which are neighbours in nchw, though batch, height and width are one dim.


@pytest.mark.parametrize(
    ("size", "copied", "stored"),
    [
        (8, "], 16;", "st.global.v4.b32"),
        (12, "], 16;", "st.global.v2.b32"),
        (7, "", "st.global.b16"),
    ],
)
def test_pixels_are_moved_in_runs(size: int, copied: str, stored: str) -> None:
    """Copies as long as divide an image: 8, 8, 1; stores as long as divide a row: 8, 4, 1."""
    op = tw.convolution(
        f"mb4ic32ih{size}oc64kh1",
        dtype="bf16",
        src="nchw",
        dst="nchw",
        epilogue=[tw.bias(), tw.relu()],
    ).resolved()
    tiles = {"mb_oh_ow": 64, "oc": 64}
    config = with_fields(_chosen(op), group=tiles, item={"mb_oh_ow": 32, "oc": 32}, fill="async")
    result = check_races(op, MACHINE, with_fields(config, stages=2, step={"ic": 16}))
    text = to_ptx(lower_launches(run(result.kernel), MACHINE).text, "sm_80")
    copies = [line for line in text.splitlines() if "cp.async.c" in line and "group" not in line]
    # Weights have runs of 8; half of the copies are theirs.
    own = [line for line in copies if line.endswith(copied)] if copied else []
    assert len(own) >= len(copies) / 2 or not copied
    assert ("ld.global.nc.b16" in text) == (not copied)
    assert set(re.findall(r"st\.global\S*", text)) == {stored}
    # Fragments of A are turned as they are loaded.
    assert ("ldmatrix_k16n16_bf16_trans" in to_text(result.kernel)) == bool(copied)


def test_pixels_need_no_quotients() -> None:
    """Where the rows of all images are one array, no digit of a number is computed."""
    op = tw.convolution("mb4ic32ih12oc64kh1", dtype="bf16", src="nhwc", dst="nhwc").resolved()
    tiles = {"mb_oh_ow": 64, "oc": 64}
    config = with_fields(_chosen(op), group=tiles, item={"mb_oh_ow": 32, "oc": 32})
    result = check_races(op, MACHINE, config)
    text = to_ptx(lower_launches(run(result.kernel), MACHINE).text, "sm_80")
    assert "mul.hi" not in text and "div" not in text and "rem" not in text


# Tiles of which a condition leaves one column, or one row.


@pytest.mark.parametrize(
    ("problem", "level"),
    in_turns(2, ["177x72:72x2", "1x72:72x90", "2x72:72x90", "33x72:72x9"], ["sm_80", "sm_90a"]),
)
def test_narrow_results_stay_in_their_lanes(problem: str, level: str) -> None:
    """``lane % 4 * 2 < 2`` makes the digit zero: it is still the lane's."""
    op = tw.matmul(problem, dtype="f16:f16:f32", src="ba", weights="ba").resolved()
    machine = nvidia.machine(level)
    scheduled = check_races(op, machine)
    assembled(to_ptx(lower_launches(run(scheduled.kernel), machine).text, level), level)
