"""Every stage of a compiled kernel prints, parses back, verifies, and computes what the naive
kernel does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

import tilewright as tw
from staged import check_schedule
from sweeps import in_turns
from tilewright.ir import to_text
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.registry import find_target

CASES: dict[str, Callable[[], Op]] = {
    "conv f32 nhwc": lambda: tw.convolution(
        "ic8ih7oc20kh3ph1", src="nhwc", dst="nhwc", epilogue=[tw.bias(), tw.relu()]
    ),
    "conv f32 nchw": lambda: tw.convolution("ic3ih9oc6kh3sh2ph1", src="nchw", dst="nchw"),
    "conv f32 blocked": lambda: tw.convolution(
        "ic18ih5oc17kh3ph1", src="nChw16c", dst="nChw16c", weights="OIhw16i16o"
    ),
    "conv bf16": lambda: tw.convolution(
        "ic16ih6oc24kh3ph1", dtype="bf16", src="nhwc", dst="nhwc", epilogue=[tw.add("residual")]
    ),
    "conv bf16 of odd channels in groups": lambda: tw.convolution(
        "g3ic51ih5oc51kh1", dtype="bf16", src="nhwc", dst="nhwc"
    ),
    "conv u8s8": lambda: tw.convolution(
        "ic12ih6oc18kh3ph1", dtype="u8:s8:u8", src="nhwc", dst="nhwc", epilogue=[tw.relu()]
    ),
    "conv s8s8 tails": lambda: tw.convolution(
        "ic5ih6oc7kh2dh1", dtype="s8:s8:s32", src="nhwc", dst="nhwc"
    ),
    "conv f64 1d": lambda: tw.convolution("ic4iw11oc5kw3pw1", dtype="f64", src="ncw", dst="ncw"),
    "conv f32 3d": lambda: tw.convolution("ic3id4ih4iw4oc4kd3kh3kw3pd1ph1pw1"),
    "conv data f32": lambda: tw.convolution(
        "ic10ih7oc6kh3sh2ph1", direction="bwd_data", src="nhwc", dst="nhwc"
    ),
    "conv data bf16": lambda: tw.convolution(
        "ic8ih6oc16kh3ph1", direction="bwd_data", dtype="bf16", src="nhwc", dst="nhwc"
    ),
    "conv weights f32": lambda: tw.convolution(
        "mb2ic5ih6oc18kh3ph1", direction="bwd_weights", src="nhwc", dst="nhwc"
    ),
    "conv weights and bias bf16": lambda: tw.convolution(
        "mb2ic6ih5oc8kh3ph1", direction="BWD_WB", dtype="bf16", src="nhwc", dst="nhwc"
    ),
    "conv groups": lambda: tw.convolution("g2ic6ih6oc10kh3ph1", src="nhwc", dst="nhwc"),
    "conv depthwise": lambda: tw.convolution("g20ic20ih7oc20kh3sh2ph1", src="nhwc", dst="nhwc"),
    "conv depthwise data": lambda: tw.convolution(
        "g18ic18ih6oc18kh3ph1", direction="bwd_data", src="nhwc", dst="nhwc"
    ),
    "conv depthwise, plain, two tiles of lanes": lambda: tw.convolution(
        "g8mb1ic8ih8iw56oc8oh8ow56kh3kw3ph1pw1", src="nchw", dst="nchw"
    ),
    "matmul f32": lambda: tw.matmul("13x20:20x37"),
    "matmul bf16 batched, transposed": lambda: tw.matmul(
        "3x5x8:3x8x18", dtype="bf16", weights="acb"
    ),
    "matmul u8s8": lambda: tw.matmul("6x16:16x20", dtype="u8:s8:s32", epilogue=[tw.bias()]),
    "matmul u8s4": lambda: tw.matmul("6x16:16x20", dtype="u8:s4:s32"),
    "matmul of weights in u4": lambda: tw.matmul(
        "6x15:15x20", dtype="bf16:u4:bf16", epilogue=[tw.scale("weights", policy="per_oc")]
    ),
    "conv of weights in s4": lambda: tw.convolution(
        "ic5ih6oc18kh3ph1", dtype="f32:s4:f32", src="nhwc", dst="nhwc"
    ),
    "max pool": lambda: tw.pool("ic18ih7kh3sh2ph1", src="nhwc"),
    "average pool": lambda: tw.pool("ic5ih7kh3sh2ph1", src="nchw", algorithm="avg_p"),
    "pool backward": lambda: tw.pool(
        "ic6ih6oh3kh2sh2", direction="bwd_data", src="nhwc", algorithm="avg_np"
    ),
    "reduce": lambda: tw.reduce("4x5x18:4x1x18", algorithm="sum"),
    "elementwise": lambda: tw.elementwise("3x5x19", "gelu_erf"),
    "binary": lambda: tw.elementwise("3x4x19:3x1x19", "mul"),
    "reorder": lambda: tw.reorder("2x18x3x5", src="abcd", dst="aBcd16b"),
    "reorder with another type": lambda: tw.reorder("7x19", src="ab", dst="ba", dtype="f32:bf16"),
}


def scheduled(op: Op, level: str = "avx512_bf16") -> KernelSchedule:
    """The schedule that compiling for a level of x86 would choose; it need not run here."""
    return scheduled_for(op, f"x86:{level}")


def scheduled_for(op: Op, target: str) -> KernelSchedule:
    """The schedule that compiling for ``target`` would choose."""
    return choose.choose(Start.of(op), find_target(target).machine)[1]


@pytest.mark.parametrize("name", in_turns(2, CASES))
def test_every_stage_computes_the_same(name: str) -> None:
    check_stages(name, "avx512_bf16")


@pytest.mark.parametrize(
    ("name", "level"),
    in_turns(
        5,
        ["conv f32 nhwc", "conv bf16", "conv u8s8", "conv data f32", "matmul f32", "reorder"],
        ["sse42", "avx2", "avx512"],
    ),
)
def test_stages_for_older_machines(name: str, level: str) -> None:
    check_stages(name, level)


@pytest.mark.parametrize(
    "name",
    [
        "conv f32 nhwc",
        "conv f32 nchw",
        "conv f32 blocked",
        "conv u8s8",
        "conv data f32",
        "conv weights f32",
        "conv groups",
        "conv depthwise",
        "matmul f32",
        "max pool",
        "reduce",
        "reorder",
    ],
)
def test_stages_for_gpus(name: str) -> None:
    schedule = scheduled_for(CASES[name]().resolved(), "spirv:gpu")
    check_schedule(schedule)
    assert "workgroup for" in to_text(schedule.kernel)


def check_stages(name: str, level: str) -> None:
    check_schedule(scheduled(CASES[name]().resolved(), level))


def test_an_intermediate_stage_that_changes_nothing_is_left_out() -> None:
    stages = list(scheduled(tw.reorder("3x5").resolved()).stages.values())
    assert all(a is not b for a, b in pairwise(stages))
