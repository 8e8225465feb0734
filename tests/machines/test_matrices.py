"""Instructions on matrices: who holds what, schedules that use them, and what the machine gets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from assembly import assembled
from staged import carried_out, check_races
from sweeps import in_turns
from tilewright.conversions import convert
from tilewright.dtypes import dtype, f32
from tilewright.errors import (
    CompilationError,
    LayoutError,
    ProblemError,
    ScheduleError,
    UnsupportedError,
    VerificationError,
)
from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel, to_text, verify
from tilewright.ir.expr import const
from tilewright.ir.stmt import Compute, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.layout.fragments import Fragment, registers
from tilewright.machines import nvidia
from tilewright.machines.instruction import Instruction
from tilewright.ops.op import Op
from tilewright.recipes import choose, workgroups
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.start import Start
from tilewright.schedule.loops.enclose import enclose
from tilewright.schedule.operands.fragments import hold, on_lanes
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.simplify import simplify
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.testing.check import check_stages
from tilewright.testing.inputs import make_inputs
from workgroup_configs import with_fields, workgroup_config

MACHINE = nvidia.machine("sm_80")
PRODUCTS = {i.name: i for i in MACHINE.instructions if i.lanes > 1 and len(i.operands) == 2}
PRODUCTS |= {
    i.name: i
    for level in ("sm_70", "sm_75", "sm_89")
    for i in nvidia.machine(level).instructions
    if i.lanes > 1 and len(i.operands) == 2
}
LOADS = {i.name: i for i in MACHINE.instructions if i.lanes > 1 and len(i.operands) == 1}

# Where PTX ISA's tables have register i of lane (g = lane / 4, t = lane % 4): (row, column).
Place = Callable[[int, int, int], tuple[int, int]]
_C: Place = lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2)  # noqa: E731
_BYTES: dict[str, Place] = {
    "a": lambda g, t, i: (g + 8 * (i // 4 % 2), 4 * t + i % 4 + 16 * (i // 8)),
    "b": lambda g, t, i: (4 * t + i % 4 + 16 * (i // 4), g),
    "c": _C,
}
TABLES: dict[str, dict[str, Place]] = {
    "mma_m16n8k8_f32_f16": {
        "a": lambda g, t, i: (g + 8 * (i // 2), 2 * t + i % 2),
        "b": lambda g, t, i: (2 * t + i, g),
        "c": _C,
    },
    "mma_m16n8k16_f32_f16": {
        "a": lambda g, t, i: (g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)),
        "b": lambda g, t, i: (2 * t + i % 2 + 8 * (i // 2), g),
        "c": _C,
    },
    "mma_m8n8k4_f64_f64": {
        "a": lambda g, t, i: (g, t),
        "b": lambda g, t, i: (t, g),
        "c": lambda g, t, i: (g, 2 * t + i),
    },
    "mma_m8n8k16_s32_s8": {
        "a": lambda g, t, i: (g, 4 * t + i),
        "b": lambda g, t, i: (4 * t + i, g),
        "c": lambda g, t, i: (g, 2 * t + i),
    },
    "mma_m16n8k32_s32_s8": _BYTES,
    "mma_m16n8k32_f32_f8_e4m3": _BYTES,
    "mma_m16n8k4_f32_tf32": {
        "a": lambda g, t, i: (g + 8 * i, t),
        "b": lambda g, t, i: (t, g),
        "c": _C,
    },
    "mma_m16n8k8_f32_tf32": {
        "a": lambda g, t, i: (g + 8 * (i % 2), t + 4 * (i // 2)),
        "b": lambda g, t, i: (t + 4 * i, g),
        "c": _C,
    },
}


def _row(lane: int) -> int:
    return lane % 4 + (4 if lane >= 16 else 0)


# The same for one of the four products of mma.m8n8k4, by the lane.
QUADS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "a row": lambda lane, i: (_row(lane), i),
    "a col": lambda lane, i: (i % 4 + (4 if lane >= 16 else 0), lane % 4),
    "b row": lambda lane, i: (lane % 4, i + (4 if lane >= 16 else 0)),
    "b col": lambda lane, i: (i, _row(lane)),
    "c": lambda lane, i: (
        (lane & 1) + (i & 2) + (4 if lane >= 16 else 0),
        (i & 4) + (lane & 2) + (i & 1),
    ),
}


def _offset(fragment: Fragment, *place: int) -> int:
    result = simplify(fragment.layout.offset_of(tuple(map(const, place))))
    return int(result.value)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", TABLES)
def test_fragments_are_those_of_the_manual(name: str) -> None:
    instruction = PRODUCTS[name]
    for role in (instruction.out, *instruction.operands):
        fragment = role.fragment
        assert fragment is not None and fragment.lanes == 32
        held = fragment.registers
        for lane, register in product(range(32), range(held)):
            row, column = TABLES[name][role.name](lane // 4, lane % 4, register)
            assert _offset(fragment, row, column) == lane * held + register


@pytest.mark.parametrize("instruction", PRODUCTS.values(), ids=str)
def test_every_fragment_holds_each_element_once(instruction: Instruction) -> None:
    for role in (instruction.out, *instruction.operands):
        assert role.fragment is not None
        copies = role.fragment.copies
        sizes = [*role.fragment.sizes.values(), *([copies.count] if copies else [])]
        places = {_offset(role.fragment, *place) for place in product(*map(range, sizes))}
        assert places == set(range(math.prod(sizes)))


@pytest.mark.parametrize("ways", list(product(("row", "col"), repeat=2)), ids=str)
def test_four_products_share_a_tile(ways: tuple[str, str]) -> None:
    instruction = PRODUCTS["mma_m16n16k4_f32_f16_" + "_".join(ways)]
    assert instruction.emit == f"llvm.nvvm.mma.m8n8k4.{ways[0]}.{ways[1]}.f32.f32"
    names = (f"a {ways[0]}", f"b {ways[1]}", "c")
    for name, role in zip(names, (*instruction.operands, instruction.out), strict=True):
        fragment = role.fragment
        assert fragment is not None and fragment.lanes == 32
        held = fragment.registers
        for lane, register in product(range(32), range(held)):
            halves = {"m": lane // 4 % 2, "n": lane // 8 % 2}
            place = []
            for dim, index in zip(fragment.dims, QUADS[name](lane, register), strict=True):
                # Of a product's rows (columns), the second four are eight behind the first.
                half = halves.get(dim)
                place.append(index if half is None else index // 4 * 8 + half * 4 + index % 4)
            if fragment.copies is not None:
                # What a lane multiplies for this row (column) of C is the copy it holds.
                copies = fragment.copies
                place.append(halves[copies.dim])
                own = [i for i in range(16) if i // copies.run % copies.count == place[-1]]
                assert own == [i for i in range(16) if i // 4 % 2 == halves[copies.dim]]
            assert _offset(fragment, *place) == lane * held + register


def test_tiles_of_a_fragment() -> None:
    fragment = PRODUCTS["mma_m16n8k16_f32_f16"].out.fragment
    assert fragment is not None
    layout = fragment.tiled((32, 24))
    assert registers(layout, 32) == 6 * fragment.registers
    for m, n in product(range(32), range(24)):
        lane, register = divmod(_offset(fragment, m % 16, n % 8), fragment.registers)
        tile = m // 16 * 3 + n // 8
        result = simplify(layout.offset_of((const(m), const(n))))
        assert result is const(lane * 24 + tile * 4 + register)
    with pytest.raises(LayoutError, match=r"\[32, 20\] is no whole number of tiles of \[16, 8\]"):
        fragment.tiled((32, 20))
    with pytest.raises(LayoutError, match="cannot be spread evenly over 7 lanes"):
        registers(layout, 7)


# Schedules.


def _stages(op: Op, level: str, config: WorkgroupConfig | None = None) -> Kernel:
    """The last stage; all of them compute what the naive one does."""
    scheduled = check_races(op, nvidia.machine(level), config)
    assert config is not None or _used(scheduled.kernel)
    return scheduled.kernel


def _used(kernel: Kernel) -> set[str]:
    result = {s.instruction for s in walk_stmts(kernel.body) if isinstance(s, Compute)}
    return {name for name in result if name is not None}


def _convolution(direction: str, layout: str, problem: str = "mb2ic24ih9oc40oh9kh3ph1") -> Op:
    return tw.convolution(problem, direction=direction, dtype="bf16", src=layout, dst=layout)


def _blocked(problem: str) -> Op:
    """Channels in blocks of four."""
    return tw.convolution(problem, dtype="f16", src="nChw4c", dst="nChw4c")


CASES: dict[str, tuple[Op, str]] = {
    "f16": (tw.matmul("100x72:72x90", dtype="f16:f16:f32"), "sm_80"),
    "f16 on sm_75": (tw.matmul("50x40:40x50", dtype="f16:f16:f16"), "sm_75"),
    "s8 on sm_75": (tw.matmul("50x40:40x50", dtype="s8:s8:s32"), "sm_75"),
    "u8s8": (tw.matmul("50x40:40x50", dtype="u8:s8:s32"), "sm_80"),
    "f64": (tw.matmul("50x40:40x50", dtype="f64"), "sm_80"),
    "tf32": (tw.matmul("50x40:40x50", dtype="tf32:tf32:f32"), "sm_80"),
    "tf32, across": (tw.matmul("50x40:40x50", dtype="tf32", src="ba", weights="ab"), "sm_90a"),
    "fpmath tf32": (tw.matmul("50x40:40x50", fpmath="tf32"), "sm_80"),
    "fpmath tf32, convolution": (
        tw.convolution("mb1ic9ih7oc20oh7kh3ph1", src="nhwc", dst="nhwc", fpmath="tf32"),
        "sm_90a",
    ),
    "fpmath bf16": (tw.matmul("50x40:40x50", src="ba", weights="ab", fpmath="bf16"), "sm_80"),
    "e4m3": (tw.matmul("50x40:40x50", dtype="f8_e4m3:f8_e4m3:f16"), "sm_89"),
    "e5m2": (tw.matmul("50x40:40x50", dtype="f8_e5m2:f8_e4m3:f32"), "sm_90a"),
    "sm_70": (tw.matmul("50x40:40x50", dtype="f16"), "sm_70"),
    "sm_70, A across": (tw.matmul("50x40:40x50", dtype="f16", src="ba"), "sm_70"),
    "sm_70, B along": (tw.matmul("50x40:40x50", dtype="f16", weights="ba"), "sm_70"),
    "sm_70, columns": (tw.matmul("50x40:40x50", dtype="f16", src="ba", dst="ba"), "sm_70"),
    "sm_70, first layer": (_blocked("mb1ic3ih20oc40oh10kh7sh2ph3"), "sm_70"),
    "sm_70, blocked": (_blocked("mb1ic24ih9oc40oh9kh3ph1"), "sm_70"),
    "batched": (tw.matmul("3x20x33:3x33x64", dtype="bf16"), "sm_90a"),
    "groups": (_convolution("fwd", "nhwc", "g2mb1ic32ih8oc64oh8kh3ph1"), "sm_80"),
    "first layer": (_convolution("fwd", "nhwc", "mb1ic3ih17oc32oh8kh3sh2ph1"), "sm_80"),
    **{
        f"{direction} {layout}": (_convolution(direction, layout), "sm_80")
        for direction in ("fwd", "bwd_d", "bwd_w")
        for layout in ("nhwc", "nchw")
    },
}


@pytest.mark.parametrize("name", in_turns(5, CASES))
def test_default_configs_multiply_matrices(name: str) -> None:
    op, level = CASES[name]
    used = _used(_stages(op, level))
    assert any(instruction.startswith("mma_") for instruction in used)
    # Doubles have no such load, nor has compute capability 7.0.
    loads = level != "sm_70" and name != "f64"
    assert any(instruction.startswith("ldmatrix_") for instruction in used) == loads


# By the layouts of A and B: what the default config multiplies with.
WAYS = {"ab,ab": "row_row", "ba,ab": "col_row", "ab,ba": "row_col", "ba,ba": "col_col"}


@pytest.mark.parametrize("layouts", WAYS)
def test_operands_are_taken_as_they_lie(layouts: str) -> None:
    src, weights = layouts.split(",")
    op = tw.matmul("64x64:64x64", dtype="f16", src=src, weights=weights).resolved()
    config, _ = choose.choose(Start.of(op), nvidia.machine("sm_70"))
    assert isinstance(config, WorkgroupConfig)
    assert config.product.instruction == f"mma_m16n16k4_f32_f16_{WAYS[layouts]}"


@pytest.mark.parametrize("name", ["tf32", "bf16"])
def test_fpmath_rounds_what_is_multiplied(name: str) -> None:
    op = tw.matmul("20x40:40x24", fpmath=name, weights="ab").resolved()
    kernel = op.kernel()
    assert f"add= f32({name}(a)) * f32({name}(b))" in to_text(kernel)
    inputs = make_inputs(op, exact=False, seed=3)
    a, b = (
        convert(inputs[tensor], f32, dtype(name)).astype(np.float64)
        for tensor in ("src", "weights")
    )
    _, scheduled = choose.choose(Start.of(op), MACHINE)
    for stage in (kernel, scheduled.kernel):
        memory = {tensor: array.ravel() for tensor, array in inputs.items()}
        memory["dst"] = np.zeros(20 * 24, np.float32)
        run(stage, memory)
        assert np.abs(memory["dst"].reshape(20, 24) - a @ b).max() < 1e-5
    assert np.abs(a @ b - inputs["src"].astype(np.float64) @ inputs["weights"]).max() > 1e-5


def test_without_such_products_fpmath_is_left_out() -> None:
    op = tw.matmul("64x64:64x64", fpmath="tf32").resolved()
    config, scheduled = choose.choose(Start.of(op), nvidia.machine("sm_75"))
    assert isinstance(config, WorkgroupConfig)
    assert config.product.instruction == "fma_f32x4"
    assert "tf32" not in to_text(scheduled.kernel)


def test_fpmath_is_for_f32() -> None:
    with pytest.raises(UnsupportedError, match="fpmath tf32 for operands of bf16 and bf16"):
        tw.matmul("4x4:4x4", dtype="bf16", fpmath="tf32")
    with pytest.raises(ProblemError, match="unknown fpmath 'f16'"):
        tw.matmul("4x4:4x4", fpmath="f16")


# Problems of full size, with what each instruction multiplies: no register is spilled.
FULL: dict[str, tuple[Op, str]] = {
    "ResNet's first layer": (_blocked("mb128ic3ih224oc64oh112kh7sh2ph3"), "sm_70"),
    "f16": (tw.matmul("4096x4096:4096x4096", dtype="f16"), "sm_70"),
    "tf32": (tw.matmul("4096x4096:4096x4096", dtype="tf32"), "sm_80"),
    "fpmath": (tw.matmul("4096x4096:4096x4096", fpmath="tf32", weights="ab"), "sm_80"),
    "e4m3": (tw.matmul("4096x4096:4096x4096", dtype="f8_e4m3:f8_e4m3:f16"), "sm_89"),
}


@pytest.mark.parametrize("name", in_turns(2, FULL))
def test_tiles_fit_in_registers(name: str) -> None:
    op, level = FULL[name]
    op, machine = op.resolved(), nvidia.machine(level)
    _, scheduled = choose.choose(Start.of(op), machine)
    assert any(instruction.startswith("mma_") for instruction in _used(scheduled.kernel))
    if assembled(_ptx(scheduled.kernel, level), level) is None:
        pytest.skip(f"no ptxas here knows {level}")


AWKWARD = {
    "sums of weights beside the matrix": tw.matmul(
        "16x20:20x17", dtype="s8:s8:f32", epilogue=[tw.zero_point("src", 1)]
    ),
    "the same in one tile": tw.matmul(
        "3x17:17x3", dtype="u8:s8:s8", epilogue=[tw.zero_point("src", 3)]
    ),
    "one element of a dim is not masked": tw.convolution(
        "mb1ic16ih4iw1oc2oh3kh3kw3sw3pw1dh1", dtype="f64", direction="bwd_d"
    ),
    "a result in blocks": tw.convolution(
        "mb1ic24iw7oc32ow8kw2pw1", dtype="f32", src="aBc16b", weights="ABc8b16a", direction="bwd_w"
    ),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_what_the_model_stumbled_over(name: str) -> None:
    op = AWKWARD[name].resolved()
    _, scheduled = choose.choose(Start.of(op), MACHINE)
    inputs = make_inputs(op, exact=True, seed=0)
    reports = check_stages(scheduled.stages, scheduled.packed, MACHINE, inputs, "all")
    assert [(r.stage, i.kind, i.message) for r in reports for i in r.issues] == []


CONFIG = workgroup_config(
    instruction="mma_m16n8k16_f32_bf16",
    lanes="n",
    group={"m": 32, "n": 32},
    item={"m": 16, "n": 16},
    order=("m", "n"),
    step={"k": 32},
    vector=8,
    k="k",
)
OTHERS = (
    {"stages": 2, "fill": "registers"},
    {"stages": 2, "fill": "copy", "padding": {"a": 8}},
    {"stages": 4, "fill": "async", "padding": {"a": 8, "b": 8}},
    {"item": {"m": 32, "n": 8}, "stages": 3, "fill": "async"},
    {"group": {"m": 64, "n": 16}, "slices": (("k", 2),), "atomic": True},
    {"lanes": "m", "item": {"n": 16, "m": 16}},
    {"raster": 2, "persistent": 2, "stages": 3, "fill": "async"},
    {"vector": 3, "step": {"k": 48}},
)


@pytest.mark.parametrize("changed", in_turns(2, OTHERS), ids=str)
def test_other_configs(changed: dict[str, Any]) -> None:
    config = with_fields(CONFIG, **changed)
    kernel = _stages(tw.matmul("60x100:100x70", dtype="bf16:bf16:f32"), "sm_80", config)
    assert "mma_m16n8k16_f32_bf16" in _used(kernel)
    _ptx(kernel, "sm_80")


def test_a_lane_may_hold_one_element() -> None:
    changed = {"instruction": "mma_m8n8k4_f64_f64", "item": {"m": 8, "n": 16}, "vector": 2}
    config = with_fields(CONFIG, **changed, stages=2, fill="async")
    kernel = _stages(tw.matmul("30x40:40x50", dtype="f64"), "sm_80", config)
    assert _used(kernel) == {"mma_m8n8k4_f64_f64"}
    _ptx(kernel, "sm_80")


def _ptx(kernel: Kernel, level: str) -> str:
    return to_ptx(lower_launches(kernel, nvidia.machine(level)).text, level)


def test_rows_across_the_reduction_are_turned_by_the_load() -> None:
    op = tw.matmul("64x64:64x64", dtype="bf16", weights="ba")
    assert "ldmatrix_k16n16_bf16" in _used(_stages(op, "sm_80", CONFIG))
    op = tw.matmul("64x64:64x64", dtype="bf16", src="ba", weights="ab")
    used = _used(_stages(op, "sm_80", CONFIG))
    assert {"ldmatrix_m16k16_bf16_trans", "ldmatrix_k16n16_bf16_trans"} <= used


def test_the_ptx_of_a_tile() -> None:
    ptx = _ptx(_stages(tw.matmul("32x64:64x32", dtype="bf16"), "sm_80", CONFIG), "sm_80")
    # A step has two products along k; each subgroup has two tiles along n.
    assert ptx.count("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") == 4
    assert ptx.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 2
    assert ptx.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == 2


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no k": ({"k": ""}, "multiplies matrices of 16 along k"),
    "short step": ({"step": {"k": 24}}, "k is 'k' here, of which a step has 24"),
    "narrow item": ({"item": {"m": 8, "n": 16}}, "m is 'm' here, of which a subgroup's tile has 8"),
    "slices of items": (
        {"item_slices": (("k", 2),)},
        "the work-items reduce parts, and multiply matrices",
    ),
    "many": (
        {"group": {"m": 128, "n": 128}},
        "a workgroup of 2048 work-items",
    ),
    "another type": ({"instruction": "mma_m16n8k16_f32_f16"}, "computes f32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_configs(name: str) -> None:
    changed, message = REFUSED[name]
    op = tw.matmul("256x256:256x256", dtype="bf16").resolved()
    with pytest.raises(ScheduleError, match=re.escape(message)):
        choose.schedule(Start.of(op), MACHINE, with_fields(CONFIG, **changed))


# Transforms.

MMA = PRODUCTS["mma_m16n8k16_f32_bf16"]
HELD = """
kernel k(out y: f32[32, 16]):
  subgroup for s in 1:
    alloc acc: f32[32, 16] private
    compute init(i in 32, j in 16):
      acc[i, j] = f32(i * 16 + j)
    compute store(i in 32, j in 16):
      v = acc[i, j]
      y[i, j] = v
