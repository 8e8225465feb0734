"""Kernels of all kinds as one, beside what they do one after the other: vectors, functions, local
memory, reductions of groups, loops, several dims, elements of 8 bits, diamonds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import needs_opencl, needs_x86
from tilewright.lang.kernel import KernelFunction
from tilewright.recipes.fusing import fuse
from tilewright.schedule.fusion.members import Fusion, Member

TARGETS = ("interpreter", "x86", "spirv")
Sizes = tuple[int, ...]
# A function, the names of its arrays, its range and its local size.
Step = tuple[KernelFunction, str, Sizes, Sizes | None]


@tw.function
def half(x):
    return x * 0.5


@tw.kernel
def vectors(x: tw.array("f32", 1), t: tw.array("f32", 1)):
    i = tw.global_id(0) * 4
    tw.store_vector(t, i, tw.load_vector(x, i, 4) * 2.0)


@tw.kernel
def halves(x: tw.array("f32", 1), t: tw.array("f32", 1)):
    i = tw.global_id(0)
    t[i] = half(tw.sqrt(x[i]))


@tw.kernel
def sums(t: tw.array("f32", 1), y: tw.array("f32", 1)):
    total = tw.group_reduce(t[tw.global_id(0)], "add")
    y[tw.global_id(0)] = total


@tw.kernel
def mirrored(x: tw.array("f32", 1), t: tw.array("f32", 1)):
    shared = tw.local((64,), "f32")
    shared[tw.local_id(0)] = x[tw.global_id(0)]
    tw.barrier()
    t[tw.global_id(0)] = shared[63 - tw.local_id(0)]


@tw.kernel
def twice(x: tw.array("f32", 2), t: tw.array("f32", 2)):
    i, j = tw.global_id(0), tw.global_id(1)
    t[i, j] = x[i, j] * 2.0


@tw.kernel
def neighbours(t: tw.array("f32", 2), y: tw.array("f32", 2)):
    i, j = tw.global_id(0), tw.global_id(1)
    left = t[i, j - 1] if tw.local_id(1) > 0 else 0.0
    y[i, j] = t[i, j] + left


@tw.kernel
def in_line(x: tw.array("f32", 1), t: tw.array("f32", 1)):
    i = tw.global_id(0) * tw.global_size(1) + tw.global_id(1)
    t[i] = x[i] + 1.0


@tw.kernel
def rows(x: tw.array("f32", 2), t: tw.array("f32", 2)):
    i = tw.global_id(0)
    for k in range(8):
        t[i, k] = x[i, k]


@tw.kernel
def row_sums(t: tw.array("f32", 2), y: tw.array("f32", 1)):
    total = 0.0
    for k in range(8):
        total += t[tw.global_id(0), 7 - k]
    y[tw.global_id(0)] = total


@tw.kernel
def halved_below_1(t: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i >= t.shape[0]:
        return
    value = t[i]
    while value > 1.0:
        value = value * 0.5
    y[i] = value


@tw.kernel
def shifted(x: tw.array("s8", 1), t: tw.array("s8", 1)):
    i = tw.global_id(0)
    t[i] = tw.s8(x[i] >> 1)


@tw.kernel
def products(a: tw.array("f32", 1), b: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = a[i] * b[i]


def step(function: KernelFunction, names: str, *sizes: int, local: Sizes | None = None) -> Step:
    return function, names, sizes, local


def member(a_step: Step, shapes: Mapping[str, Sizes]) -> Member:
    function, names, sizes, local = a_step
    kernel = function.over(local=local) if local else function.over(len(sizes))
    arguments: dict[str, Any] = dict(zip(function.parameters, names, strict=True))
    for param, name in [*arguments.items()]:
        arguments |= {f"{param}_{dim}": size for dim, size in enumerate(shapes[name])}
    arguments |= {f"global_{dim}": size for dim, size in enumerate(sizes)}
    wanted = {param.name for param in kernel.params}
    return Member(kernel, {name: value for name, value in arguments.items() if name in wanted})


LINE, GROUP, SQUARE = {name: (256,) for name in "xtuvy"}, (64,), {n: (8, 64) for n in "xty"}
LONG = {name: (1000,) for name in "xty"}
CASES: dict[str, tuple[Sequence[Step], Mapping[str, Sizes], dict[str, str]]] = {
    "vectors": ([step(vectors, "xt", 64), step(vectors, "ty", 64)], LINE, {"t": "private"}),
    "functions": ([step(halves, "xt", 256), step(halves, "ty", 256)], LINE, {"t": "private"}),
    "reductions": (
        [step(f, names, 256, local=GROUP) for f, names in ((halves, "xt"), (sums, "ty"))],
        LINE,
        {"t": "private"},
    ),
    "local memory": (
        [step(mirrored, names, 256, local=GROUP) for names in ("xt", "ty")],
        LINE,
        {"t": "private"},
    ),
    "two dims": ([step(twice, n, 8, 64) for n in ("xt", "ty")], SQUARE, {"t": "private"}),
    "stencil": (
        [step(f, n, 8, 64, local=(2, 16)) for f, n in ((twice, "xt"), (neighbours, "ty"))],
        SQUARE,
        {"t": "local"},
    ),
    "loops": (
        [step(rows, "xt", 256), step(row_sums, "ty", 256)],
        {"x": (256, 8), "t": (256, 8), "y": (256,)},
        {"t": "private"},
    ),
    "while": (
        [step(halves, "xt", 256), step(halved_below_1, "ty", 256)],
        LINE,
        {"t": "private"},
    ),
    "diamond": (
        [
            step(halves, "xt", 256),
            step(halves, "tu", 256),
            step(halved_below_1, "tv", 256),
            step(products, "uvy", 256),
        ],
        LINE,
        {"t": "private", "u": "private", "v": "private"},
    ),
    "8 bits": ([step(shifted, n, 256) for n in ("xt", "ty")], LINE, {"t": "private"}),
    "2 dims, then 1": (
        [step(in_line, "xt", 8, 125), step(halves, "ty", 1000)],
        LONG,
        {"t": "private"},
    ),
    "as many groups of other rows": (
        [step(in_line, "xt", 17, 16), step(in_line, "ty", 8, 34)],
        LONG,
        {"t": "private"},
    ),
    "1 dim, then 2": (
        [step(halves, "xt", 1000), step(in_line, "ty", 40, 25)],
        LONG,
        {"t": "private"},
    ),
}


@needs_x86
@needs_opencl
@pytest.mark.parametrize("name", CASES)
def test_members_as_one(name: str) -> None:
    steps, shapes, promoted = CASES[name]
    dtype = np.int8 if name == "8 bits" else np.float32
    draw = np.random.default_rng(3)
    arrays = {n: (draw.random(s) * 9).astype(dtype) for n, s in shapes.items()}
    members = tuple(member(step, shapes) for step in steps)
    result = fuse(Fusion(members, promote=dict.fromkeys(promoted, "any")))
    assert result.kernel is not None
    assert {n: result.report.buffers[n].promoted for n in promoted} == promoted
    expected = {n: array.copy() for n, array in arrays.items()}
    for function, names, sizes, local in steps:
        called = [expected[n] for n in names]
        function.launch(sizes, *called, local=local, target="interpreter")
    for target in TARGETS:
        got = {p.name: arrays[p.name].copy() for p in result.kernel.arrays}
        assert got.keys() & promoted.keys() == set()
        tw.compile(result.kernel, target=target)(**got)
        for array in got:
            np.testing.assert_allclose(got[array], expected[array], rtol=1e-5)
