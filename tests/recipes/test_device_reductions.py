"""Reductions on devices: launches, work for all of them, registers, and neighbours in memory."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.interpret import run as interpret
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import For, Kernel, LoopKind, Store
from tilewright.ir.visit import walk_stmts
from tilewright.passes import run as run_passes
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule.queries.place import sequence
from tilewright.targets.registry import find_target
from tilewright.testing.interpreted import InterpretedKernel
from tilewright.testing.verify import Status, verify


def scheduled(kernel: Kernel, cores: int) -> Kernel:
    """For a GPU of so many cores; on integers it gives what ``kernel`` does."""
    machine = replace(find_target("nvidia:sm_80").machine, cores=cores)
    result = run_passes(choose.choose(Start(kernel, kernel), machine)[1].kernel)
    rng = np.random.default_rng(0)
    memory = {
        p.name: rng.integers(-3, 4, p.buffer.layout.extent).astype(p.dtype.numpy)
        for p in kernel.arrays
    }
    results: list[dict[str, Any]] = []
    for stage in (kernel, result):
        results.append({name: array.copy() for name, array in memory.items()})
        interpret(stage, results[-1])
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array, err_msg=name)
    return result


def launches(kernel: Kernel) -> list[For]:
    """The outermost loops over workgroups."""
    return [stmt for stmt in sequence(kernel.body) if isinstance(stmt, For)]


def test_a_work_item_goes_through_all_computes_of_its_result() -> None:
    """They were launched one after the other, and results went through memory."""
    kernel = tw.parse_kernel("""
kernel columns(in x: f32[4, 9, 128], out y: f32[4, 9, 128]):
  alloc most: f32[4, 128]
  alloc total: f32[4, 128]
  compute least(i in 4, j in 128):
    most[i, j] = -inf
  compute find(i in 4, j in 128, k in 9):
    most[i, j] max= x[i, k, j]
  compute zero(i in 4, j in 128):
    total[i, j] = 0.0
  compute sum(i in 4, j in 128, k in 9):
    total[i, j] add= x[i, k, j] - most[i, j]
  compute result(i in 4, k in 9, j in 128):
    y[i, k, j] = x[i, k, j] * total[i, j]
""")
    result = scheduled(kernel, cores=1)
    assert len(launches(result)) == 1
    assert "alloc total: f32[1] private" in to_text(result)


def test_rows_that_nearly_fill_a_device_are_one_launch() -> None:
    """As many as half of the workgroups that a device is to have."""
    result = tw.compile(tw.softmax("512x768"), "nvidia:sm_90a")
    assert [launch.groups for launch in result.module.launches] == [512]


def test_parts_of_parts() -> None:
    """Neither dim has as many parts as there are workgroups. Sums are in registers."""
    kernel = tw.parse_kernel("""
kernel channels(in x: f32[40, 40, 64], out y: f32[64]):
  compute zero(c in 64):
    y[c] = 0.0
  compute sum(i in 40, j in 40, c in 64):
    y[c] add= x[i, j, c]
""")
    result = scheduled(kernel, cores=108)
    text = to_text(result)
    assert "alloc sum_pieces: f32[40, 64]" in text and "alloc sum_pieces2: f32[20, 40, 64]" in text
    groups = [
        int(str(launch.extent)) for launch in launches(result) if launch.kind is LoopKind.GRID
    ]
    assert max(groups) == 400
    stores = [stmt for stmt in walk_stmts(result.body) if isinstance(stmt, Store)]
    sums = [s.buffer.name for s in stores if f"{s.buffer.name}[" in to_text(s.value)]
    assert sums == ["sum_pieces2_tile", "sum_pieces_tile", "y_tile"]


def test_neighbouring_work_items_reach_neighbours() -> None:
    """The dims of a result are in the order of its layout, not in that in which it names them."""
    result = tw.compile(tw.batch_norm("mb8ic64ih16", src="axb", dst="axb"), "nvidia:sm_90a")
    last = to_text(result.schedule.kernel).splitlines()[-1]
    assert last.strip().startswith("dst[group // 128, item % 64, ")


@pytest.mark.parametrize(
    ("op", "lanes"),
    [
        (tw.gather("3000x768:32x128"), 4),
        (tw.gather("3000x768:32x128", dtype="bf16:s32:bf16"), 8),
        (tw.gather("3000x770:32x128"), 2),  # rows begin at multiples of 2 elements
        (tw.gather("3000x768:32x16"), 2),  # too few for more
        (tw.gather("3000x767:32x128"), 1),
        (tw.concat("4096x1024:4096x3072", axis=1), 4),
        (tw.concat("4096x1021:4096x3075", axis=1), 1),
    ],
)
def test_a_work_item_moves_what_memory_gives_at_once(op: Any, lanes: int) -> None:
    result = tw.compile(op, "nvidia:sm_90a")
    vectors = re.findall(r"vector for \w+ in (\d+)", to_text(result.schedule.kernel))
    assert set(vectors) == ({str(lanes)} if lanes > 1 else set())
    assert (f"global.v{4 if lanes > 2 else 2}.b32" in result.source("asm")) == (lanes > 1)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_wide_work_items_are_right(dtype: str) -> None:
    """A norm by channels of few images, which lie last, on a GPU that is full of little."""
    machine = find_target("nvidia:sm_80").machine
    hierarchy = replace(machine.hierarchy, workgroup=128)
    machine = replace(machine, cores=1, hierarchy=hierarchy)
    op = tw.batch_norm("mb2ic16ih6", src="axb", dst="axb", dtype=dtype)
    _, result = choose.choose(Start.of(op.resolved()), machine)
    assert "vector for d1 in 4" in to_text(result.kernel)
    verdict = verify(op, lambda op: InterpretedKernel(op, machine))
    assert verdict.status is Status.PASSED, verdict