"""


def test_what_lanes_hold_they_do() -> None:
    kernel = parse_kernel(HELD)
    held = hold(kernel, "init", "acc", MMA, "c", {"m": "i", "n": "j"})
    assert "alloc acc: f32[32, 16] {0:2:8 1:2:4 0:2:2 0:8:64 1:4:16 1:2:1} private" in to_text(held)
    spread = on_lanes(held, ["init", "store"], 32)
    verify(spread)
    memory = {"y": np.zeros(512, np.float32)}
    run(spread, memory)
    assert memory["y"].tolist() == list(range(512))
    assert to_text(spread).count("lane for lane in 32:") == 2


TRANSFORM_REFUSALS: dict[str, tuple[Callable[[Kernel], Kernel], str]] = {
    "no such buffer": (
        lambda k: hold(k, "init", "other", MMA, "c", {"m": "i", "n": "j"}),
        "hold: 'init' uses no buffer 'other'",
    ),
    "not private": (
        lambda k: hold(k, "store", "y", MMA, "c", {"m": "i", "n": "j"}),
        "hold: 'y' is no matrix of i, j",
    ),
    "one dim": (
        lambda k: hold(k, "init", "acc", MMA, "c", {"m": "i", "n": "i"}),
        "hold: 'acc' is no matrix of i, i",
    ),
    "no such operand": (
        lambda k: hold(k, "init", "acc", MMA, "d", {"m": "i", "n": "j"}),
        "hold: lanes hold no 'd' of mma_m16n8k16_f32_bf16",
    ),
}


COPIES = """
kernel k(in x: f16[16, 4], in y: f16[4, 16], out z: f32[16, 16]):
  subgroup for s in 1:
    alloc a_held: f16[16, 4] private
    alloc b_held: f16[4, 16] private
    alloc acc: f32[16, 16] private
    compute a_pack(m in 16, k in 4):
      v = x[m, k]
      a_held[m, k] = v
    compute b_pack(k in 4, n in 16):
      v = y[k, n]
      b_held[k, n] = v
    compute init(m in 16, n in 16):
      acc[m, n] = 0.0
    compute main(m in 16, n in 16, k in 4):
      a = a_held[m, k]
      b = b_held[k, n]
      acc[m, n] add= f32(a) * f32(b)
    compute store(m in 16, n in 16):
      v = acc[m, n]
      z[m, n] = v
