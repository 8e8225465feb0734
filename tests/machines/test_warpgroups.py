"""Products of matrices that lie in workgroup memory: their table, and the forms that they take."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from staged import check_races
from sweeps import in_turns
from tilewright.dtypes import bf16
from tilewright.errors import InterpreterFault, ScheduleError
from tilewright.facts.scope import Facts
from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel, to_text, verify
from tilewright.ir.expr import Const, const, var
from tilewright.ir.stmt import Compute
from tilewright.ir.visit import substitute, walk_stmts
from tilewright.layout.rows import RowPlacement, place_rows
from tilewright.machines import nvidia
from tilewright.machines.instruction import Instruction
from tilewright.machines.nvidia.warpgroups import LANES, PRODUCTS
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.start import Start
from tilewright.schedule.operands.fragments import hold, on_lanes
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.schedule import KernelSchedule
from tilewright.simplify import simplify
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from workgroup_configs import with_fields, workgroup_config

MACHINE = nvidia.machine("sm_90a")
TABLE = {i.name: i for i in MACHINE.instructions if i.feature == PRODUCTS}
BF16 = TABLE["wgmma_m64n64k16_f32_bf16"]


@pytest.mark.parametrize("instruction", TABLE.values(), ids=str)
def test_sums_are_where_the_manual_has_them(instruction: Instruction) -> None:
    fragment, n = instruction.out.fragment, instruction.sizes["n"]
    assert fragment is not None and fragment.registers == n // 2 and instruction.lanes == LANES
    places = set()
    for lane, i in product(range(LANES), range(n // 2)):
        row = 16 * (lane // 32) + lane % 32 // 4 + 8 * (i // 2 % 2)
        column = 8 * (i // 4) + 2 * (lane % 4) + i % 2
        places.add((row, column))
        assert fragment.layout.place((row, column)) == lane * (n // 2) + i
    assert len(places) == 64 * n


def test_only_sm_90a_has_them() -> None:
    assert not any(
        i.feature == PRODUCTS
        for level in ("sm_80", "sm_89", "sm_100a")
        for i in nvidia.machine(level).instructions
    )


def test_elements_of_one_byte_are_rows_along_the_reduction() -> None:
    assert len(TABLE) > 4
    for name, instruction in TABLE.items():
        a, b = ({rows.along for rows in role.rows} for role in instruction.operands)
        both = "_s32_" not in name
        assert a == ({"k", "m"} if both else {"k"})
        assert b == ({"k", "n"} if both and instruction.sizes["n"] >= 16 else {"k"})
        assert all(rows.block == 8 for role in instruction.operands for rows in role.rows)


# A kernel of one product; {A} and {B} are layouts of the shared tiles.
TEXT = """
kernel k(out y: f32[64, 64]):
  grid for g in 4:
    alloc a_tile: bf16[A_SHAPE] A_LAYOUT workgroup
    alloc b_tile: bf16[64, 64] B_LAYOUT workgroup
    subgroup for s in 2:
      alloc acc: f32[64, 64] private
      for step in 8:
        compute main(m in 64, n in 64, k in 64):
          a = a_tile[A_INDEX]
          b = b_tile[k, n]
          acc[m, n] add= f32(a) * f32(b)
"""
K_MAJOR = ("128, 64", "m + s * 64, k", "{0:128:64 1:64:1 ^3:3:3}")
M_MAJOR = ("64, 64", "k, m", "{0:64:64 1:64:1 ^3:3:3}")


def _kernel(a: tuple[str, str, str] = K_MAJOR, b: str = "{0:64:64 1:64:1 ^3:3:3}") -> Kernel:
    text = TEXT.replace("A_SHAPE", a[0]).replace("A_INDEX", a[1]).replace("A_LAYOUT", a[2])
    kernel = parse_kernel(text.replace("B_LAYOUT", b))
    return hold(kernel, "main", "acc", BF16, "c", {"m": "m", "n": "n"})


def _placed(kernel: Kernel, position: int) -> RowPlacement:
    """Where an operand of the kernel's product lies."""
    (compute,) = (s for s in walk_stmts(kernel.body) if isinstance(s, Compute))
    facts = Facts.empty().loop(var("s"), const(2)).loop(var("k_o"), const(4))
    dims = {d.var.name: (d.var, int(d.extent.value)) for d in compute.dims}  # type: ignore[attr-defined]
    for dim in compute.dims:
        facts = facts.loop(dim.var, dim.extent)
    operand, role = compute.operands[position], BF16.operands[position]
    for rows in role.rows:
        result = place_rows(rows, operand.view, dims, facts)
        if isinstance(result, RowPlacement):
            return result
    raise AssertionError(role)


