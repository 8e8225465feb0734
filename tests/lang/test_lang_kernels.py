"""The suite of kernels: every target, at every local size, against numpy."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from checkout import ROOT
from lang_kernels import CASES, Case
from needs import DEVICES
from tilewright.lang.annotations import Constant
from tilewright.machines import nvidia
from tilewright.recipes import choose
from tilewright.recipes.config import PlainConfig
from tilewright.recipes.plain import default_config
from tilewright.recipes.start import Start
from tilewright.targets.registry import find_target

TARGETS = ["interpreter", "x86", *DEVICES]


def same(got: Any, wanted: Any, tolerance: float) -> None:
    if tolerance == 0:
        np.testing.assert_array_equal(got, wanted)
    else:
        np.testing.assert_allclose(got, wanted, tolerance, tolerance)


def all_same(arguments: Sequence[Any], wanted: Mapping[int, Any], tolerance: float) -> None:
    assert wanted
    for place, array in wanted.items():
        same(arguments[place], array, tolerance)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("each", CASES, ids=lambda case: case.name)
def test_kernels(each: Case, target: str) -> None:
    assert each.locals
    for local in each.locals:
        arguments = each.arguments(np.random.default_rng(0))
        wanted = each.wanted(*copy.deepcopy(arguments))
        each.kernel.launch(each.range, *arguments, local=local, target=target)
        all_same(arguments, wanted, each.tolerance)


# Of work-items that are faster one by one than as lanes: those that run so unless a config says.
ONE_BY_ONE = ("spmv", "collatz", "fft_step", "scan_blelloch", "histogram", "queue")


def test_who_runs_one_by_one() -> None:
    """On AVX2, whatever machine this is."""
    machine, result = find_target("x86:avx2").machine, []
    for case in CASES:
        arguments = case.arguments(np.random.default_rng(0))
        kernel = case.kernel.specialized(case.range, *arguments, local=case.locals[0])
        if default_config(kernel, machine).vector == 1:
            result.append(case.name)
    assert sorted(result) == sorted(ONE_BY_ONE)


@pytest.mark.parametrize(
    "each", [case for case in CASES if case.name in ONE_BY_ONE], ids=lambda case: case.name
)
def test_the_same_as_lanes(each: Case) -> None:
    arguments = each.arguments(np.random.default_rng(0))
    wanted = each.wanted(*copy.deepcopy(arguments))
    kernel = each.kernel.specialized(each.range, *arguments, local=each.locals[-1])
    parameters = zip(each.kernel.parameters.items(), arguments, strict=True)
    values = {name: a for (name, kind), a in parameters if not isinstance(kind, Constant)}
    sizes = {f"global_{dim}": size for dim, size in enumerate(each.range)}
    tw.compile(kernel, "x86", config=PlainConfig(vector=8))(**values, **sizes)
    all_same(arguments, wanted, each.tolerance)


@pytest.mark.parametrize("each", CASES, ids=lambda case: case.name)
def test_ptx(each: Case) -> None:
    arguments = each.arguments(np.random.default_rng(0))
    kernel = each.kernel.specialized(each.range, *arguments, local=each.locals[-1])
    assert ".entry" in tw.compile(kernel, "nvidia:sm_80").source("asm")


@pytest.mark.parametrize("each", CASES, ids=lambda case: case.name)
def test_what_a_gpu_runs_in_the_interpreter(each: Case) -> None:
    arguments = each.arguments(np.random.default_rng(0))
    wanted = each.wanted(*copy.deepcopy(arguments))
    kernel = each.kernel.specialized(each.range, *arguments, local=each.locals[-1])
    _, scheduled = choose.choose(Start(kernel, kernel, None), nvidia.machine("sm_80"))
    parameters = zip(each.kernel.parameters.items(), arguments, strict=True)
    values = {name: a for (name, kind), a in parameters if not isinstance(kind, Constant)}
    sizes = {f"global_{dim}": size for dim, size in enumerate(each.range)}
    tw.compile(scheduled.kernel, "interpreter")(**values, **sizes)
    all_same(arguments, wanted, each.tolerance)


def test_the_benchmark_has_every_kernel() -> None:
    path = ROOT / "benchmarks" / "kernels.py"
    result = importlib.util.spec_from_file_location("benchmarks_kernels", path)
    assert result is not None and result.loader is not None
    script = importlib.util.module_from_spec(result)
    sys.modules[result.name] = script
    result.loader.exec_module(script)
    assert script.WORKS.keys() == {case.name for case in CASES}
    numbers, places = np.arange(4.0, dtype=np.float32), np.arange(4, dtype=np.int32)
    assert not script.differing("saxpy", [3, numbers], [3, numbers * (1 + 1e-6)])
    assert script.differing("saxpy", [3, numbers], [3, numbers + 1])
    assert script.differing("sobel", [places], [places[::-1]])
    # Only how many there are is the same in any order.
    assert not script.differing("queue", [places, places, places], [places, places[::-1], places])
