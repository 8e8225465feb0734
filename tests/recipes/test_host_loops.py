"""Plain kernels with loops and conditions around computes: the host's, and launches inside."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES, need_device
from random_ir import random_kernel
from staged import carried_out
from tilewright.dtypes import s8, s32, s64
from tilewright.interpret import run as interpret
from tilewright.ir.parser import parse_kernel
from tilewright.ir.stmt import For, Kernel, LoopKind, While
from tilewright.ir.verify import verify
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.passes import run as run_passes
from tilewright.recipes import plain
from tilewright.targets.program import abi_of
from tilewright.targets.registry import find_target
from tilewright.targets.spirv.device import devices

LAUNCHED = (LoopKind.PARALLEL, LoopKind.GRID)

# The condition loads what computes inside store.
ROOTS = """
kernel roots(in a: f32[80, 64], out root: f32[80, 64], out steps: s64[1]):
  alloc error: f32[1]
  compute start(i in 80, j in 64):
    root[i, j] = max(a[i, j], 1.0)
  error[0] = inf
  steps[0] = 0
  while 0.00001 < error[0]:
    compute step(i in 80, j in 64):
      root[i, j] = (root[i, j] + a[i, j] / root[i, j]) * 0.5
    error[0] = 0.0
    compute worst(i in 80, j in 64):
      error[0] max= abs(root[i, j] * root[i, j] - a[i, j]) / a[i, j]
    steps[0] = steps[0] + 1
"""
# Steps that need one another, of rows that do not; a condition by value, one by what is loaded.
STEPS = """
kernel steps(n: s64 in 1..200, twice: bool, inout a: f32[n, 70], inout b: f32[n, 70], in m: s64[1]):
  for t in m[0]:
    half = t // 2
    compute forth(i in n, j in 70):
      b[i, j] = a[n - 1 - i, j] + f32(half)
    if t % 2 == 0:
      compute back(i in n, j in 70):
        a[i, j] = b[i, 69 - j] * 0.5
    else:
      if b[0, 0] < 8.0:
        compute up(i in n, j in 70):
          a[i, j] = b[i, j] + 1.0
  if twice:
    compute double(i in n, j in 70):
      a[i, j] = a[i, j] * 2.0
"""
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "roots": (ROOTS, 2, {"a": np.linspace(1, 90, 5120, dtype=np.float32).reshape(80, 64)}),
    "steps": (
        STEPS,
        4,
        {
            "n": 61,
            "twice": True,
            "a": np.arange(61 * 70, dtype=np.float32).reshape(61, 70) % 9,
            "b": np.zeros((61, 70), np.float32),
            "m": np.array([5]),
        },
    ),
}
TARGETS = ("x86", "x86:avx2", "spirv", "spirv:gpu", "nvidia:sm_80")


def launched(kernel: Kernel) -> list[For]:
    """The outermost of the loops that workers run."""
    result = [s for s in walk_stmts(kernel.body) if isinstance(s, For) and s.kind in LAUNCHED]
    inside = {loop.body for loop in result}
    return [loop for loop in result if loop not in inside]


def scheduled(text: str | Kernel, target: str) -> Kernel:
    kernel = parse_kernel(text) if isinstance(text, str) else text
    machine = find_target(target).machine
    result = carried_out(
        plain.Plain().schedule, kernel, machine, plain.default_config(kernel, machine)
    ).kernel
    verify(result)
    return result


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_loops_inside_are_launched(case: str, target: str) -> None:
    text, least, _ = CASES[case]
    assert len(launched(scheduled(text, target))) >= least


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_they_run(case: str, target: str) -> None:
    need_device(target)
    text, _, arguments = CASES[case]
    run = tw.compile(tw.parse_kernel(text), target, threads=2)
    if not run.target.runs_here:
        assert run.source("asm")
        return
    wanted = tw.compile(tw.parse_kernel(text), "interpreter")(**copied(arguments))
    got = run(**copied(arguments))
    assert wanted
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-6, err_msg=name)


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    return {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in arguments.items()}


@pytest.mark.parametrize("target", ["x86", "spirv:gpu"])
def test_little_work_is_not_worth_a_launch(target: str) -> None:
    text = """
kernel few(inout a: f32[7]):
  while a[0] < 100.0:
    compute up(i in 7):
      a[i] = a[i] + 1.0
"""
    assert not launched(scheduled(text, target))


def test_memory_of_one_work_item_stays_its_own() -> None:
    """What is private, and allocated around the loops, is not spread over work-items."""
    text = """
kernel k(inout a: f32[64]):
  alloc x: f32[64] private
  for i in 64:
    x[i] = a[63 - i]
  for i in 64:
    a[i] = x[i]
"""
    kernel = scheduled(text, "spirv:gpu")
    assert not launched(kernel)
    for target in ("x86", "spirv", "spirv:gpu"):
        if target == "x86" or devices():
            got = tw.compile(parse_kernel(text), target)(a=np.arange(64, dtype=np.float32))
            np.testing.assert_array_equal(got, np.arange(64)[::-1])


@pytest.mark.parametrize("target", ["x86", *DEVICES, "spirv:gpu"])
def test_random_kernels(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that may be launched is, however little; the results are those of the interpreter."""
    need_device(target)
    usual = Machine.__dict__["workers"].func
    all_worth = property(lambda machine: replace(usual(machine), worth=1))
    monkeypatch.setattr(Machine, "workers", all_worth)
    result, inside = find_target(target), 0
    for seed in range(40 if target == "x86" else 12):
        source = random_kernel(random.Random(seed), 16, types=(s64, s32, s8))
        scheduled_kernel = scheduled(source, target)
        around = [s for s in walk_stmts(scheduled_kernel.body) if isinstance(s, While)]
        inside += any(launched_in(stmt) for stmt in around)
        kernel = run_passes(scheduled_kernel)
        wanted = {p.name: np.full(p.buffer.layout.extent, 3, p.dtype.numpy) for p in source.arrays}
        values = {name: array.copy() for name, array in wanted.items()}
        interpret(source, wanted)
        module = result.lower(kernel)
        abi = abi_of(kernel, module)
        passed = [values[array.name].ctypes.data for array in kernel.arrays]
        result.load(result.assemble(module), abi).run(passed, 2)
        for name, array in wanted.items():
            np.testing.assert_array_equal(values[name], array, err_msg=f"{seed} {name}")
    assert inside or target != "x86"


def launched_in(loop: While) -> bool:
    return any(isinstance(s, For) and s.kind in LAUNCHED for s in walk_stmts(loop.body))
