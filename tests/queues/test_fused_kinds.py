"""Kinds of kernels that become one in a queue's list: scopes, dims, functions, vectors, barriers.
Each list leaves what its kernels leave one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fusion_cases import add, count, mirror, scale, whole

N = 256


@tw.function
def halved(array, i):
    """A function that is given an array."""
    return tw.sqrt(array[i]) * 0.5


@tw.function
def put(array, i, value):
    array[i] = value


@tw.kernel
def through_functions(x: tw.array("f32", 1), t: tw.array("f32", 1)):
    i = tw.global_id(0)
    put(t, i, halved(x, i))


@tw.kernel
def cubes(x: tw.array("f32", 3), t: tw.array("f32", 3)):
    i, j, k = tw.global_id(0), tw.global_id(1), tw.global_id(2)
    t[i, j, k] = tw.exp(-x[i, j, k])


@tw.kernel
def turned(t: tw.array("f32", 3), y: tw.array("f32", 3)):
    """Each workgroup, a row of 8, turns its part around."""
    i, j = tw.global_id(0), tw.global_id(1)
    y[i, j, tw.global_id(2)] = t[i, j, tw.group_id(2) * 8 + 7 - tw.local_id(2)]


@tw.kernel
def planes(x: tw.array("f32", 2), t: tw.array("f32", 2)):
    i, j = tw.global_id(0), tw.global_id(1)
    t[i, j] = x[i, j] * x[i, j]


@tw.kernel
def transposed(t: tw.array("f32", 2), y: tw.array("f32", 2)):
    """Each workgroup, 4 x 4, transposes its part."""
    i, j = tw.group_id(0) * 4 + tw.local_id(1), tw.group_id(1) * 4 + tw.local_id(0)
    y[tw.global_id(0), tw.global_id(1)] = t[i, j]


@tw.kernel
def swapped(
    a: tw.array("f32", 1), b: tw.array("f32", 1), p: tw.array("f32", 1), q: tw.array("f32", 1)
):
    i = tw.global_id(0)
    p[i] = b[i]
    q[i] = a[i] + b[i]


@tw.kernel
def bytes_up(x: tw.array("u8", 1), t: tw.array("u8", 1)):
    i = tw.global_id(0)
    t[i] = tw.u8(x[i] + 3)


@tw.kernel
def bytes_turned(t: tw.array("u8", 1), y: tw.array("u8", 1)):
    y[tw.global_id(0)] = t[tw.group_id(0) * 64 + 63 - tw.local_id(0)]


@tw.kernel
def quads(x: tw.array("f32", 1), t: tw.array("f32", 1)):
    i = tw.global_id(0) * 4
    tw.store_vector(t, i, tw.load_vector(x, i, 4) * 2.0)


@tw.kernel
def group_sums(t: tw.array("f32", 1), y: tw.array("f32", 1)):
    shared = tw.local((64,), "f32")
    shared[tw.local_id(0)] = t[tw.global_id(0)]
    tw.barrier()
    other = shared[63 - tw.local_id(0)]
    y[tw.global_id(0)] = tw.group_reduce(other, "add")


@tw.kernel
def products(a: tw.array("f32", 1), b: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    y[i] = a[i] * b[i]


@tw.kernel
def rounded(x: tw.array("f32", 2), t: tw.array("f32", 2)):
    """Each work-item has a row."""
    i = tw.global_id(0)
    for k in range(4):
        t[i, k] = tw.floor(x[i, k])


@dataclass
class Case:
    """Launches as (function, arguments, range, local size), arguments being numbers and names of
    memory; the shapes of memory other than a line of f32; and the scope that dead memory gets."""

    steps: list[tuple[Any, tuple[Any, ...], Any, Any]]
    promoted: Mapping[str, str | None]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtype: str = "f4"
    asked: str = "any"


LINE, GROUP = (N,), (64,)
CUBE = {name: (4, 8, 16) for name in "xty"}
PLANE = {name: (8, 32) for name in "xty"}
ROWS = {name: (N, 4) for name in "xty"}
CASES = {
    "private": Case(
        [(scale, (2.0, "x", "t"), LINE, None), (add, "ty", LINE, None)], {"t": "private"}
    ),
    "local, and a barrier": Case(
        [(scale, (2.0, "x", "t"), LINE, GROUP), (mirror, "ty", LINE, GROUP)], {"t": "local"}
    ),
    "several pointers": Case(
        [(swapped, "xytu", LINE, GROUP), (swapped, "tuxy", LINE, GROUP)],
        {"t": "private", "u": "private"},
    ),
    "functions of arrays": Case(
        [(through_functions, "xt", LINE, None), (through_functions, "ty", LINE, None)],
        {"t": "private"},
    ),
    "three dims": Case(
        [(cubes, "xt", CUBE["x"], None), (cubes, "ty", CUBE["x"], None)], {"t": "private"}, CUBE
    ),
    "three dims, in groups": Case(
        [(cubes, "xt", CUBE["x"], (1, 2, 8)), (turned, "ty", CUBE["x"], (1, 2, 8))],
        {"t": "local"},
        CUBE,
    ),
    "two dims": Case(
        [(planes, "xt", (8, 32), None), (planes, "ty", (8, 32), None)], {"t": "private"}, PLANE
    ),
    "two dims, in groups": Case(
        [(planes, "xt", (8, 32), (4, 4)), (transposed, "ty", (8, 32), (4, 4))],
        {"t": "local"},
        PLANE,
    ),
    "rows": Case(
        [(rounded, "xt", LINE, None), (rounded, "ty", LINE, None)], {"t": "private"}, ROWS
    ),
    "vectors": Case([(quads, "xt", (64,), None), (quads, "ty", (64,), None)], {"t": "private"}),
    "8 bits": Case(
        [(bytes_up, "xt", LINE, None), (bytes_up, "ty", LINE, None)], {"t": "private"}, {}, "u1"
    ),
    "8 bits of a group": Case(
        [(bytes_up, "xt", LINE, GROUP), (bytes_turned, "ty", LINE, GROUP)], {"t": "local"}, {}, "u1"
    ),
    "beside local memory of a kernel": Case(
        [
            (scale, (0.5, "x", "t"), LINE, GROUP),
            (mirror, "tu", LINE, GROUP),
            (group_sums, "uy", LINE, GROUP),
        ],
        {"t": "local", "u": "private"},
    ),
    "barriers and reductions of groups": Case(
        [(scale, (0.5, "x", "t"), LINE, GROUP), (group_sums, "ty", LINE, GROUP)], {"t": "private"}
    ),
    "a diamond": Case(
        [
            (through_functions, "xt", LINE, None),
            (scale, (2.0, "t", "u"), LINE, None),
            (scale, (3.0, "t", "v"), LINE, None),
            (products, "uvy", LINE, None),
        ],
        dict.fromkeys("tuv", "private"),
    ),
    "one array for two parameters": Case(
        [(scale, (2.0, "x", "t"), LINE, None), (products, "tty", LINE, None)], {"t": "private"}
    ),
    "all of it in one group": Case(
        [(scale, (2.0, "x", "t"), GROUP, GROUP), (mirror, "ty", GROUP, GROUP)], {"t": "local"}
    ),
    "a diamond with nothing inside": Case(
        [
            (scale, (2.0, "x", "t"), LINE, None),
            (scale, (3.0, "t", "u"), LINE, None),
            (scale, (4.0, "t", "v"), LINE, None),
            (products, "uvy", LINE, None),
        ],
        {},
    ),
    "memory of others": Case(
        [(scale, (2.0, "x", "t"), LINE, GROUP), (mirror, "ty", LINE, GROUP)],
        {"t": None},
        asked="private",
    ),
    "an address that is stored": Case(
        [(count, "xt", LINE, None), (whole, "ty", LINE, None)], {"t": None}, asked="private"
    ),
    "a local scope without a local size": Case(
        [(scale, (2.0, "x", "t"), LINE, None), (add, "ty", LINE, None)],
        {"t": "local"},
        asked="local",
    ),
}


def arrays_of(case: Case) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(7)
    arrays = {n: (draw.random(case.shapes.get(n, LINE)) * 9).astype(case.dtype) for n in "xtuvy"}
    if any(function is count for function, *_ in case.steps):
        arrays["t"] = np.zeros(LINE, np.int32)
    return arrays


def submit(queue: tw.Queue, case: Case, memory: Mapping[str, Any]) -> None:
    for function, arguments, sizes, local in case.steps:
        passed = [memory[a] if isinstance(a, str) else a for a in arguments]
        queue.submit(function, sizes, *passed, local=local)


@pytest.mark.parametrize("name", CASES)
def test_kinds(queue: tw.Queue, name: str) -> None:
    case = CASES[name]
    expected, started = arrays_of(case), arrays_of(case)
    submit(queue, case, expected)
    queue.wait()
    memory = {n: queue.buffer(array.copy()) for n, array in started.items()}
    dead = {memory[n]: case.asked for n in case.promoted}
    with queue.fusion(promote=dead, constants=name == "8 bits") as fusion:
        submit(queue, case, memory)
    queue.wait()
    report = fusion.report
    assert report.fused, report.reason
    kept = [buffer.promoted for buffer in report.buffers.values() if buffer.promoted]
    assert sorted(kept) == sorted(scope for scope in case.promoted.values() if scope)
    for n, buffer in memory.items():
        # What is promoted is never written.
        wanted = started if case.promoted.get(n) else expected
        np.testing.assert_allclose(buffer.numpy(), wanted[n], rtol=1e-5, err_msg=n)
