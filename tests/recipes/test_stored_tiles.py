"""Results that a unit stores from workgroup memory: configs with whole tiles and `through`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from assembly import assembled
from staged import check_races
from sweeps import in_turns
from tilewright.errors import InterpreterFault, ScheduleError
from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel, to_text
from tilewright.ir.stmt import Compute
from tilewright.ir.visit import walk_stmts
from tilewright.machines import nvidia
from tilewright.machines.nvidia import TILE_UNIT
from tilewright.machines.nvidia.tensor_map import TensorMap
from tilewright.ops.op import Op
from tilewright.passes import run as run_passes
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from workgroup_configs import with_fields, workgroup_config

MACHINE = nvidia.machine("sm_90a")
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


def _conv(rows: str, lanes: str = "oc", k: str = "ic", **changed: Any) -> dict[str, Any]:
    """What a convolution changes of `CONFIG`, with ``rows`` of pixels."""
    return {
        "group": {rows: 128, lanes: 32},
        "item": {rows: 64, lanes: 32},
        "epilogue_tile": {rows: 64},
        "lanes": lanes,
        "order": (rows, lanes),
        "step": {k: 16},
        "k": k,
        **changed,
    }


def _n(n: int, **changed: Any) -> dict[str, Any]:
    return {
        "instruction": f"wgmma_m64n{n}k16_f32_bf16",
        "group": {"m": 128, "n": n},
        "item": {"m": 64, "n": n},
        **changed,
    }


POST = [tw.bias(), tw.add("residual"), tw.relu()]
_NHWC: dict[str, Any] = {"dtype": "bf16", "src": "axb", "dst": "axb"}
CASES: dict[str, tuple[Op, dict[str, Any]]] = {
    "tails": (tw.matmul("100x40:40x72", dtype="bf16"), {}),
    "1 stage": (tw.matmul("70x40:40x24", dtype="bf16"), {"stages": 1}),
    "3 stages": (tw.matmul("130x72:72x24", dtype="bf16"), {"stages": 3}),
    "several boxes": (tw.matmul("130x40:40x136", dtype="bf16:bf16:f32"), _n(96)),
    "one row of 160 bytes": (tw.matmul("100x40:40x80", dtype="bf16"), _n(160)),
    "two products": (
        tw.matmul("200x40:40x32", dtype="bf16"),
        {"group": {"m": 256, "n": 32}, "item": {"m": 128, "n": 32}},
    ),
    "pieces of rows": (
        tw.matmul("300x40:40x32", dtype="bf16"),
        {"group": {"m": 256, "n": 32}, "item": {"m": 128, "n": 32}, "persistent": 1},
    ),
    "pieces of columns": (tw.matmul("100x40:40x72", dtype="bf16"), {"epilogue_tile": {"n": 16}}),
    "persistent": (tw.matmul("300x40:40x72", dtype="bf16"), {"persistent": 4, "stages": 3}),
    "persistent, bands": (
        tw.matmul("300x40:40x72", dtype="bf16:bf16:f32"),
        {"persistent": 2, "raster": 2},
    ),
    "after it": (
        tw.matmul("100x40:40x72", dtype="bf16", epilogue=POST),
        {"persistent": 2},
    ),
    "slices": (tw.matmul("100x64:64x72", dtype="bf16:bf16:f32"), {"slices": (("k", 2),)}),
    "batch": (tw.matmul("2x70x32:2x32x40", dtype="bf16"), {"order": ("b0", "m", "n")}),
    "columns first": (
        tw.matmul("104x40:40x72", dtype="bf16", dst="ba"),
        {},
    ),
    "1x1": (tw.convolution("mb3ic40ih7iw5oc48oh7ow5kh1kw1", **_NHWC), _conv("mb_oh_ow")),
    "3x3": (
        tw.convolution("mb3ic32ih7iw5oc40oh7ow5kh3kw3ph1pw1", **_NHWC),
        _conv("mb_oh_ow", persistent=2),
    ),
    "by data": (
        tw.convolution("mb2ic40ih8oc32oh8kh3ph1", direction="bwd_d", **_NHWC),
        _conv("mb_ih_iw", "ic", "oc"),
    ),
}


def _scheduled(op: Op, changed: dict[str, Any]) -> KernelSchedule:
    op = op.resolved()
    return choose.schedule(Start.of(op), MACHINE, with_fields(CONFIG, **changed))


def _stores(kernel: Kernel) -> list[Compute]:
    result = [s for s in walk_stmts(kernel.body) if isinstance(s, Compute)]
    return [compute for compute in result if compute.instruction == TILE_UNIT.store.name]


@pytest.mark.parametrize("name", in_turns(5, CASES))
def test_stages_compute_what_the_naive_one_does(name: str) -> None:
    op, changed = CASES[name]
    scheduled = check_races(op, MACHINE, with_fields(CONFIG, **changed))
    assert {"stored", "warp-specialized", "lowered"} <= scheduled.stages.keys()
    assert _stores(scheduled.kernel)


@pytest.mark.parametrize("name", CASES)
def test_they_are_lowered(name: str) -> None:
    kernel = _scheduled(*CASES[name]).kernel
    module = lower_launches(kernel, MACHINE)
    ptx = to_ptx(module.text, "sm_90a")
    assert "cp.async.bulk.tensor" in ptx and ".global.shared::cta.tile.bulk_group" in ptx
    assembled(ptx, "sm_90a")


def test_full_tiles_are_assembled() -> None:
    """As large as registers go, in swizzled rows of 128 bytes: no more shared memory than there is,
    and nothing spilled."""
    changed = _n(256, step={"k": 64}, stages=3, persistent=132)
    kernel = _scheduled(tw.matmul("4000x4096:4096x4096", dtype="bf16"), changed).kernel
    module = lower_launches(kernel, MACHINE)
    swizzles = [
        TensorMap.from_text(map_.text).swizzle for launch in module.launches for map_ in launch.maps
    ]
    assert swizzles == [128, 128, 128]
    ptx = to_ptx(module.text, "sm_90a")
    assert ptx.count(".global.shared::cta.tile.bulk_group") == 4
    assert not re.search(r"st\.global", ptx)
    assembled(ptx, "sm_90a")


REFUSED: dict[str, tuple[Op, dict[str, Any], str]] = {
    "pieces that some lanes hold": (
        tw.matmul("100x72:72x16", dtype="bf16"),
        {"epilogue_tile": {"m": 16}},
        "storing.tile={'m': 16} with product.instruction='wgmma_m64n32k16_f32_bf16'",
    ),
    "a unit without products of shared memory": (
        tw.matmul("64x64:64x32"),
        {"instruction": "fma_f32x4", "k": "", "item": {"m": 4, "n": 8}, "epilogue_tile": {"m": 4}},
        "staging.fill='unit' with product.instruction='fma_f32x4'",
    ),
    "nchw": (
        tw.convolution("mb2ic40ih7iw8oc32oh7ow8kh1kw1", dtype="bf16", src="axb", dst="abx"),
        _conv("mb_oh_ow"),
        "'epilogue' stores no box",
    ),
    "phases": (
        tw.convolution("mb4ic32ih16oc32oh8kh3sh2ph1", direction="bwd_d", **_NHWC),
        _conv("mb_ih_q_iw_q", "ic", "oc", order=("phase", "mb_ih_q_iw_q", "ic")),
        "'epilogue' stores no box",
    ),
    "rows of no 16 bytes": (
        tw.matmul("60x72:72x30", dtype="bf16"),
        {},
        "the tensor has rows of 60 bytes, no multiple of 16",
    ),
    "sums as they come": (
        tw.matmul("100x64:64x72", dtype="bf16:bf16:f32"),
        {"slices": (("k", 2),), "atomic": True},
        "'k_slice_store' does more than write its result",
    ),
    "no room": (
        tw.matmul("4000x4096:4096x4096", dtype="bf16"),
        _n(256, step={"k": 64}, stages=4),
        "a workgroup shares",
    ),
}


def test_parts_for_a_cluster_that_are_outside_of_the_tensor() -> None:
    """Of a tile of B that is wider than B, the second workgroup copies what is beyond it."""
    changed = {"cluster": {"m": 2}, "step": {"k": 64}}
    op = tw.matmul("256x128:128x16", dtype="bf16", weights="ba", src="ba")
    kernel = run_passes(_scheduled(op, changed).kernel)
    assert "b = weights[k + step * 64, m_o * 16 + n | m_o * 16 + n < 16]" in to_text(kernel)
    assembled(to_ptx(lower_launches(kernel, MACHINE).text, "sm_90a"), "sm_90a")


def test_sums_of_one_step_begin_before_its_products() -> None:
    """Or the assembler has them wait for one another."""
    changed = _n(64, item={"m": 128, "n": 64}, group={"m": 256, "n": 64}, step={"k": 64})
    changed |= {"stages": 1, "fill": "copy", "vector": 8, "epilogue_tile": {}}
    kernel = run_passes(_scheduled(tw.matmul("512x33:33x128", dtype="bf16"), changed).kernel)
    ptx = to_ptx(lower_launches(kernel, MACHINE).text, "sm_90a")
    assert ptx.count("wgmma.mma_async") == 8 and ptx.count("wgmma.fence") == 1
    assembled(ptx, "sm_90a")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_configs(name: str) -> None:
    op, changed, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=re.escape(message)):
        _scheduled(op, changed)


# Which of such lines of the lowered kernel is left out, and what is found because of it.
FAULTS = {
    "no fence": ("fence_async()", 0, "missing fence"),
    "no wait before the tile is written again": ("wait_stores(0)", 0, "data race on 'dst_tile'"),
    "no wait at the end": ("wait_stores(0)", 1, "is never waited for"),
    "lanes write too early": ("subgroup_barrier()", 1, "data race on 'dst_tile'"),
    "it is stored too early": ("subgroup_barrier()", 2, "data race on 'dst_tile'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults(name: str) -> None:
    line, number, message = FAULTS[name]
    kernel = _scheduled(tw.matmul("256x64:64x64", dtype="bf16"), {"persistent": 2}).kernel
    lines = to_text(kernel).splitlines()
    result = [i for i, other in enumerate(lines) if other.strip() == line]
    memory = {p.name: np.zeros(p.buffer.layout.extent, p.dtype.numpy) for p in kernel.params}
    run(parse_kernel("\n".join(lines)), memory)
    del lines[result[number]]
    with pytest.raises(InterpreterFault, match=message):
        run(parse_kernel("\n".join(lines)), memory)
