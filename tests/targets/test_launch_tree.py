"""The host's side of kernels: loops and conditions around launches, and scalars, on all targets."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from needs import DEVICES, need_device
from random_ir import random_kernel
from skips import lacking
from tilewright.dtypes import boolean, s8, s32, s64
from tilewright.errors import CompilationError
from tilewright.interpret import run
from tilewright.ir import While, parse_kernel, to_text, verify, walk_stmts
from tilewright.ir.expr import var
from tilewright.ir.stmt import Kernel, ScalarParam
from tilewright.passes.pipeline import run as run_passes
from tilewright.runtime.steps import ForStep, IfStep, LetStep, ReadStep, WhileStep
from tilewright.schedule.loops.lower import lower_computes
from tilewright.targets.program import Abi, abi_of
from tilewright.targets.registry import find_target
from tilewright.targets.spirv.driver import KernelProgram

# How each target calls the loops that it launches.
KINDS = {"x86": "parallel", "spirv": "grid", "nvidia:sm_80": "grid"}
RUNNING = ("x86", *DEVICES)

NEWTON_INSIDE = """\
kernel roots(in a: f32[8], out root: f32[8]):
  launched for i in 8:
    alloc x: f32[1] private
    x[0] = max(a[i], 1.0)
    while a[i] * 1e-06 < x[0] * x[0] - a[i]:
      x[0] = (x[0] + a[i] / x[0]) * 0.5
    root[i] = x[0]
"""
# All elements go on until the greatest error is small: the host asks for it.
NEWTON_AROUND = """\
kernel roots(in a: f32[64], out root: f32[64], out count: s32[1]):
  alloc error: f32[1]
  launched for i in 64:
    root[i] = max(a[i], 1.0)
  error[0] = inf
  count[0] = s32(0)
  while 1e-05 < error[0]:
    launched for i in 64:
      root[i] = (root[i] + a[i] / root[i]) * 0.5
    error[0] = 0.0
    for i in 64:
      error[0] = max(error[0], abs(root[i] * root[i] - a[i]) / a[i])
    count[0] = count[0] + s32(1)
"""
# Two buffers take turns: the parity of the step says which is read.
STENCIL = """\
kernel steps(inout a: f32[66], in n: s64[1]):
  alloc b: f32[66]
  launched for i in 66:
    b[i] = a[i]
  for block in 3:
    for t in 4:
      if (block * 4 + t) % 2 == 0:
        launched for i in 64:
          b[i + 1] = (a[i] + a[i + 1] + a[i + 2]) * 0.5
      else:
        launched for i in 64:
          a[i + 1] = (b[i] + b[i + 1] + b[i + 2]) * 0.5
    launched for i in 2:
      a[i * 65] = a[i * 65] + f32(block)
      b[i * 65] = a[i * 65]
"""
CHOICE = """\
kernel choose(inout a: f32[16], in flag: s64[1]):
  if 0 < flag[0]:
    launched for i in 16:
      a[i] = a[i] * 2.0
    if flag[0] == 2:
      launched for i in 16:
        a[i] = a[i] + 1.0
  else:
    a[3] = 7.0
    m = flag[0] + 5
    for t in m:
      launched for i in m - t:
        a[i] = a[i] - f32(t)
"""
# Loops that do not run, launches without workgroups.
NOTHING = """\
kernel nothing(inout a: f32[16], in n: s64[1]):
  for t in n[0]:
    launched for i in 16:
      a[i] = 1.0
  launched for i in n[0]:
    a[i] = 2.0
  while a[0] < -1.0:
    launched for i in 16:
      a[i] = 3.0
"""
SCALARS = """\
kernel scale(m: s64 in 1..64 by 4, alpha: f32, flip: bool, k: u8, h: f16, in a: f32[64], \
inout c: f32[64]):
  if flip:
    launched for i in m:
      c[i] = a[m - 1 - i] * alpha
  else:
    for t in m // 4:
      launched for i in 4:
        c[t * 4 + i] = a[t * 4 + i] + f32(k) * f32(h) + f32(t)
