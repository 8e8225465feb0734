"""Random graphs give the same behind each pass."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from graphs import run
from needs import needs_x86
from random_graphs import Graphs
from sweeps import in_turns
from tilewright.dtypes import f32
from tilewright.graph.compiling import compile_graph
from tilewright.graph.passes.pipeline import PASSES, optimized
from tilewright.ir import Kernel, parse_kernel, same, verify
from tilewright.ops.library import library_op
from tilewright.problems.library import LIBRARY

COUNT = 400


def drawn(name: str, seed: int) -> tuple[Kernel, dict[str, Any]]:
    """A random op of the library as a kernel, and what it runs on."""
    problem = LIBRARY[name].drawn(random.Random(seed))
    direction = random.Random(seed).choice(problem.directions)
    types = dict(zip(problem.roles, problem.expanded((f32,)), strict=True))
    op = library_op(problem, direction, types)
    rng = np.random.default_rng(seed)
    inputs = {}
    for argument in op.arguments:
        if argument.access != "out":
            value = problem.data(argument.name, argument.shape, argument.dtype, rng, direction)
            value = rng.integers(0, 5, argument.shape) if value is None else value
            inputs[argument.name] = np.asarray(value).astype(argument.dtype.numpy)
    return op.kernel(), inputs


@pytest.mark.parametrize("seed", [0, *in_turns(COUNT, range(1, 20))])
@pytest.mark.parametrize("name", LIBRARY)
def test_passes_keep_what_ops_of_the_library_compute(name: str, seed: int) -> None:
    kernel, inputs = drawn(name, seed)
    after = optimized(kernel, check=True)
    wanted = run(kernel, **inputs)
    assert wanted
    for got, want in zip(run(after, **inputs), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", in_turns(16, range(COUNT)))
def test_every_pass_keeps_what_a_graph_computes(seed: int) -> None:
    graph = Graphs(seed)
    before = graph.kernel
    known = run(before, **graph.inputs)
    assert known and len(PASSES) > 5
    exact = True
    for pass_ in PASSES:
        after = pass_.function(before)
        if after is before:
            continue
        verify(after)
        assert same(parse_kernel(str(after), constants=dict(after.constants)), after)
        # Weights are rounded after they were scaled.
        exact = exact and pass_.name != "scales"
        for got, want in zip(run(after, **graph.inputs), known, strict=True):
            if exact:
                np.testing.assert_array_equal(got, want, err_msg=pass_.name)
            else:
                size = np.abs(want[np.isfinite(want)]).max(initial=1.0)
                np.testing.assert_allclose(got, want, 2e-5, 2e-5 * float(size), err_msg=pass_.name)
        assert pass_.function(after) is after or pass_.name in ("views", "scales")
        before = after


@needs_x86
@pytest.mark.parametrize("seed", in_turns(100, range(COUNT)))
def test_programs_of_random_graphs_compute_what_the_interpreter_does(seed: int) -> None:
    graph = Graphs(seed, 12)
    program = compile_graph(graph.kernel, "x86", 2)
    result = program(**graph.inputs)
    names = [array.name for array in graph.kernel.arrays if array.access == "out"]
    values = [result] if len(names) == 1 else [result[name] for name in names]
    assert values
    for got, want in zip(values, run(graph.kernel, **graph.inputs), strict=True):
        size = np.abs(want[np.isfinite(want)]).max(initial=1.0)
        np.testing.assert_allclose(np.asarray(got), want, 1e-4, 1e-4 * float(size))
