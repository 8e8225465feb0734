"""Stores of matrices: their table, what is emitted for them, and results that go through them."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from assembly import assembled
from emulated_stores import stored
from staged import check_races
from sweeps import in_turns
from tilewright.errors import CompilationError, InterpreterFault, ScheduleError
from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel, to_text
from tilewright.ir.stmt import Compute
from tilewright.ir.visit import walk_stmts
from tilewright.machines import nvidia
from tilewright.machines.instruction import Instruction
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.start import Start
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.operands.fragments import hold, on_lanes
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.testing.check import check_op
from workgroup_configs import with_fields, workgroup_config

MACHINE = nvidia.machine("sm_90a")
STORES = {i.name: i for i in MACHINE.instructions if i.stores}


# The table.


@pytest.mark.parametrize("instruction", STORES.values(), ids=str)
def test_matrices_are_where_the_manual_has_them(instruction: Instruction) -> None:
    """Of each matrix, lane l holds two elements of row l // 4; a warp's matrices are 8 rows apart
    where two are below each other, and warps have 16 rows each."""
    fragment, sizes = instruction.operands[0].fragment, instruction.sizes
    assert fragment is not None and fragment.lanes == instruction.lanes
    high = min(2, sizes["m"] // 8)
    assert sizes["m"] * 32 == 8 * high * fragment.lanes
    held, seen = fragment.registers, set()
    for lane, i in product(range(fragment.lanes), range(held)):
        matrix = i // 2
        row = lane // 32 * 16 + lane % 32 // 4 + 8 * (matrix % high)
        column = 8 * (matrix // high) + lane % 4 * 2 + i % 2
        seen.add((row, column))
        assert fragment.layout.place((row, column)) == lane * held + i
    assert len(seen) == sizes["m"] * sizes["n"]
    turned = instruction.name.endswith("_trans")
    assert f".x{held // 2}{'.trans' if turned else ''}.b16" in instruction.emit
    assert instruction.out.steps[-1].dim == ("m" if turned else "n")


def test_who_has_them() -> None:
    assert len(nvidia.LEVELS) > 4
    for level in nvidia.LEVELS:
        result = {i.name for i in nvidia.machine(level).instructions if i.stores}
        assert bool(result) == (level in ("sm_90a", "sm_100a"))
        # Only where warps act as one, four of them do.
        assert any("_m64" in name for name in result) == (level == "sm_90a")


# What is emitted: one matrix of a tile after another, by two subgroups.

TEXT = """
kernel k(in x: TYPE[M, N], out y: TYPE[1]):
  grid for g in 1:
    alloc tile: TYPE[2, M, N] LAYOUT workgroup
    subgroup for s in 2:
      alloc made: TYPE[M, N] private
      compute fill(m in M, n in N):
        a = x[m, n]
        made[m, n] = a
      compute store(m in M, n in N):
        a = made[m, n]
        tile[s, m, n] = a
"""
ROWS = {
    "dense": "{0:2:P 1:M:N 2:N:1}",
    "padded": "{0:2:PADDED 1:M:LONG 2:N:1}",
    "swizzled": "{0:2:P 1:M:N 2:N:1 ^2:3:3}",
}
COLUMNS = {
    "dense": "{0:2:P 2:N:M 1:M:1}",
    "padded": "{0:2:PADDED 2:N:HIGH 1:M:1}",
    "swizzled": "{0:2:P 2:N:M 1:M:1 ^1:3:3}",
}


def _kernel(instruction: Instruction, layout: str) -> Kernel:
    """A tile of four of the instruction's, before ``store`` is matched."""
    m, n = (2 * size for size in instruction.sizes.values())
    numbers = {"PADDED": 2 * m * n + 8 * max(m, n), "LONG": n + 8, "HIGH": m + 8, "P": m * n}
    text = TEXT.replace("LAYOUT", layout).replace("TYPE", instruction.out.dtype.name)
    for name, value in {**numbers, "M": m, "N": n}.items():
        text = re.sub(rf"\b{name}\b", str(value), text)
    return hold(parse_kernel(text), "fill", "made", instruction, "a", {"m": "m", "n": "n"})


def _lowered(kernel: Kernel, instruction: Instruction) -> Kernel:
    kernel = tensorize(kernel, "store", instruction, {"m": "m", "n": "n"})
    kernel = on_lanes(kernel, ["fill"], instruction.lanes)
    (fill,) = (s for s in walk_stmts(kernel.body) if isinstance(s, Compute) and s.name == "fill")
    *others, last = (d.var.name for d in fill.dims)
    return lower_computes(kernel, ["fill"], vector=last, lanes=2, unroll=others)