"""


def test_a_fragment_may_have_copies() -> None:
    instruction, dims = PRODUCTS["mma_m16n16k4_f32_f16_row_col"], {"m": "m", "n": "n", "k": "k"}
    kernel = parse_kernel(COPIES)
    for role, name in zip(
        (instruction.out, *instruction.operands), ("acc", "a_held", "b_held"), strict=True
    ):
        kernel = hold(kernel, "main", name, instruction, role.name, dims)
    text = to_text(kernel)
    assert "compute a_pack(m in 16, k in 4, copy in 2):" in text
    assert "a_held[m, k, copy] = v" in text
    assert "a = a_held[m, k, n // 4 % 2]" in text
    assert "b = b_held[k, n, m // 4 % 2]" in text
    kernel = tensorize(kernel, "main", instruction, dims)
    kernel = on_lanes(kernel, ["a_pack", "b_pack", "init", "store"], 32)
    verify(kernel)
    x, y = (np.arange(-32, 32, dtype=np.float16).reshape(s) for s in ((16, 4), (4, 16)))
    memory = {"x": x.ravel(), "y": y.ravel(), "z": np.zeros(256, np.float32)}
    run(kernel, memory)
    expected = x.astype(np.float64) @ y.astype(np.float64)
    assert (memory["z"].reshape(16, 16) == expected).all()


def test_copies_are_of_what_one_compute_reads() -> None:
    instruction = PRODUCTS["mma_m16n16k4_f32_f16_row_col"]
    other = COPIES.replace("v = acc[m, n]", "v = a_held[m, n % 4]").replace("n] = v", "n] = f32(v)")
    kernel = parse_kernel(other.replace("b_held[k, n] = f32(v)", "b_held[k, n] = v"))
    with pytest.raises(ScheduleError, match="copies of 'a_held', of which 'store' takes none"):
        hold(kernel, "main", "a_held", instruction, "a", {"m": "m", "n": "n", "k": "k"})
    kernel = parse_kernel(COPIES)
    with pytest.raises(ScheduleError, match="copies of 'a_held', of which 'main' takes none"):
        hold(kernel, "main", "a_held", instruction, "a", {"m": "m", "k": "k"})


@pytest.mark.parametrize("name", TRANSFORM_REFUSALS)
def test_refused_transforms(name: str) -> None:
    make, message = TRANSFORM_REFUSALS[name]
    with pytest.raises(ScheduleError, match=re.escape(message)):
        make(parse_kernel(HELD))


def test_on_lanes_takes_matrices_that_lanes_hold() -> None:
    """Rows of 16 among 32 lanes: a lane would have half a row, which no block of the layout is."""
    text = """
