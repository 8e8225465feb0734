"""Dot products of bytes that work-items add up (dp4a): the instruction, schedules, the model."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from assembly import assembled
from staged import check_races
from sweeps import in_turns
from tilewright.dtypes import dtype, s32
from tilewright.errors import ScheduleError
from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel
from tilewright.ir.buffer import Space
from tilewright.ir.stmt import Allocate, Compute
from tilewright.ir.visit import walk_stmts
from tilewright.machines import nvidia
from tilewright.ops.op import Op
from tilewright.passes import run as cleaned
from tilewright.recipes import choose
from tilewright.recipes.config import StencilConfig, WorkgroupConfig
from tilewright.recipes.start import Start
from tilewright.recipes.workgroup_model import candidates, prediction_of
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from workgroup_configs import with_fields, workgroup_config

MACHINE = nvidia.machine("sm_70")
# Every combination of operands: the instruction, and what PTX calls it.
TYPES = {
    ("s8", "s8"): ("dp4a_s32x4_s8", "dp4a.s32.s32"),
    ("s8", "u8"): ("dp4a_s32x4_s8_u8", "dp4a.s32.u32"),
    ("u8", "s8"): ("dp4a_s32x4_u8_s8", "dp4a.u32.s32"),
    ("u8", "u8"): ("dp4a_s32x4_u8", "dp4a.u32.u32"),
}


def _ptx(kernel: Kernel, level: str = "sm_70") -> str:
    return to_ptx(lower_launches(cleaned(kernel), nvidia.machine(level)).text, level)


def _used(kernel: Kernel) -> set[str]:
    result = {s.instruction for s in walk_stmts(kernel.body) if isinstance(s, Compute)}
    return {name for name in result if name is not None}


# The instruction, in a schedule by hand.


def _by_hand(a: str, b: str, columns: int = 4) -> Kernel:
    return parse_kernel(f"""