@pytest.mark.parametrize(("instruction", "form"), in_turns(3, STORES.values(), ROWS), ids=str)
def test_rows_are_where_the_layout_has_them(instruction: Instruction, form: str) -> None:
    turned = instruction.name.endswith("_trans")
    layout = (COLUMNS if turned else ROWS)[form]
    kernel = _lowered(_kernel(instruction, layout), instruction)
    (tile,) = {s.out.buffer for s in walk_stmts(kernel.body) if isinstance(s, Compute)}
    source, _ = (p.buffer for p in kernel.params)
    values = np.arange(1, 1 + source.layout.extent, dtype=np.uint16)
    module = lower_launches(kernel, MACHINE)
    memory = stored(module.text, "k_0", values, tile.layout.extent)
    places = [tile.layout.place(at) for at in np.ndindex(tile.shape)]
    assert np.array_equal(memory[places], np.tile(values, 2))
    assert np.count_nonzero(memory) == 2 * values.size
    ptx = to_ptx(module.text, "sm_90a")
    assert ptx.count("stmatrix.sync.aligned.m8n8") == 4
    assembled(ptx, "sm_90a")


BF16 = STORES["stmatrix_m16n16_bf16"]


def test_a_planted_wrong_fragment_is_found() -> None:
    kernel = _lowered(_kernel(BF16, ROWS["dense"]), BF16)
    memory = {p.name: np.zeros(p.buffer.layout.extent, p.dtype.numpy) for p in kernel.params}
    run(kernel, memory, instructions=MACHINE.instructions)
    text = to_text(kernel)
    right = "stmatrix_m16n16_bf16>"
    assert right in text
    # Of the four matrices, lanes hold the second and the third in turn.
    changed = text.replace("1:2:4 0:2:2 0:8:128", "1:2:2 0:2:4 0:8:128")
    assert changed != text
    with pytest.raises(InterpreterFault, match="wrong fragment: the lanes do not hold 'made'"):
        run(parse_kernel(changed), memory, instructions=MACHINE.instructions)