MAJORS = {
    "rows of 128 bytes along k": (K_MAJOR, ("k", 64), "k_o * 16 + s * 4096", (0, 512)),
    "of 64 bytes": (
        ("128, 64", "m + s * 64, k", "{1:2:4096 0:128:32 1:32:1 ^2:3:3}"),
        ("k", 32),
        "k_o // 2 * 4096 + k_o % 2 * 16 + s * 2048",
        (0, 256),
    ),
    "of 32 bytes": (
        ("64, 64", "m, k", "{1:4:1024 0:64:16 1:16:1 ^1:3:3}"),
        ("k", 16),
        "k_o * 1024",
        (0, 128),
    ),
    "along m": (M_MAJOR, ("m", 64), "k_o * 1024", (0, 512)),
    "along m, of 64 bytes": (
        ("64, 64", "k, m", "{1:2:2048 0:64:32 1:32:1 ^2:3:3}"),
        ("m", 32),
        "k_o * 512",
        (2048, 256),
    ),
    "along m, of 32 bytes": (
        ("64, 128", "k, m + s * 64", "{1:8:1024 0:64:16 1:16:1 ^1:3:3}"),
        ("m", 16),
        "k_o * 256 + s * 4096",
        (1024, 128),
    ),
}


@pytest.mark.parametrize("name", MAJORS)
def test_operands_lie_in_rows(name: str) -> None:
    values, (along, length), first, blocks = MAJORS[name]
    kernel = tensorize(_kernel(values), "main", BF16, {"m": "m", "n": "n", "k": "k"})
    placed = _placed(kernel, 0)
    assert (placed.rows.along, placed.rows.length) == (along, length)
    assert str(placed.first) == first
    assert (placed.along, placed.across) == blocks


def test_what_a_descriptor_says_is_where_the_elements_are() -> None:
    """An element lies where the unit looks for it: block, row and column from the first one."""
    for given, *_ in MAJORS.values():
        kernel = tensorize(_kernel(given), "main", BF16, {"m": "m", "n": "n", "k": "k"})
        placed, rows = _placed(kernel, 0), _placed(kernel, 0).rows
        (compute,) = (s for s in walk_stmts(kernel.body) if isinstance(s, Compute))
        view = compute.operands[0].view
        for s, k_o, m, k in product(range(2), range(4), (0, 1, 9, 63), range(16)):
            values = {"s": s, "k_o": k_o, "m": m, "k": k}
            here = {var(name): const(value) for name, value in values.items()}
            first = simplify(substitute(placed.first, here))
            at = {"m": m, "k": k}
            assert isinstance(first, Const)
            plain = int(first.value) + (
                at[rows.along] // rows.length * placed.along
                + at[rows.across] // rows.block * placed.across
                + at[rows.across] % rows.block * rows.length
                + at[rows.along] % rows.length
            )
            offset = simplify(substitute(view.buffer.layout.offset_of(view.index), here))
            assert isinstance(offset, Const) and offset.value == rows.swizzle.place(plain)