kernel k(in a: {a}[3, 8], in b: {b}[3, 2, 4, 4], in c: s32[3, 4], out y: s32[3, 4]):
  grid for g in 3:
    alloc acc: s32[4] private
    vector for i in 4:
      acc[i] = c[g, i]
    compute main(n in {columns}, k in 8):
      x = a[g, k]
      w = b[g, k // 4, n, k % 4]
      acc[n] add= s32(x) * s32(w)
    vector for i in 4:
      y[g, i] = acc[i]
""")


@pytest.mark.parametrize("types", TYPES, ids=":".join)
def test_what_the_instruction_computes(types: tuple[str, str]) -> None:
    name, _ = TYPES[types]
    instruction = MACHINE.instruction(name)
    assert (instruction.lanes, instruction.sizes) == (1, {"n": 4, "k": 4})
    assert instruction.flops == 32
    kernel = tensorize(_by_hand(*types), "main", instruction, {"n": "n", "k": "k"})
    assert _used(kernel) == {name}
    random = np.random.default_rng(0)
    memory: dict[str, Any] = {"y": np.zeros(12, np.int32)}
    # All values, the extreme ones too; and sums that wrap.
    for operand, size, type_ in (("a", 24, types[0]), ("b", 96, types[1])):
        least, most = (-128, 128) if type_ == "s8" else (0, 256)
        values = random.integers(least, most, size)
        values[:4] = least
        values[-4:] = most - 1
        memory[operand] = values.astype(dtype(type_).numpy)
    memory["c"] = random.integers(-(2**31), 2**31, 12).astype(np.int32)
    run(kernel, memory)
    a, b = memory["a"].reshape(3, 2, 4), memory["b"].reshape(3, 2, 4, 4)
    sums = np.einsum("gik,gink->gn", a.astype(np.int64), b.astype(np.int64))
    expected = (memory["c"].reshape(3, 4) + sums).astype(np.int32)
    assert (memory["y"].reshape(3, 4) == expected).all()


@pytest.mark.parametrize("level", nvidia.LEVELS)
@pytest.mark.parametrize("types", TYPES, ids=":".join)
def test_the_ptx(types: tuple[str, str], level: str) -> None:
    name, emitted = TYPES[types]
    instruction = nvidia.machine(level).instruction(name)
    kernel = tensorize(_by_hand(*types), "main", instruction, {"n": "n", "k": "k"})
    ptx = _ptx(kernel, level)
    assert ptx.count(emitted) == ptx.count("dp4a") == 8
    # Four bytes of each lane are loaded at once, and are not taken apart.
    assert len(re.findall(r"ld\.global\.nc\.v4\.b32", ptx)) == 3
    assert not re.search(r"ld\.\S*[su]8|prmt|bfe|bfi", ptx)
    assembled(ptx, level)


def test_operands_have_the_types_of_their_roles() -> None:
    kernel = _by_hand("u8", "s8")
    with pytest.raises(ScheduleError, match="does not lie as 'dp4a_s32x4_s8_u8' takes it"):
        tensorize(kernel, "main", MACHINE.instruction("dp4a_s32x4_s8_u8"), {"n": "n", "k": "k"})
    with pytest.raises(ScheduleError, match="computes s32"):
        tensorize(kernel, "main", MACHINE.instruction("dp4a_s32x4_s8"), {"n": "n", "k": "k"})


def test_a_tail_of_lanes() -> None:
    instruction = MACHINE.instruction("dp4a_s32x4_s8")
    kernel = tensorize(_by_hand("s8", "s8", 3), "main", instruction, {"n": "n", "k": "k"})
    memory: dict[str, Any] = {
        "a": np.arange(24, dtype=np.int8),
        "b": np.arange(96, dtype=np.int8),
        "c": np.zeros(12, np.int32),
        "y": np.zeros(12, np.int32),
    }
    run(kernel, memory)
    a, b = (memory[n].astype(np.int64) for n in ("a", "b"))
    sums = np.einsum("gik,gink->gn", a.reshape(3, 2, 4), b.reshape(3, 2, 4, 4))
    assert (memory["y"].reshape(3, 4) == np.where(np.arange(4) < 3, sums, 0)).all()
    assembled(_ptx(kernel), "sm_70")


# Schedules.


def _convolution(problem: str, types: str, layout: str = "nhwc", direction: str = "fwd") -> Op:
    return tw.convolution(problem, direction=direction, dtype=types, src=layout, dst=layout)


CASES: dict[str, Op] = {
    **{
        f"{a}:{b}": tw.matmul("50x40:40x50", dtype=f"{a}:{b}:s32")
        for a, b in product(("s8", "u8"), repeat=2)
    },
    "tails": tw.matmul("37x43:43x51", dtype="u8:s8:s32"),
    "tails, B across": tw.matmul("37x43:43x51", dtype="u8:s8:s32", weights="ab"),
    "across": tw.matmul("37x43:43x51", dtype="u8:s8:s8", src="ba", weights="ba", dst="ba"),
    "three products": tw.matmul("50x3:3x50", dtype="s8:s8:s32"),
    "one row": tw.matmul("1x300:300x70", dtype="s8:s8:s32"),
    "batched": tw.matmul("3x20x33:3x33x64", dtype="s8:s8:s32"),
    "convolution": _convolution("mb2ic24ih9oc40oh9kh3ph1", "s8:s8:s32"),
    "channels outside": _convolution("mb2ic22ih9oc40oh9kh3ph1", "u8:s8:s8", "nchw"),
    "first layer": _convolution("mb1ic3ih17oc32oh8kh3sh2ph1", "u8:s8:u8"),
    "groups": _convolution("g2mb1ic32ih8oc64oh8kh3ph1", "u8:s8:s8"),
    "by data": _convolution("mb2ic24ih9oc40oh9kh3ph1", "s32:s8:u8", direction="bwd_d"),
}


@pytest.mark.parametrize("name", in_turns(4, CASES))
def test_default_configs_add_up_neighbours(name: str) -> None:
    scheduled = check_races(CASES[name], MACHINE)
    assert any(instruction.startswith("dp4a_") for instruction in _used(scheduled.kernel))
    ptx = _ptx(scheduled.kernel)
    assert "dp4a." in ptx
    for text in (ptx, *map(_ptx, scheduled.packed.values())):
        assembled(text, "sm_70")


CONFIG = workgroup_config(
    instruction="dp4a_s32x4_s8",
    lanes="n",
    group={"m": 32, "n": 32},
    item={"m": 4, "n": 8},
    order=("m", "n"),
    step={"k": 32},
    reduce_order=("k",),
    vector=16,
    k="k",
)
OTHERS: tuple[dict[str, Any], ...] = (
    {"stages": 2, "fill": "copy"},
    {"stages": 2, "fill": "registers", "padding": {"a": 16, "b": 16}},
    {"step": {"k": 4}, "vector": 4},
    {"step": {"k": 12}, "vector": 1},
    {"slices": (("k", 2),), "atomic": True},
    {"item_slices": (("k", 2),)},
    {"stream_k": 3},
    {"persistent": 2, "raster": 2},
    {"lanes": "m", "item": {"m": 8, "n": 4}},
)


@pytest.mark.parametrize("changed", in_turns(4, OTHERS), ids=str)
def test_other_configs(changed: dict[str, Any]) -> None:
    op = tw.matmul("60x100:100x70", dtype="s8:s8:s32")
    scheduled = check_races(op, MACHINE, with_fields(CONFIG, **changed))
    assert "dp4a_s32x4_s8" in _used(scheduled.kernel)
    assembled(_ptx(scheduled.kernel), "sm_70")


def test_copies_run_by_themselves() -> None:
    op = tw.matmul("60x128:128x70", dtype="s8:s8:s32")
    config = with_fields(CONFIG, stages=3, fill="async", vector=4)
    scheduled = check_races(op, nvidia.machine("sm_80"), config)
    ptx = _ptx(scheduled.kernel, "sm_80")
    assert "cp.async" in ptx and "dp4a.s32.s32" in ptx


def test_bytes_stay_together() -> None:
    op = tw.matmul("256x256:256x256", dtype="s8:s8:s32").resolved()
    config, scheduled = choose.choose(Start.of(op), MACHINE)
    assert isinstance(config, WorkgroupConfig) and config.product.k == "k"
    shared = {
        s.buffer.name: s.buffer
        for s in walk_stmts(scheduled.stages["staged"].body)
        if isinstance(s, Allocate) and s.buffer.space is Space.WORKGROUP
    }
    assert [b.dtype.name for b in shared.values()] == ["s8", "s8"]
    for buffer in shared.values():
        # Four neighbours of the last dim, which is the reduced one.
        innermost = buffer.layout.blocks[-1]
        assert (innermost.dim, innermost.size, innermost.stride) == (len(buffer.shape) - 1, 4, 1)
    ptx = _ptx(scheduled.kernel)
    # What feeds the instruction is loaded by words, and by four words of lanes that lie together.
    loads = re.findall(r"ld\.shared\.(\S+)", ptx)
    assert "v4.b32" in loads and not any(load.endswith("8") for load in loads)
    assert not re.search(r"st\.shared\.\S*b8", ptx)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no k": ({"k": ""}, "adds up 4 neighbours at a time"),
    "short step": ({"step": {"k": 6}}, "k is 'k' here, of which a step has 6"),
    "no step": ({"step": {}}, "k is 'k' here, of which a step has 1"),
    "another type": ({"instruction": "dp4a_s32x4_u8"}, "'dp4a_s32x4_u8' computes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_configs(name: str) -> None:
    changed, message = REFUSED[name]
    op = tw.matmul("64x64:64x64", dtype="s8:s8:s32").resolved()
    with pytest.raises(ScheduleError, match=re.escape(message)):
        choose.schedule(Start.of(op), MACHINE, with_fields(CONFIG, **changed))


# The model.


def _chosen(op: Op, level: str) -> str:
    op = op.resolved()
    config, _ = choose.choose(Start.of(op), nvidia.machine(level))
    assert isinstance(config, WorkgroupConfig)
    return config.product.instruction


def test_when_they_are_chosen() -> None:
    large = tw.matmul("1024x1024:1024x1024", dtype="s8:s8:s32")
    assert _chosen(large, "sm_70") == "dp4a_s32x4_s8"
    assert _chosen(large, "sm_75").startswith("mma_")
    assert _chosen(large, "sm_80").startswith("mma_")
    # One row is no matrix.
    row = tw.matmul("1x1024:1024x1024", dtype="u8:s8:s32")
    assert _chosen(row, "sm_80") == "dp4a_s32x4_u8_s8"
    # Channels of their own have no neighbours that both operands share across lanes.
    alone = _convolution("g32mb1ic32ih8oc32oh8kh3ph1", "u8:s8:s8").resolved()
    config, _ = choose.choose(Start.of(alone), nvidia.machine("sm_70"))
    assert config == StencilConfig("g", 16, {"ow": 4})
    assert _chosen(tw.matmul("64x64:64x64", dtype="s32"), "sm_70") == "fma_s32x4"


def test_four_products_take_as_long_as_one() -> None:
    op = tw.matmul("2048x2048:2048x2048", dtype="s8:s8:s32").resolved()
    best = candidates(op.kernel(), MACHINE)[0]
    single = with_fields(best.config, instruction="fma_s32x4", step={"k": 8}, k="")
    other = prediction_of(op.kernel(), MACHINE, single)
    assert other is not None
    assert best.config.product.instruction == "dp4a_s32x4_s8"
    assert 3 < other.seconds / best.prediction.seconds < 5
    rates = MACHINE.rates
    assert rates is not None
    assert rates.multiply_adds(dtype("s8"), 1) == 4 * rates.multiply_adds(s32, 1)


def test_tiles_fit_in_registers() -> None:
    ops = (
        tw.matmul("4096x4096:4096x4096", dtype="s8:s8:s32"),
        _convolution("mb16ic256ih14oc256kh3ph1", "u8:s8:s8"),
    )
    for op in ops:
        op = op.resolved()
        _, scheduled = choose.choose(Start.of(op), MACHINE)
        ptx = _ptx(scheduled.kernel)
        assert "dp4a." in ptx
        if assembled(ptx, "sm_70") is None:
            pytest.skip("no ptxas here knows sm_70")


def test_bytes_are_not_taken_apart_where_they_are_masked() -> None:
    op = tw.matmul("256x256:256x256", dtype="s8:s8:s32").resolved()
    config, scheduled = choose.choose(Start.of(op), MACHINE)
    # The next tiles are loaded where there is a next step, and wait in registers.
    assert isinstance(config, WorkgroupConfig) and config.staging.fill == "registers"
    ptx = _ptx(scheduled.kernel)
    assert "selp.b32" in ptx and not re.search(r"prmt|selp\.b16", ptx)


@pytest.mark.parametrize(
    ("problem", "types"),
    [
        ("mb1ic64ih14oc2kh1", ("bf16", "bf16", "f32")),
        ("mb1ic64ih14oc5kh1", ("u8", "s8", "s32")),
        ("mb1ic24ih14oc144kh1", ("bf16", "bf16", "f32")),
    ],
)
def test_sums_of_few_lanes_and_factors_of_short_reductions_stay_in_registers(
    problem: str, types: tuple[str, str, str]
) -> None:
    op = tw.convolution(problem, src="nhwc", dst="nhwc", dtype=":".join(types))
    kernel = tw.compile(op, "x86:avx512_bf16", threads=1)
    assert "dp" in kernel.config.instruction
    assert "alloca" not in kernel.source("llvm")
    assert kernel.cost().spills == 0


def test_the_last_lane_of_dot_products_joins_a_vector() -> None:
    """A tail of one column: its sum is one element, not a vector."""
    blocked = {"src": "abc", "weights": "ABc8a8b", "dst": "ABc4b16a"}
    op = tw.matmul("1x9x16:1x16x17", dtype="bf16", **blocked)
    text = tw.compile(op, "x86:avx512_bf16").source("llvm")
    assert re.search(r"insertelement <16 x float> .*, i64 0$", text, re.MULTILINE)