REFUSED = {
    "rows of odd places": (
        "{0:2:2048 1:32:36 2:32:1}",
        "rows of 8 elements begin anywhere",
    ),
    "runs of four": (
        "{0:2:1024 1:32:32 2:32:1 ^2:2:3}",
        "rows of 8 elements begin anywhere: at m * 32 + (m % 4 ^ n // 4) * 4",
    ),
    "rows of four": (
        "{0:2:2048 1:32:64 2:8:8 2:4:1}",
        "has to grow by 4 from n = 0 to n = 4",
    ),
    "rows along m": (COLUMNS["dense"], "rows of 8 elements begin anywhere: at m + m_o * 16 + n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_layouts(name: str) -> None:
    layout, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=re.escape(message)):
        _lowered(_kernel(BF16, layout), BF16)


def test_only_registers_are_stored() -> None:
    kernel = parse_kernel("""
kernel k(in x: bf16[16, 16], out y: bf16[1]):
  alloc tile: bf16[16, 16] workgroup
  compute store(m in 16, n in 16):
    a = x[m, n]
    tile[m, n] = a
""")
    with pytest.raises(ScheduleError, match="it is in global memory, not in registers"):
        tensorize(kernel, "store", BF16, {"m": "m", "n": "n"})


def test_only_workgroup_memory_takes_them() -> None:
    kernel = parse_kernel("""
kernel k(in x: bf16[16, 16], out y: bf16[16, 16]):
  grid for g in 1:
    subgroup for s in 1:
      alloc made: bf16[16, 16] private
      compute fill(m in 16, n in 16):
        a = x[m, n]
        made[m, n] = a
      compute store(m in 16, n in 16):
        a = made[m, n]
        y[m, n] = a
""")
    kernel = _lowered(hold(kernel, "fill", "made", BF16, "a", {"m": "m", "n": "n"}), BF16)
    with pytest.raises(CompilationError, match="it stores to workgroup memory only"):
        lower_launches(kernel, MACHINE)


# Recipes.

CONFIG = workgroup_config(
    instruction="wgmma_m64n32k16_f32_bf16",
    lanes="n",
    group={"m": 128, "n": 32},
    item={"m": 64, "n": 32},
    order=("m", "n"),
    step={"k": 16},
    stages=2,
    fill="unit",
    epilogue_tile={"m": 64},
    k="k",
)
WARPS = workgroup_config(
    instruction="mma_m16n8k16_f32_bf16",
    lanes="n",
    group={"m": 64, "n": 64},
    item={"m": 32, "n": 32},
    order=("m", "n"),
    step={"k": 32},
    vector=8,
    stages=3,
    fill="async",
    store_padding=8,
    epilogue_tile={"m": 32},
    k="k",
)
POST = [tw.bias(), tw.relu()]
HALVES: dict[str, Any] = {
    "instruction": "wgmma_m64n32k16_f32_f16",
}
_PIXELS: dict[str, Any] = {
    "lanes": "oc",
    "group": {"oc": 64, "oh_ow": 64},
    "item": {"oc": 32, "oh_ow": 32},
    "order": ("oh_ow", "oc"),
    "step": {"ic": 16},
    "epilogue_tile": {"oh_ow": 32},
    "k": "ic",
}
_FOUR: dict[str, Any] = {
    "instruction": "wgmma_m64n32k16_f32_bf16",
    "group": {"oc": 32, "oh_ow": 64},
    "item": {"oc": 32, "oh_ow": 64},
    "epilogue_tile": {"oh_ow": 64},
    "padding": {},
}
# By what lies where: the op, its config, what stores it (nothing: lanes do), and the level.
CASES: dict[str, tuple[Op, WorkgroupConfig, str, str]] = {
    "rows": (tw.matmul("100x40:40x72", dtype="bf16"), CONFIG, "stmatrix_m64n16_bf16", "sm_90a"),
    "halves": (
        tw.matmul("100x40:40x72", dtype="f16"),
        with_fields(CONFIG, **HALVES),
        "stmatrix_m64n16_f16",
        "sm_90a",
    ),
    "columns": (
        tw.matmul("104x40:40x72", dtype="bf16", dst="ba"),
        CONFIG,
        "stmatrix_m64n16_bf16_trans",
        "sm_90a",
    ),
    "8 columns": (
        tw.matmul("100x40:40x72", dtype="bf16"),
        with_fields(
            CONFIG,
            instruction="wgmma_m64n8k16_f32_bf16",
            group={"m": 128, "n": 8},
            item={"m": 64, "n": 8},
        ),
        "stmatrix_m64n8_bf16",
        "sm_90a",
    ),
    "pieces of columns": (
        tw.matmul("100x40:40x72", dtype="bf16"),
        with_fields(CONFIG, epilogue_tile={"n": 16}),
        "stmatrix_m64n16_bf16",
        "sm_90a",
    ),
    "rows, after it": (
        tw.matmul("100x40:40x72", dtype="bf16", epilogue=[*POST, tw.add("residual")]),
        with_fields(CONFIG, persistent=2),
        "stmatrix_m64n16_bf16",
        "sm_90a",
    ),
    "floats": (tw.matmul("100x40:40x72", dtype="bf16:bf16:f32"), CONFIG, "", "sm_90a"),
    "rows of warps": (
        tw.matmul("100x72:72x72", dtype="bf16"),
        WARPS,
        "stmatrix_m16n16_bf16",
        "sm_100a",
    ),
    "rows of warps, after it": (
        tw.matmul("100x72:72x72", dtype="bf16", epilogue=POST),
        with_fields(WARPS, epilogue_tile={"m": 16}),
        "stmatrix_m16n16_bf16",
        "sm_90a",
    ),
    "columns of warps": (
        tw.matmul("104x72:72x72", dtype="bf16", dst="ba"),
        WARPS,
        "stmatrix_m16n16_bf16_trans",
        "sm_90a",
    ),
    "nchw": (
        tw.convolution("mb1ic32ih8oc64oh8kh3ph1", dtype="bf16", src="nchw", dst="nchw"),
        with_fields(WARPS, **_PIXELS),
        "stmatrix_m16n16_bf16_trans",
        "sm_100a",
    ),
    "nchw, four warps": (
        tw.convolution("mb1ic32ih8oc64oh8kh3ph1", dtype="bf16", src="nchw", dst="nchw"),
        with_fields(WARPS, **{**_PIXELS, **_FOUR}),
        "stmatrix_m64n16_bf16_trans",
        "sm_90a",
    ),
    "nhwc": (
        tw.convolution("mb1ic32ih8oc64oh8kh3ph1", dtype="bf16", src="nhwc", dst="nhwc"),
        with_fields(WARPS, **_PIXELS),
        "stmatrix_m16n16_bf16",
        "sm_90a",
    ),
    "bytes to halves": (
        tw.matmul("100x72:72x72", dtype="s8:s8:f16"),
        with_fields(WARPS, instruction="mma_m16n8k32_s32_s8", vector=16),
        "stmatrix_m16n16_f16",
        "sm_90a",
    ),
    # Lanes that store rows read rows of the residual, too.
    "a residual": (
        tw.matmul("100x72:72x72", dtype="bf16", epilogue=[tw.add("residual")]),
        WARPS,
        "",
        "sm_90a",
    ),
    "a residual, of pixels": (
        tw.convolution(
            "mb1ic32ih8oc64oh8kh3ph1",
            dtype="bf16",
            src="nchw",
            dst="nchw",
            epilogue=[tw.add("residual")],
        ),
        with_fields(WARPS, **_PIXELS),
        "",
        "sm_90a",
    ),
    "before sm_90": (tw.matmul("100x72:72x72", dtype="bf16"), WARPS, "", "sm_80"),
    # Rows of 34 bytes begin anywhere.
    "odd rows": (
        tw.matmul("100x72:72x72", dtype="bf16"),
        with_fields(WARPS, store_padding=2, vector=2),
        "",
        "sm_90a",
    ),
}


def _stores(kernel: Kernel) -> set[str]:
    result = {s.instruction for s in walk_stmts(kernel.body) if isinstance(s, Compute)}
    return {name for name in result if name in STORES}


@pytest.mark.parametrize("name", in_turns(5, CASES))
def test_results_are_stored_as_matrices(name: str) -> None:
    op, config, expected, level = CASES[name]
    machine = nvidia.machine(level)
    kernel = check_races(op, machine, config).kernel
    assert _stores(kernel) == ({expected} if expected else set())
    ptx = to_ptx(lower_launches(kernel, machine).text, level)
    assert ("stmatrix.sync.aligned.m8n8" in ptx) == bool(expected)
    assert (".trans.shared.b16 [" in ptx.replace("ldmatrix", "")) or "_trans" not in expected
    assembled(ptx, level)


def _checked(op: Op, level: str, config: WorkgroupConfig | None = None) -> dict[str, float]:
    """Turns of the banks per store of a matrix, by the tile. Results are those of float64."""
    reports = check_op(op, nvidia.machine(level), config=config)
    assert [issue for report in reports for issue in report.issues] == []
    notes = [note for report in reports for note in report.notes if note.access == "store"]
    return {note.buffer: note.conflicts for note in notes if note.buffer.startswith("dst_")}


@pytest.mark.parametrize("name", ["columns", "rows, after it", "rows of warps, after it", "nchw"])
def test_numbers(name: str) -> None:
    op, config, _, level = CASES[name]
    assert len(_checked(op, level, config)) == 1


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_default_configs_store_rows_without_conflicts(layout: str) -> None:
    op = tw.convolution(
        "mb1ic32ih16oc64oh16kh3ph1", dtype="bf16", src=layout, dst=layout, epilogue=POST
    )
    _, scheduled = choose.choose(Start.of(op.resolved()), nvidia.machine("sm_100a"))
    assert _stores(scheduled.kernel) == {"stmatrix_m16n16_bf16"}
    assert _checked(op, "sm_100a") == {"dst_made_shared": 1}
    # Rows of 128 bytes, swizzled.
    whole = with_fields(
        CONFIG,
        instruction="wgmma_m64n64k16_f32_bf16",
        group={"m": 128, "n": 64},
        item={"m": 64, "n": 64},
    )
    assert _checked(tw.matmul("128x64:64x64", dtype="bf16"), "sm_90a", whole) == {"dst_tile": 1}


def test_a_missing_barrier_is_found() -> None:
    """Lanes store rows of what others hold."""
    op = tw.matmul("64x64:64x64", dtype="bf16").resolved()
    kernel = choose.schedule(Start.of(op), MACHINE, WARPS).kernel
    lines = to_text(kernel).splitlines()
    memory = {p.name: np.zeros(p.buffer.layout.extent, p.dtype.numpy) for p in kernel.params}
    run(parse_kernel("\n".join(lines)), memory)
    store = next(i for i, line in enumerate(lines) if "<stmatrix_" in line)
    barrier = next(i for i, line in enumerate(lines) if i > store and line.strip() == "barrier()")
    del lines[barrier]
    with pytest.raises(InterpreterFault, match="data race on 'dst_made_shared'"):
        run(parse_kernel("\n".join(lines)), memory)