REFUSED = {
    "no swizzle": (
        (*K_MAJOR[:2], "{0:128:64 1:64:1}"),
        "'a_tile' does not lie as 'wgmma_m64n64k16_f32_bf16' takes it",
    ),
    "another swizzle": ((*K_MAJOR[:2], "{0:128:64 1:64:1 ^3:2:3}"), "it is swizzled by"),
    "rows with gaps": (
        (*K_MAJOR[:2], "{0:128:72 1:64:1 ^3:3:3}"),
        "has to grow by 64 from m = 0 to m = 1",
    ),
    "inside of a block": (
        ("132, 64", "m + s * 4, k", "{0:132:64 1:64:1 ^3:3:3}"),
        "it begins at k_o * 16 + s * 256: not in the first of 8 rows, at a multiple of 8 elements",
    ),
    "inside of a run": (
        ("68, 128", "k + s * 4, m", "{0:128:1 1:128:64 ^3:3:3}"),
        "it begins at k_o * 16 + s * 4: not in the first of 8 rows, at a multiple of 8 elements",
    ),
    "blocks at odd places": (
        ("64, 64", "k, m", "{1:2:2080 0:64:32 1:32:1 ^2:3:3}"),
        "blocks along 'm' are no multiple of 256 elements apart",
    ),
    "it depends on n": (("128, 64", "m + n, k", K_MAJOR[2]), "it depends on 'n', which is 'n'"),
    "masked": (
        ("128, 64", "m + s * 64, k | m + s * 64 < 100", K_MAJOR[2]),
        "it is masked by m + s * 64 < 100",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_operands(name: str) -> None:
    values, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=re.escape(message)):
        tensorize(_kernel(values), "main", BF16, {"m": "m", "n": "n", "k": "k"})


def test_operands_in_global_memory_are_refused() -> None:
    kernel = parse_kernel("""
kernel k(in a: bf16[64, 16], in b: bf16[16, 64]):
  subgroup for s in 1:
    alloc acc: f32[64, 64] private
    compute main(m in 64, n in 64, k in 16):
      x = a[m, k]
      y = b[k, n]
      acc[m, n] add= f32(x) * f32(y)
""")
    kernel = hold(kernel, "main", "acc", BF16, "c", {"m": "m", "n": "n"})
    with pytest.raises(ScheduleError, match="it is in global memory, not in workgroup memory"):
        tensorize(kernel, "main", BF16, {"m": "m", "n": "n", "k": "k"})


STARTED = """
kernel k(in x: bf16[128, 64], in w: bf16[128, 64], out y: f32[64, 64]):
  alloc a_tile: bf16[64, 64] {0:64:64 1:64:1 ^3:3:3} workgroup
  alloc b_tile: bf16[64, 64] {0:64:64 1:64:1 ^3:3:3} workgroup
  subgroup for s in 1:
    alloc acc: f32[64, 64] private
    compute init(m in 64, n in 64):
      acc[m, n] = 0.0
    for step in 2:
      lane for lane in 128:
        for i in 32:
          a_tile[lane // 2, lane % 2 * 32 + i] = x[lane // 2 + step * 64, lane % 2 * 32 + i]
          b_tile[lane // 2, lane % 2 * 32 + i] = w[lane // 2 + step * 64, lane % 2 * 32 + i]
      barrier()
      compute main(m in 64, n in 64, k in 64):
        a = a_tile[m, k]
        b = b_tile[k, n]
        acc[m, n] add= f32(a) * f32(b)
      barrier()
    compute store(m in 64, n in 64):
      z = acc[m, n]
      y[m, n] = z
"""


def _on_products(text: str) -> Kernel:
    kernel = hold(parse_kernel(text), "main", "acc", BF16, "c", {"m": "m", "n": "n"})
    kernel = on_lanes(kernel, ["init", "store"], LANES)
    return tensorize(kernel, "main", BF16, {"m": "m", "n": "n", "k": "k"})


def test_products_are_started_and_awaited() -> None:
    kernel = _on_products(STARTED)
    verify(kernel)
    text = to_text(kernel)
    assert "compute main<wgmma_m64n64k16_f32_bf16>(m in 64, n in 64, k in 16) joins produ" in text
    assert text.count("fence_async()\n") == text.count("barrier()\n") == 2
    x, w = (np.random.default_rng(seed).integers(-3, 4, (128, 64)) for seed in (1, 2))
    y = np.zeros(64 * 64, np.float32)
    values = {name: array.astype(bf16.numpy).ravel() for name, array in (("x", x), ("w", w))}
    run(kernel, {**values, "y": y})
    assert (y.reshape(64, 64) == x[:64] @ w[:64] + x[64:] @ w[64:]).all()
    # What is awaited elsewhere stays so.
    awaited = _on_products(STARTED.replace("k in 64):", "k in 64) joins products:"))
    assert "fence_async" not in to_text(awaited) and "commit" not in to_text(awaited)


def test_only_subgroups_start_products() -> None:
    alone = STARTED.replace("subgroup for s in 1", "workgroup for s in 1")
    with pytest.raises(ScheduleError, match="tensorize: no subgroups run 'main'"):
        _on_products(alone.replace("lane for", "for"))


# Recipes.

CONFIG = workgroup_config(
    instruction="wgmma_m64n8k16_f32_bf16",
    lanes="n",
    group={"m": 128, "n": 8},
    item={"m": 64, "n": 8},
    order=("m", "n"),
    step={"k": 16},
    stages=2,
    fill="unit",
    k="k",
)


def _conv(rows: str, lanes: str = "oc", k: str = "ic") -> dict[str, Any]:
    """What a convolution changes of `CONFIG`, with ``rows`` of pixels."""
    return {
        "group": {rows: 128, lanes: 8},
        "item": {rows: 64, lanes: 8},
        "lanes": lanes,
        "order": (rows, lanes),
        "step": {k: 16},
        "k": k,
    }


_CONV, _BACKWARD = _conv("mb_oh_ow"), _conv("mb_ih_iw", "ic", "oc")
_PROBLEM = "mb2ic40ih7iw8oc16oh7ow8kh1kw1"
F16, S8 = "wgmma_m64n8k16_f32_f16", "wgmma_m64n8k32_s32_s8"

CASES: dict[str, tuple[Op, dict[str, Any]]] = {
    "tails": (tw.matmul("100x72:72x16", dtype="bf16"), {}),
    **{
        f"{stages} stages": (
            tw.matmul("70x88:88x20", dtype="f16:f16:f32"),
            {
                "instruction": F16,
                "group": {"m": 128, "n": 16},
                "stages": stages,
            },
        )
        for stages in (1, 3, 4)
    },
    "n": (
        tw.matmul("60x72:72x30", dtype="bf16:bf16:f32"),
        {
            "instruction": "wgmma_m64n16k16_f32_bf16",
            "group": {"m": 64, "n": 32},
            "item": {"m": 64, "n": 16},
            "step": {"k": 32},
        },
    ),
    "two products": (
        tw.matmul("200x48:48x8", dtype="bf16"),
        {"group": {"m": 256, "n": 8}, "item": {"m": 128, "n": 8}},
    ),
    "rows along m and n": (
        tw.matmul("72x56:56x16", dtype="bf16", src="ba", weights="ab"),
        {
            "instruction": "wgmma_m64n16k16_f32_bf16",
            "group": {"m": 128, "n": 16},
            "item": {"m": 64, "n": 16},
        },
    ),
    "bytes": (
        tw.matmul("100x96:96x8", dtype="s8:s8:s32"),
        {"instruction": S8, "step": {"k": 32}},
    ),
    "slices": (tw.matmul("100x64:64x8", dtype="bf16:bf16:f32"), {"slices": (("k", 2),)}),
    "batch": (tw.matmul("2x70x32:2x32x8", dtype="bf16"), {"order": ("b0", "m", "n")}),
    "bands": (
        tw.matmul("200x32:32x24", dtype="bf16"),
        {"raster": 2},
    ),
    "by weights": (
        tw.convolution(
            "mb16ic128ih4iw5oc16oh4ow5kh3kw3ph1pw1",
            dtype="bf16",
            src="nhwc",
            dst="nhwc",
            direction="bwd_w",
        ),
        {
            "instruction": "wgmma_m64n16k16_f32_bf16",
            "group": {"kh_kw_ic": 128, "oc": 16},
            "item": {"kh_kw_ic": 64, "oc": 16},
            "lanes": "oc",
            "order": ("kh_kw_ic", "oc"),
            "step": {"mb": 16},
            "reduce_order": ("oh", "ow", "mb"),
            "k": "mb",
            "persistent": 4,
        },
    ),
    "persistent": (tw.matmul("300x72:72x40", dtype="bf16"), {"persistent": 4, "stages": 3}),
    "persistent, one tile": (tw.matmul("100x72:72x8", dtype="bf16"), {"persistent": 4}),
    "persistent, one workgroup": (
        tw.matmul("200x40:40x24", dtype="bf16"),
        {"persistent": 1, "raster": 2, "stages": 4},
    ),
    "persistent, slices, batch": (
        tw.matmul("2x70x64:2x64x16", dtype="bf16:bf16:f32"),
        {"persistent": 3, "order": ("b0", "m", "n"), "slices": (("k", 2),), "stages": 1},
    ),
    "1x1": (tw.convolution(_PROBLEM, dtype="bf16", src="nhwc", dst="nhwc"), _CONV),
    **{
        f"columns of {name}": (tw.convolution(problem, dtype="bf16", src="axb", dst="axb"), changed)
        for name, problem, changed in (
            ("3x3", "mb2ic32ih8oc8oh8kh3ph1", _CONV),
            ("3x3 with tails", "mb3ic40ih7iw5oc8oh7ow5kh3kw3ph1pw1", _CONV),
            ("strides", "mb3ic32ih11iw9oc8oh6ow5kh3kw3sh2sw2ph1pw1", _CONV),
            ("dilation", "mb2ic32ih9oc8oh9kh3dh1ph2", _CONV),
            ("1x1 and strides", "mb4ic32ih16oc8oh8kh1sh2", _CONV),
            ("one image", "mb1ic32ih12oc8oh12kh3ph1", _conv("oh_ow")),
            ("1d", "mb4ic32ih1iw40oc8oh1ow40kh1kw5ph0pw2", _conv("mb_ow")),
            ("3d", "mb2ic32id4ih5iw6oc8od4oh5ow6kd3kh3kw3pd1ph1pw1", _conv("mb_od_oh_ow")),
        )
    },
    "columns backward": (
        tw.convolution(
            "mb2ic16ih8oc32oh8kh3ph1", direction="bwd_d", dtype="bf16", src="nhwc", dst="nhwc"
        ),
        _BACKWARD,
    ),
    "columns of phases": (
        tw.convolution(
            "mb4ic16ih16oc32oh8kh3sh2ph1", direction="bwd_d", dtype="bf16", src="nhwc", dst="nhwc"
        ),
        {
            **_BACKWARD,
            "group": {"mb_ih_q_iw_q": 128, "ic": 8},
            "item": {"mb_ih_q_iw_q": 64, "ic": 8},
            "order": ("phase", "mb_ih_q_iw_q", "ic"),
        },
    ),
    "columns of all pixels": (
        tw.convolution(
            "mb3ic64ih7oc16oh7kh3ph1", direction="bwd_w", dtype="bf16", src="nhwc", dst="nhwc"
        ),
        {
            "group": {"kh_kw_ic": 128, "oc": 16},
            "item": {"kh_kw_ic": 64, "oc": 16},
            "lanes": "oc",
            "order": ("kh_kw_ic", "oc"),
            "instruction": "wgmma_m64n16k16_f32_bf16",
            "step": {"mb_oh_ow": 16},
            "fused": ("mb", "oh", "ow"),
            "k": "mb_oh_ow",
        },
    ),
    "1x1 backward": (
        tw.convolution(
            _PROBLEM.replace("ic40", "ic16").replace("oc16", "oc40"),
            direction="bwd_d",
            dtype="bf16",
            src="nhwc",
            dst="nhwc",
        ),
        _BACKWARD,
    ),
}


def _scheduled(op: Op, changed: dict[str, Any]) -> KernelSchedule:
    op = op.resolved()
    return choose.schedule(Start.of(op), MACHINE, with_fields(CONFIG, **changed))


@pytest.mark.parametrize("name", in_turns(5, CASES))
def test_stages_compute_what_the_naive_one_does(name: str) -> None:
    op, changed = CASES[name]
    scheduled = check_races(op, MACHINE, with_fields(CONFIG, **changed))
    assert {"staged", "warp-specialized", "tensorized", "lowered"} <= scheduled.stages.keys()
    used = {s.instruction for s in walk_stmts(scheduled.kernel.body) if isinstance(s, Compute)}
    assert {
        changed.get("instruction", CONFIG.product.instruction),
        nvidia.TILE_UNIT.load.name,
    } <= used


def test_the_text(golden: Callable[[str, str], None]) -> None:
    """A tile as large as registers go: 128 by 256, four steps of 64 ahead."""
    changed = {
        "instruction": "wgmma_m64n256k16_f32_bf16",
        "group": {"m": 128, "n": 256},
        "item": {"m": 64, "n": 256},
        "step": {"k": 64},
        "stages": 4,
        "raster": 16,
    }
    scheduled = _scheduled(tw.matmul("4000x8192:8192x8192", dtype="bf16"), changed)
    golden("warpgroups", to_text(scheduled.kernel))


REFUSED_CONFIGS: dict[str, tuple[Op, dict[str, Any], str]] = {
    "another instruction": (
        tw.matmul("100x72:72x16", dtype="bf16"),
        {"instruction": "mma_m16n8k16_f32_bf16"},
        "staging.fill='unit' with product.instruction='mma_m16n8k16_f32_bf16'",
    ),
    "shares of steps": (
        tw.matmul("100x72:72x16", dtype="bf16"),
        {"stream_k": 4},
        "order.stream_k=4 with product.instruction='wgmma_m64n8k16_f32_bf16'",
    ),
    "through shared memory": (
        tw.matmul("100x72:72x16", dtype="bf16"),
        {"epilogue_tile": {"m": 16}, "persistent": 4},
        "storing.tile={'m': 16} with product.instruction='wgmma_m64n8k16_f32_bf16'",
    ),
    "padding": (
        tw.matmul("100x72:72x16", dtype="bf16"),
        {"padding": {"a": 8}},
        "staging.padding={'a': 8} with product.instruction='wgmma_m64n8k16_f32_bf16'",
    ),
    "one subgroup": (
        tw.matmul("100x72:72x16", dtype="bf16"),
        {"group": {"m": 64, "n": 8}},
        "one subgroup multiplies with staging.fill='unit'",
    ),
    "many": (
        tw.matmul("600x72:72x16", dtype="bf16"),
        {"group": {"m": 512, "n": 8}},
        "a workgroup of 1152 work-items",
    ),
    "one step": (
        tw.matmul("100x16:16x16", dtype="bf16"),
        {},
        "all of the reduction is one step",
    ),
    "a step of half a row": (
        tw.matmul("100x72:72x16", dtype="s8:s8:s32"),
        {"instruction": S8, "step": {"k": 48}},
        "k is 'k' here, of which a step has 48",
    ),
    "bytes across the reduction": (
        tw.matmul("96x96:96x8", dtype="s8:s8:s32", src="ba"),
        {"instruction": S8, "step": {"k": 32}},
        "'src_packed' does not take it without gaps",
    ),
    "rows of no 16 bytes": (
        tw.matmul("100x60:60x16", dtype="bf16"),
        {},
        "the tensor has rows of 120 bytes, no multiple of 16",
    ),
    "nchw": (
        tw.convolution(_PROBLEM, dtype="bf16", src="nchw", dst="nchw"),
        _CONV,
        "it goes along other dims than pixels and channels",
    ),
}


@pytest.mark.parametrize("name", REFUSED_CONFIGS)
def test_refused_configs(name: str) -> None:
    op, changed, message = REFUSED_CONFIGS[name]
    with pytest.raises(ScheduleError, match=re.escape(message)):
        _scheduled(op, changed)


def test_default_configs_take_products_of_subgroups() -> None:
    op = tw.matmul("1024x1024:1024x1024", dtype="bf16").resolved()
    config, scheduled = choose.choose(Start.of(op), MACHINE)
    assert isinstance(config, WorkgroupConfig)
    assert config.product.instruction.startswith("wgmma_m64n") and config.staging.fill == "unit"
    assert "warp-specialized" in scheduled.stages


@pytest.mark.parametrize(
    ("direction", "layout"), in_turns(3, ["fwd", "bwd_d", "bwd_w"], ["nhwc", "nchw"])
)
def test_convolutions_whose_tiles_work_items_copy(direction: str, layout: str) -> None:
    """Tiles that are no boxes: taps, and images in which M is none."""
    op = tw.convolution(
        "mb2ic56ih9oc56oh9kh3ph1", dtype="bf16", src=layout, dst=layout, direction=direction
    ).resolved()
    rows, lanes, k = {
        "fwd": ("mb_oh_ow", "oc", "ic"),
        "bwd_d": ("mb_ih_iw", "ic", "oc"),
        "bwd_w": ("kh_kw_ic", "oc", "mb_oh_ow"),
    }[direction]
    config = workgroup_config(
        instruction="wgmma_m64n16k16_f32_bf16",
        lanes=lanes,
        group={lanes: 16, rows: 128},
        item={lanes: 16, rows: 64},
        order=(rows, lanes),
        step={k: 16},
        vector=8,
        stages=3,
        fill="async",
        fused=("mb", "oh", "ow") if direction == "bwd_w" else (),
        k=k,
    )
    kernel = check_races(op, MACHINE, config).kernel
    text = to_text(kernel)
    assert "<wgmma_m64n16k16_f32_bf16>" in text and "fence_async()" in text
    ptx = to_ptx(lower_launches(kernel, MACHINE).text, "sm_90a")
    assert "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16" in ptx


def test_a_missing_fence_is_found() -> None:
    op = tw.matmul("128x64:64x16", dtype="bf16").resolved()
    config = with_fields(CONFIG, fill="copy", stages=1)
    kernel = choose.schedule(Start.of(op), MACHINE, config).kernel
    text = to_text(kernel)
    assert "fence_async()" in text
    memory = {p.name: np.zeros(p.buffer.layout.extent, p.dtype.numpy) for p in kernel.params}
    with pytest.raises(InterpreterFault, match="fence"):
        run(parse_kernel(re.sub(r" *fence_async\(\)\n", "", text)), memory)