"""
SYMBOLS = """\
kernel transposed(m: s64 in 1..40, n: s64 in 0..40, in a: f32[m, n], out c: f32[n, m]):
  alloc b: f32[m, n]
  launched for i in m:
    launched for j in n:
      b[i, j] = a[i, j] * 2.0
  launched for j in n:
    launched for i in m:
      c[j, i] = b[i, j] + f32(i - j)
"""


def kernel_for(text: str, target: str) -> Kernel:
    kernel = parse_kernel(text.replace("launched", KINDS.get(target, "grid")), file="test.tw")
    verify(kernel)
    return kernel


def compiled(kernel: Kernel, target: str) -> tuple[Any, Abi, bytes]:
    result = find_target(target)
    module = result.lower(kernel)
    abi = abi_of(kernel, module)
    assert Abi.from_json(json.loads(json.dumps(abi.as_json()))) == abi
    return result, abi, result.assemble(module)


def passed(kernel: Kernel, given: Mapping[str, Any]) -> list[Any]:
    return [
        given[p.name] if isinstance(p, ScalarParam) else given[p.name].ctypes.data
        for p in kernel.params
    ]


def runs_or_skips(target: str) -> None:
    """Skips the present test where code for ``target`` does not run."""
    need_device(target)
    if not find_target(target).runs_here:
        lacking(f"{target} does not run here")


def same(text: str, target: str, *calls: Mapping[str, Any], times: int = 2) -> list[Any]:
    """Each call gives what the interpreter gives, twice, also bound; returns the last results."""
    kernel = kernel_for(text, target)
    result, abi, binary = compiled(kernel, target)
    runs_or_skips(target)
    program = result.load(binary, abi)
    results = []
    for values in calls:
        expected, call, bound = ({n: np.copy(v) for n, v in values.items()} for _ in range(3))
        for name, value in values.items():
            if not isinstance(value, np.ndarray):
                expected[name] = call[name] = bound[name] = value
        run_bound = program.bound(passed(kernel, bound), 2)
        for _ in range(times):
            run(kernel, expected)
            program.run(passed(kernel, call), 2)
            run_bound()
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(call[name], expected[name], err_msg=name)
                np.testing.assert_array_equal(bound[name], expected[name], err_msg=name)
        results.append(call)
    return results


def numbers(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(np.float32)


@pytest.mark.parametrize("target", RUNNING)
def test_newton_inside_of_a_launch(target: str) -> None:
    a = np.array([0.25, 1, 2, 3, 100, 1e6, 7, 49], np.float32)
    (result,) = same(NEWTON_INSIDE, target, {"a": a, "root": np.zeros(8, np.float32)})
    np.testing.assert_allclose(result["root"], np.sqrt(a), rtol=2e-6)


@pytest.mark.parametrize("target", RUNNING)
def test_newton_around_launches_stops_by_data(target: str) -> None:
    a = np.linspace(1, 1000, 64).astype(np.float32)
    values = {"a": a, "root": np.zeros(64, np.float32), "count": np.zeros(1, np.int32)}
    kernel = kernel_for(NEWTON_AROUND, target)
    result, abi, binary = compiled(kernel, target)
    runs_or_skips(target)
    result.load(binary, abi).run(passed(kernel, values), 2)
    np.testing.assert_allclose(values["root"], np.sqrt(a), rtol=1e-5)
    assert 5 < values["count"][0] < 20


@pytest.mark.parametrize("target", RUNNING)
def test_nested_loops_of_the_host(target: str) -> None:
    same(STENCIL, target, {"a": numbers(66), "n": np.zeros(1, np.int64)})


@pytest.mark.parametrize("target", RUNNING)
def test_conditions_and_extents_from_data(target: str) -> None:
    calls = [{"a": numbers(16), "flag": np.array([flag])} for flag in (1, 2, 0, -3, -5, -9)]
    same(CHOICE, target, *calls)


@pytest.mark.parametrize("target", RUNNING)
def test_loops_that_do_not_run(target: str) -> None:
    calls = [{"a": numbers(16), "n": np.array([n])} for n in (0, -1, 3)]
    same(NOTHING, target, *calls)


@pytest.mark.parametrize("target", RUNNING)
def test_scalars_are_passed_by_value(target: str) -> None:
    calls = [
        {"m": m, "alpha": 0.5, "flip": flip, "k": 200, "h": 1.5, "a": numbers(64), "c": numbers(64)}
        for m in (4, 64, 32)
        for flip in (True, False)
    ]
    same(SCALARS, target, *calls)


@pytest.mark.parametrize("target", RUNNING)
def test_sizes_and_workspaces_of_scalars(target: str) -> None:
    calls = [
        {"m": m, "n": n, "a": numbers(max(1, m * n)), "c": numbers(max(1, m * n))}
        for m, n in ((3, 5), (40, 40), (1, 0), (7, 1), (40, 3))
    ]
    same(SYMBOLS, target, *calls)


@pytest.mark.parametrize("text", [NEWTON_INSIDE, NEWTON_AROUND, STENCIL, CHOICE, NOTHING, SCALARS])
def test_assembled_for_nvidia(text: str) -> None:
    _, abi, binary = compiled(kernel_for(text, "nvidia:sm_80"), "nvidia:sm_80")
    assert binary
    assert abi.launches


def steps_of(text: str) -> Any:
    kernel = kernel_for(text, "nvidia:sm_80")
    return find_target("nvidia:sm_80").lower(kernel)


def test_the_tree_of_a_while_that_waits() -> None:
    module = steps_of(NEWTON_AROUND)
    assert module.steps == (
        0,
        1,
        WhileStep((ReadStep(var("value", boolean), 2),), "value", (3, 4)),
    )
    assert module.launches[2].result == 1
    assert module.workspaces == (4, 1)
    assert [launch.groups for launch in module.launches] == [64, 1, 1, 64, 1]


def test_the_tree_of_loops_that_do_not_wait() -> None:
    module = steps_of(STENCIL)
    assert all(launch.result is None for launch in module.launches)
    _, outer = module.steps
    assert isinstance(outer, ForStep)
    inner, last = outer.body
    assert inner == ForStep(var("t"), "4", (IfStep("(block * 4 + t) % 2 == 0", (1,), (2,)),))
    assert last == 3
    assert module.launches[3].values == ("block",)


def test_names_of_the_host() -> None:
    module = steps_of(
        "kernel k(m: s64 in 1..8, inout a: f32[64]):\n"
        "  n = m * 2\n"
        "  launched for i in n:\n"
        "    a[i] = f32(n)\n"
        "  for t in n:\n"
        "    launched for i in t + 1:\n"
        "      a[i] = 1.0\n"
    )
    assert module.steps == (
        LetStep(var("n"), "m * 2"),
        0,
        ForStep(var("t"), "n", (1,)),
    )
    assert [launch.groups for launch in module.launches] == ["n", "t + 1"]
    assert [launch.values for launch in module.launches] == [("n",), ("t",)]


@pytest.mark.parametrize("target", RUNNING)
def test_values_on_both_sides_of_one_of_the_host(target: str) -> None:
    """``near`` is used in the row behind ``far`` only; but ``far`` is the host's, and ends the row
    that ``near`` stands in."""
    text = (
        "kernel k(m: s64 in 1..8, inout a: f32[64]):\n"
        "  for t in m:\n"
        "    near: f32 = f32(t)\n"
        "    far: f32 = f32(t * 3)\n"
        "    if t != 2:\n"
        "      for i in 8:\n"
        "        a[i] = a[i] + near\n"
        "    launched for i in 64:\n"
        "      a[i] = a[i] * 2.0 + far\n"
    )
    same(text, target, *[{"m": m, "a": numbers(64)} for m in (1, 5)])


def test_control_without_launches_is_one_work_items() -> None:
    module = steps_of(
        "kernel k(inout a: f32[64]):\n"
        "  launched for i in 64:\n"
        "    a[i] = 1.0\n"
        "  for t in 8:\n"
        "    if a[t] < 2.0:\n"
        "      a[t] = 3.0\n"
    )
    assert module.steps == ()
    assert [launch.groups for launch in module.launches] == [64, 1]


def test_extents_of_loops_that_are_launched_together() -> None:
    kernel = "kernel k(inout a: f32[64]):\n  launched for i in 8:\n    launched for j in i:\n"
    for target in KINDS:
        with pytest.raises(CompilationError, match=r"depends on the loops around: i(.|\n)*:3:5:"):
            find_target(target).lower(kernel_for(kernel + "      a[i * 8 + j] = 1.0\n", target))


def test_text_is_read_back() -> None:
    for text in (NEWTON_AROUND, STENCIL, CHOICE, SCALARS, SYMBOLS):
        kernel = kernel_for(text, "x86")
        assert to_text(parse_kernel(to_text(kernel))) == to_text(kernel)


def test_devices_with_memory_of_their_own() -> None:
    need_device("spirv")
    target = find_target("spirv")
    for text, values in (
        (NEWTON_AROUND, {"a": np.linspace(1, 9, 64).astype(np.float32)}),
        (SYMBOLS, {"m": 3, "n": 5, "a": numbers(15)}),
        (SYMBOLS, {"m": 20, "n": 30, "a": numbers(600)}),
    ):
        kernel = kernel_for(text, "spirv")
        _, abi, binary = compiled(kernel, "spirv")
        arrays = dict(values)
        for param in kernel.arrays:
            size = 600 if text is SYMBOLS else 64
            arrays.setdefault(param.name, np.zeros(size, param.dtype.numpy))
        expected = {n: np.copy(v) if isinstance(v, np.ndarray) else v for n, v in arrays.items()}
        elsewhere = KernelProgram(replace(target.device, shares_memory=False), binary, abi)
        elsewhere.run(passed(kernel, arrays), 1)
        target.load(binary, abi).run(passed(kernel, expected), 1)
        for param in kernel.arrays:
            np.testing.assert_array_equal(arrays[param.name], expected[param.name])


def test_the_header_says_where_scalars_are() -> None:
    target, abi, binary = compiled(kernel_for(SYMBOLS, "x86"), "x86")
    text = target.files(binary, abi, "transposed")["transposed.h"].decode()
    assert (
        "/* args: slots of 8 bytes: the bits of m (s64; the slot's first 8), the bits of n (s64; "
        "the slot's first 8), a pointer to a: f32[m, n], a pointer to c: f32[n, m], then "
        "workspaces of "
    ) in text
    assert "an array of slots of 8 bytes: the bits of m" in target.calling(abi)


def test_random_loops_that_end_are_compiled() -> None:
    """Random kernels with `While`, without what rounds differently."""
    target, seen = find_target("x86"), 0
    for seed in range(40):
        naive = random_kernel(random.Random(seed), 16, types=(s64, s32, s8))
        if not any(isinstance(stmt, While) for stmt in walk_stmts(naive.body)):
            continue
        seen += 1
        kernel = run_passes(lower_computes(naive))
        expected = {p.name: np.full(p.buffer.layout.extent, 3, p.dtype.numpy) for p in naive.arrays}
        values = {name: array.copy() for name, array in expected.items()}
        run(naive, expected)
        module = target.lower(kernel)
        abi = abi_of(kernel, module)
        target.load(target.assemble(module), abi).run(passed(kernel, values), 1)
        for name, array in expected.items():
            np.testing.assert_array_equal(values[name], array, err_msg=f"{seed} {name}")
    assert seen > 5


@pytest.mark.parametrize("target", RUNNING)
def test_memory_inside_of_a_loop_is_found_by_its_variable(target: str) -> None:
    """It is allocated where the loop's variable has moved all other pointers already."""
    text = (
        "kernel k(in a: s64[4], out b: s64[4]):\n"
        "  for i in 4:\n"
        "    alloc x: s64[8] private\n"
        "    for j in 8:\n"
        "      x[j] = a[j % 4]\n"
        "    b[i] = x[i * 2 + a[0] % 2]\n"
    )
    same(text, target, {"a": np.array([5, 6, 7, 8]), "b": np.zeros(4, np.int64)})


def test_control_around_nothing() -> None:
    kernel = "kernel k(inout a: f32[4]):\n  for t in 3:\n    if a[t] < 1.0:\n      pass\n"
    for target in KINDS:
        result = find_target(target)
        assert result.lower(parse_kernel(kernel)).steps == ()
