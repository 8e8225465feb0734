"""Convolutions whose channels lie in blocks of four, N(C/4)HW4: copied by blocks, reduced along
channels, stored by blocks; and which dim is reduced in other layouts."""

from __future__ import annotations

import pytest

import tilewright as tw
from assembly import assembled
from staged import check_races
from sweeps import in_turns
from tilewright.machines import nvidia, x86
from tilewright.ops.op import Op
from tilewright.passes import run
from tilewright.recipes import choose
from tilewright.recipes.config import ContractionConfig, WorkgroupConfig
from tilewright.recipes.start import Start
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.testing.check import check_op

MACHINE = nvidia.machine("sm_70")
BLOCKED = "N(C/4)HW4"
DIRECTIONS = ("fwd", "bwd_d", "bwd_w")
TYPES = ("f16", "f32", "s8:s8:s32")


def _convolution(problem: str, types: str, direction: str = "fwd", layout: str = BLOCKED) -> Op:
    op = tw.convolution(problem, dtype=types, direction=direction, src=layout, dst=layout)
    return op.resolved()


def _chosen(op: Op) -> WorkgroupConfig:
    config, _ = choose.choose(Start.of(op), MACHINE)
    assert isinstance(config, WorkgroupConfig)
    return config


@pytest.mark.parametrize("types", ["f16", "s8:s8:s32"])
def test_channels_in_blocks_are_chosen_for_as_channels_last(types: str) -> None:
    """What multiplies, along which dim, in which tiles."""
    chosen = [
        _chosen(_convolution("mb8ic64ih56oc64kh3ph1", types, layout=layout))
        for layout in (BLOCKED, "nhwc")
    ]
    assert chosen[0].product == chosen[1].product
    assert chosen[0].tile == chosen[1].tile and chosen[0].reduction == chosen[1].reduction


@pytest.mark.parametrize("types", ["f16", "s8:s8:s32"])
def test_steps_have_several_products(types: str) -> None:
    """Channels first, taps along a row are neighbours; but there are three of them, no more than
    one product adds up."""
    config = _chosen(_convolution("mb8ic64ih56oc64kh3ph1", types, layout="nchw"))
    assert config.product.k == "ic" and config.reduction.step == {"ic": 32}


@pytest.mark.parametrize(
    ("types", "access"), {"f16": "v2.b32", "f32": "v4.b32", "s8:s8:s32": "b32"}.items()
)
def test_a_block_is_one_access(types: str, access: str) -> None:
    """Loads of the input are of a whole block each, and the kernel spills nothing."""
    _, scheduled = choose.choose(Start.of(_convolution("mb8ic64ih56oc64kh3ph1", types)), MACHINE)
    ptx = to_ptx(lower_launches(run(scheduled.kernel), MACHINE).text, "sm_70")
    loads = {line.split()[0] for line in ptx.splitlines() if "ld.global" in line}
    # Packed weights are loaded by 16 bytes.
    assert loads <= {f"ld.global.nc.{access}", "ld.global.nc.v4.b32"} and len(loads) <= 2
    assembled(ptx, "sm_70")


@pytest.mark.parametrize("types", ["f16", "f32"])
def test_copies_of_blocks_coalesce(types: str) -> None:
    """Each segment of global memory that a subgroup moves is needed as a whole, but at borders."""
    reports = check_op(_convolution("mb1ic32ih8oc64kh1", types), MACHINE)
    assert [issue for report in reports for issue in report.issues] == []
    notes = [note for report in reports for note in report.notes]
    result = {(n.buffer, n.access): n.efficiency for n in notes if n.efficiency}
    assert result["src", "load"] == 1.0 and result["dst", "store"] == 1.0


@pytest.mark.parametrize(
    ("types", "layout", "copied"),
    [("u8:s8:u8", BLOCKED, False), ("bf16", BLOCKED, False), ("u8:s8:u8", "aBcd2b", True)],
)
def test_dot_products_take_groups_as_they_lie(types: str, layout: str, copied: bool) -> None:
    """Four neighbours that are added up lie in one block of four, in two of two."""
    op = _convolution("mb1ic16ih6oc32kh3ph1", types, layout=layout)
    config, _ = choose.choose(Start.of(op), x86.machine("avx512_bf16", cores=1))
    assert isinstance(config, ContractionConfig)
    assert config.k == "ic" and config.pack_a is copied


@pytest.mark.parametrize(("types", "direction"), in_turns(3, TYPES, DIRECTIONS))
def test_all_stages_are_right(types: str, direction: str) -> None:
    """Of channels, blocks may be cut off, and tiles."""
    check_races(_convolution("mb1ic12ih5oc12kh3ph1", types, direction), MACHINE)