kernel k(out y: f32[16, 16]):
  subgroup for s in 1:
    alloc acc: f32[16, 16] private
    compute init(m in 16, n in 16):
      acc[m, n] = 0.0
"""
    with pytest.raises(ScheduleError, match="no lane holds a part of 'acc' by itself"):
        on_lanes(parse_kernel(text), ["init"], 32)


def test_on_lanes_takes_computes_on_one_matrix() -> None:
    kernel = parse_kernel(HELD.replace("init(i in 32", "init(i in 30"))
    with pytest.raises(ScheduleError, match="does not go through all of 'acc'"):
        on_lanes(kernel, ["init"], 32)
    text = "kernel k(out y: f32[4]):\n  compute f(i in 4):\n    y[i] = 0.0\n"
    with pytest.raises(ScheduleError, match="no operand is in registers"):
        on_lanes(parse_kernel(text), ["f"], 32)


def test_tensorize_takes_operands_from_registers_as_they_are_held() -> None:
    kernel = parse_kernel("""
kernel k(in a: bf16[16, 16], in b: bf16[16, 8]):
  subgroup for s in 1:
    alloc acc: f32[16, 8] private
    compute main(m in 16, n in 8, k in 16):
      x = a[m, k]
      y = b[k, n]
      acc[m, n] add= f32(x) * f32(y)
