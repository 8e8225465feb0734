"""The default configs for NVIDIA GPUs: assembled without spills, and right in the interpreter."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import tilewright as tw
from assembly import assembled
from sweeps import in_turns
from tilewright.dtypes import dtype
from tilewright.ir.stmt import Kernel
from tilewright.machines import nvidia
from tilewright.ops.op import Op
from tilewright.passes import run
from tilewright.problems import parse, parse_direction
from tilewright.recipes import choose
from tilewright.recipes.config import Config, WorkgroupConfig
from tilewright.recipes.start import Start
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.testing.case import Case
from tilewright.testing.check import check_op
from tilewright.testing.interpreted import InterpretedKernel
from tilewright.testing.verify import Status, verify


def case(words: str) -> Case:
    """A case from ``driver types [direction] descriptor``."""
    driver, types, *rest, descriptor = words.split()
    return Case(
        parse(driver, descriptor),
        tuple(dtype(name) for name in types.split(":")),
        direction=parse_direction(rest[0] if rest else "FWD_D"),
    )


# Large enough that workgroups share memory, some with tails.
CASES = (
    "conv f32:f32:f32 FWD_B mb2ic16ih14oc40kh3ph1",
    "conv f32:f32:f32 BWD_D mb2ic16ih9oc24kh3ph1sh2",
    "conv f32:f32:f32 BWD_WB mb2ic16ih9oc24kh3ph1",
    "conv f16:f16:f16 FWD_B mb2ic16ih14oc40kh3ph1",
    "conv bf16:bf16:f32 FWD_B mb1ic3ih20oc16kh7sh2ph3",
    "conv bf16:bf16:bf16 BWD_D mb2ic16ih7oc24kh3ph1",
    "conv bf16:bf16:bf16 BWD_WB mb2ic16ih7oc24kh3ph1",
    "conv s8:s8:s32 FWD_B mb1ic32ih7oc32kh3ph1",
    "matmul f32:f32:f32 100x60:60x70",
    "matmul f16:f16:f32 3x20x33:3x33x64",
    "matmul s8:s8:s32 64x64:64x64",
    "pool bf16:bf16 mb2ic16ih14oh7kh2sh2ph0",
    "reduce f32:f32 8x32x14x14:1x32x1x1",
    "eltwise f16:f16 3x17x9x9",
    "reorder s8:f32 8x32x14x14",
)
LEVELS = ("sm_70", "sm_80", "sm_90a")


@cache
def scheduled(words: str, level: str) -> tuple[Config, tuple[Kernel, ...]]:
    """The default config, and the kernels that a target gets: the main one first."""
    op: Op = case(words).op().resolved()
    config, result = choose.choose(Start.of(op), nvidia.machine(level))
    return config, tuple(run(kernel) for kernel in (result.kernel, *result.packed.values()))


@pytest.mark.parametrize(("words", "level"), in_turns(7, CASES, LEVELS))
def test_default_configs_are_assembled(words: str, level: str) -> None:
    _, kernels = scheduled(words, level)
    assert kernels
    for kernel in kernels:
        ptx = to_ptx(lower_launches(kernel, nvidia.machine(level)).text, level)
        assert f".target {level}\n" in ptx
        assembled(ptx, level)


@pytest.mark.parametrize(("words", "level"), in_turns(13, CASES, LEVELS[:2]))
def test_the_kernels_are_right_in_the_interpreter(words: str, level: str) -> None:
    machine = nvidia.machine(level)
    config, _ = scheduled(words, level)
    verdict = verify(case(words).op(), lambda op: InterpretedKernel(op, machine, config))
    assert verdict.status is Status.PASSED, verdict


def test_rows_that_are_phases_alone() -> None:
    """One pixel by two phases: A is the same for all of its rows, which are read nevertheless."""
    said = "g2mb1ic4iw2oc10ow2kw1sw2dw1pw1"
    layouts = {"src": "abc", "weights": "dbca", "dst": "abc"}
    op = tw.convolution(said, direction="bwd_d", dtype="f64", **layouts)
    machine = nvidia.machine("sm_80")
    verdict = verify(op, lambda op: InterpretedKernel(op, machine))
    assert verdict.status is Status.PASSED, verdict


@pytest.mark.parametrize("words", CASES[:3])
def test_no_fault_is_found(words: str) -> None:
    reports = check_op(case(words).op(), nvidia.machine("sm_80"), costs=False)
    assert [issue for report in reports for issue in report.issues] == []


# Large enough for Hopper's own way: assembled only. With whether tiles of A are columns of pixels:
# those of taps are, but not where images are reduced.
HOPPER = {
    "matmul bf16:bf16:bf16 4096x4096:4096x4096": False,
    "matmul s8:s8:s32 4096x4096:4096x4096": False,
    "conv bf16:bf16:bf16 FWD_B mb16ic256ih14oc256kh3ph1": True,
    "conv bf16:bf16:bf16 FWD_B mb1ic256ih56oc256kh1": False,
    "conv bf16:bf16:bf16 FWD_B mb64ic256ih56oc512kh1sh2": True,
    "conv f16:f16:f16 FWD_B mb16ic128id16ih16iw16oc128kd3kh3kw3pd1ph1pw1": True,
    "conv bf16:bf16:bf16 BWD_D mb16ic256ih14oc256kh3ph1": True,
    "conv bf16:bf16:bf16 BWD_W mb16ic128ih28oc128kh3ph1": True,
    "conv bf16:bf16:bf16 BWD_W mb16ic256ih14oc256kh3ph1": True,
}


@pytest.mark.parametrize("words", in_turns(2, HOPPER))
def test_large_problems_go_hoppers_way(words: str) -> None:
    config, kernels = scheduled(words, "sm_90a")
    assert isinstance(config, WorkgroupConfig) and config.product.instruction.startswith("wgmma_")
    ptx = to_ptx(lower_launches(kernels[0], nvidia.machine("sm_90a")).text, "sm_90a")
    assert "wgmma.mma_async" in ptx
    assert "shared::cluster.global.tile.mbarrier" in ptx
    assert ("shared::cluster.global.im2col.mbarrier" in ptx) == HOPPER[words]
    assembled(ptx, "sm_90a")


def test_workgroups_of_a_cluster_copy_a_row_of_pixels_each() -> None:
    """A tile of two rows, of which a workgroup copies one for both: a box of one row."""
    problem = parse("conv", "mb1ic512ih66oc512kh3")
    types = tuple(dtype(name) for name in ("u8", "s8", "s32"))
    op: Op = Case(problem, types, ("nhwc", "any", "nhwc")).op().resolved()
    machine = nvidia.machine("sm_90a")
    config, result = choose.choose(Start.of(op), machine)
    assert isinstance(config, WorkgroupConfig) and config.order.cluster
    ptx = to_ptx(lower_launches(run(result.kernel), machine).text, "sm_90a")
    assert "multicast::cluster" in ptx
    assembled(ptx, "sm_90a")


@pytest.mark.parametrize("size", [4096, 8192, 4000])
def test_large_products_are_persistent(size: int) -> None:
    """As many workgroups as the device holds, whose subgroups that multiply take registers: what
    the assembler gives to all at the start is what the schedule counted with."""
    machine = nvidia.machine("sm_90a")
    config, kernels = scheduled(f"matmul bf16:bf16:bf16 {size}x{size}:{size}x{size}", "sm_90a")
    assert isinstance(config, WorkgroupConfig)
    assert config.staging.fill == "unit" and config.order.persistent == machine.cores
    module = lower_launches(kernels[0], machine)
    (launch,) = module.launches
    assert (launch.groups, launch.items) == (machine.cores, 384)
    ptx = to_ptx(module.text, "sm_90a")
    assert ptx.count("setmaxnreg.dec.sync.aligned.u32 24;") == 1
    assert ptx.count("setmaxnreg.inc.sync.aligned.u32 240;") == 1
    result = assembled(ptx, "sm_90a")
    assert result is None or [function.registers for function in result.usage] == [168]


EPILOGUES: dict[str, list[Any]] = {
    "bias": [tw.bias(), tw.relu()],
    "bias and residual": [tw.bias(), tw.sum(), tw.relu()],
    "computed": [tw.unary("gelu_erf")],
}


@pytest.mark.parametrize(("name", "types"), in_turns(4, EPILOGUES, ["bf16", "f16:f16:f32"]))
def test_epilogues_leave_room_for_sums(name: str, types: str) -> None:
    machine = nvidia.machine("sm_90a")
    op = tw.matmul("8192x8192:8192x8192", dtype=types, epilogue=EPILOGUES[name]).resolved()
    config, result = choose.choose(Start.of(op), machine)
    assert isinstance(config, WorkgroupConfig) and config.order.persistent
    # Two elements' constants and coefficients of the error function, of a whole tile at a time.
    spilled = 72 if name == "computed" else 0
    assembled(to_ptx(lower_launches(run(result.kernel), machine).text, "sm_90a"), "sm_90a", spilled)


# Small forms of the problems at the edges, on each generation's instructions.
EDGES = (
    "conv {} FWD_B ic17ih5oc33kh1",
    "conv {} FWD_B g3mb2ic9ih7oc12kh3ph1",
    "conv {} FWD_B ic16ih8iw2oc16kh3kw3sh2sw2ph1pw1",
    "conv {} BWD_D mb2ic8ih9oc8kh3ph2dh1",
    "conv {} BWD_WB mb2ic8ih10oc8kh3sh2",
)


# Integers have no backward convolution.
TYPED_EDGES = [
    (edge, types)
    for edge in EDGES
    for types in ("f16:f16:f16", "bf16:bf16:bf16", "tf32:tf32:f32", "s8:s8:s32")
    if "FWD" in edge or not types.startswith("s8")
]


@pytest.mark.parametrize(("typed", "level"), in_turns(7, TYPED_EDGES, LEVELS))
def test_edges_in_the_interpreter(typed: tuple[str, str], level: str) -> None:
    edge, types = typed
    reports = check_op(case(edge.format(types)).op(), nvidia.machine(level), costs=False)
    assert [issue for report in reports for issue in report.issues] == []


def test_how_tiles_are_copied_ahead() -> None:
    def chosen(words: str, level: str) -> tuple[int, str]:
        config, _ = scheduled(words, level)
        assert isinstance(config, WorkgroupConfig)
        return config.staging.stages, config.staging.fill

    large = "matmul f32:f32:f32 256x256:256x256"
    assert chosen(large, "sm_80") == (4, "async")
    assert chosen(large, "sm_70") == (2, "registers")
    # Products of matrices take what is copied; others take it converted, which such copies don't.
    assert chosen("matmul f16:f16:f32 256x256:256x256", "sm_80") == (4, "async")
    assert chosen("matmul f8_e4m3:f8_e4m3:f32 256x256:256x256", "sm_80") == (2, "registers")
    # What would fill the registers is stored at once.
    assert chosen("conv f32:f32:f32 BWD_D mb2ic16ih9oc24kh3ph1", "sm_70") == (1, "copy")
    # Tiles of one phase are smaller.
    assert chosen("conv f32:f32:f32 BWD_D mb2ic16ih9oc24kh3ph1sh2", "sm_70") == (2, "registers")


def test_the_default_code_is_wide() -> None:
    """Vectors of 16 bytes to and from memory, and asynchronous copies."""
    kernels = scheduled("matmul f32:f32:f32 256x256:256x256", "sm_80")[1]
    ptx = to_ptx(lower_launches(kernels[0], nvidia.machine("sm_80")).text, "sm_80")
    for wide in ("cp.async.cg.shared.global", "ld.shared.v4.b32", "st.global.v4.b32"):
        assert wide in ptx
    kernels = scheduled("matmul f32:f32:f32 256x256:256x256", "sm_70")[1]
    ptx = to_ptx(lower_launches(kernels[0], nvidia.machine("sm_70")).text, "sm_70")
    for wide in ("ld.global.nc.v4.b32", "st.shared.v4.b32", "ld.shared.v4.b32"):
        assert wide in ptx