""")
    instruction, dims = PRODUCTS["mma_m16n8k16_f32_bf16"], {"m": "m", "n": "n", "k": "k"}
    with pytest.raises(ScheduleError, match="'acc' does not lie as"):
        tensorize(kernel, "main", instruction, dims)
    kernel = hold(kernel, "main", "acc", instruction, "c", {"m": "m", "n": "n"})
    with pytest.raises(ScheduleError, match="it is in global memory, not in registers"):
        tensorize(kernel, "main", instruction, dims)
    with pytest.raises(ScheduleError, match="takes 16 of 'm', here it is 8"):
        short = parse_kernel(to_text(kernel).replace("main(m in 16", "main(m in 8"))
        tensorize(short, "main", instruction, dims)


# What the machine gets.


def test_a_lane_has_its_own_registers_only() -> None:
    text = """
kernel k(out y: f32[64]):
  grid for g in 1:
    subgroup for s in 1:
      alloc acc: f32[64] private
      lane for l in 32:
        acc[l * 2] = 1.0
        acc[l * 2 + 1] = 2.0
      lane for l in 32:
        y[l] = acc[INDEX]
"""
    assert "st.global" in _ptx(parse_kernel(text.replace("INDEX", "l * 2 + 1")), "sm_80")
    for index in ("l", "62 - l * 2", "(l + 1) % 32 * 2"):
        with pytest.raises(CompilationError, match="a lane accesses what another one holds"):
            _ptx(parse_kernel(text.replace("INDEX", index)), "sm_80")
    dynamic = text.replace("y[l] = acc[INDEX]", "for i in 2:\n          y[l] = acc[l * 2 + i]")
    with pytest.raises(CompilationError, match="'acc' in registers, but it is indexed at run time"):
        _ptx(parse_kernel(dynamic), "sm_80")


def test_lanes_carry_a_product_out_together() -> None:
    kernel = _stages(tw.matmul("32x64:64x32", dtype="bf16"), "sm_80", CONFIG)
    alone = parse_kernel(to_text(kernel).replace("subgroup for", "workgroup for"))
    with pytest.raises((CompilationError, VerificationError)):
        verify(alone)
        _ptx(alone, "sm_80")


# What the interpreter finds.


def _small() -> Kernel:
    """A matmul of 32x64:64x32 whose weights are as they come."""
    op = tw.matmul("32x64:64x32", dtype="bf16").resolved()
    return carried_out(workgroups.schedule, op.kernel(), MACHINE, CONFIG).kernel


def _faults(kernel: Kernel) -> set[str]:
    """The kinds of what is wrong with such a kernel."""
    op = tw.matmul("32x64:64x32", dtype="bf16").resolved()
    inputs = make_inputs(op, exact=True, seed=0)
    reports = check_stages({"naive": op.kernel(), "changed": kernel}, {}, MACHINE, inputs, "all")
    return {issue.kind for report in reports for issue in report.issues}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Registers of A in another order; B as A has it; rows of C in other lanes.
        ("{0:1:8 1:1:8 0:2:2 0:8:32 1:2:4", "{0:1:8 1:1:8 0:2:4 0:8:32 1:2:2"),
        ("{1:1:8 0:2:4 1:2:2 1:4:8 1:2:1 0:8:32}", "{0:2:2 0:8:32 1:2:4 1:4:8 1:2:1}"),
        ("{0:1:8 1:2:4 0:2:2 0:8:32 1:4:8 1:2:1}", "{0:1:8 1:2:4 0:8:32 0:2:2 1:4:8 1:2:1}"),
    ],
)
def test_a_wrong_fragment_is_found(old: str, new: str) -> None:
    kernel = _small()
    text = to_text(kernel)
    assert old in text and _faults(kernel) == set()
    assert "wrong fragment" in _faults(parse_kernel(text.replace(old, new)))


def test_the_register_of_another_lane_is_found() -> None:
    kernel = _small()
    text = to_text(kernel)
    assert "acc[lane // 4 + m_r * 8" in text
    # The last one is what is stored.
    head, tail = text.rsplit("acc[lane // 4 + m_r * 8", 1)
    changed = parse_kernel(f"{head}acc[(lane + 4) % 32 // 4 + m_r * 8{tail}")
    assert "register of another lane" in _faults(changed)


# One subgroup, and products that run by themselves.

TILE = """
kernel k(in a: f32[2, 8], out y: f32[2, 8]):
  grid for g in 2:
    alloc acc: f32[8] private
    compute init(i in 8):
      acc[i] = 0.0
    compute main(i in 8):
      x = a[g, i]
      acc[i] add= x
    compute store(i in 8):
      v = acc[i]
      y[g, i] = v
"""


def test_a_loop_of_one_iteration_around_what_stands_together() -> None:
    kernel = enclose(parse_kernel(TILE), ["init", "main", "store"], LoopKind.SUBGROUP, "s")
    verify(kernel)
    lines = [line.strip() for line in to_text(kernel).splitlines()]
    assert lines.index("grid for g in 2:") + 1 == lines.index("subgroup for s in 1:")
    assert lines.index("subgroup for s in 1:") + 1 == lines.index("alloc acc: f32[8] private")
    memory = {"a": np.arange(16, dtype=np.float32), "y": np.zeros(16, np.float32)}
    run(kernel, memory)
    assert memory["y"].tolist() == list(range(16))
    apart = TILE.replace("    compute store", "  grid for g in 2:\n    compute store").replace(
        "      v = acc[i]\n      y[g, i] = v", "      v = a[g, i]\n      y[g, i] = v"
    )
    with pytest.raises(ScheduleError, match="enclose: main, store do not stand in one block"):
        enclose(parse_kernel(apart), ["main", "store"], LoopKind.SUBGROUP, "s")
