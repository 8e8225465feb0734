"""Random kernels of joint matrices: where subgroups multiply as one and on processors, what the
interpreter makes of the kernel as it was written."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from sweeps import in_turns
from tilewright.dtypes import dtype
from tilewright.interpret import run
from tilewright.machines import nvidia
from tilewright.recipes import choose
from tilewright.recipes.start import Start

TYPES = [(str(c.a), str(c.b), str(c.accumulator)) for c in tw.matrix_combinations("interpreter")]
LEVELS = ("sm_70", "sm_75", "sm_80", "sm_90a")
# What a kernel may do besides.
CHOICES = 9


def drawn(lanes: int) -> Any:
    @tw.kernel(subgroup=lanes)
    def product(
        a: tw.array("A", 2),
        b: tw.array("B", 2),
        c: tw.array("C", 2),
        d: tw.array("C", 2),
        sizes: tw.constant,
        types: tw.constant,
        layouts: tw.constant,
        does: tw.constant,
    ) -> None:
        m, n, k = sizes
        row = tw.group_id(0) * m
        col = (tw.group_id(1) * (tw.local_size(1) // lanes) + tw.subgroup_id()) * n
        left = tw.joint_matrix("a", m, k, types[0], layout=layouts[0])
        right = tw.joint_matrix("b", k, n, types[1], layout=layouts[1])
        total = tw.joint_matrix("accumulator", m, n, types[2])
        other = tw.joint_matrix("accumulator", m, n, types[2])
        other.fill(2)
        if does[0]:
            total.load(d, (row, col), checked=True)
        else:
            total.fill(1)
        for start in range(0, a.shape[1], k):
            if does[1] and start == k:
                continue
            left.load(a, (row, start), checked=True, layout="row")
            right.load(b, (start, col), checked=True)
            if does[2]:
                left.apply(lambda value: value if value > 0 else types[0](1))
            total.mad(left, right)
            if does[3]:
                total.apply(lambda value, i, j: value + types[2](i - j))
            if does[4]:
                other.mad(left, right)
        if does[5]:
            total.apply(lambda value, with_: value - with_, other)
        if does[6]:
            for i in range(total.length):
                total.set(i, total.get(i) + types[2](tw.lane_id()))
        if does[7]:
            other.copy(total)
            other.mad(left, right)
            other.store(d, (row, col), checked=True)
        if does[8]:
            total.apply(lambda value: max(value, 0))
        total.store(c, (row, col), checked=True)

    return product


KERNELS = {lanes: drawn(lanes) for lanes in (8, 16, 32)}


def numbers(g: np.random.Generator, type_: str, *shape: int) -> Any:
    return g.integers(0 if type_[0] == "u" else -2, 3, shape).astype(dtype(type_).numpy)


def check(seed: int) -> str:
    """Draws, compares, and says what was drawn."""
    r, g = random.Random(seed), np.random.default_rng(seed)
    types = r.choice(TYPES)
    m, n, k = (r.choice((8, 16, 16, 24, 32, 48, 5, 12)) for _ in range(3))
    k = r.choice((k, 16, 32))
    lanes, several = r.choice(tuple(KERNELS)), r.choice((1, 2))
    level = r.choice(LEVELS)
    layouts = ("row", r.choice(("row", "col")), "row")
    does = tuple(r.random() < 0.3 for _ in range(CHOICES))
    chosen = tuple(map(dtype, types))
    told = f"{seed}: {types} {(m, n, k)} {lanes} lanes, {several} subgroups, {level} {does}"
    depth, width = 2 * k - r.choice((0, 1)), several * n - r.choice((0, 1))
    values = {
        "a": numbers(g, types[0], 2 * m - r.choice((0, 1)), depth),
        "b": numbers(g, types[1], *((depth, width) if layouts[1] == "row" else (width, depth))),
    }
    for name in ("c", "d"):
        values[name] = numbers(g, types[2], len(values["a"]), width)
    local, range_ = (1, several * lanes), (2, several * lanes)
    constants = {"sizes": (m, n, k), "types": chosen, "layouts": layouts, "does": does}
    wanted = {name: value.copy() for name, value in values.items()}
    kernel = KERNELS[lanes]
    kernel.launch(range_, *wanted.values(), *constants.values(), local=local, target="interpreter")
    on_x86 = {name: value.copy() for name, value in values.items()}
    kernel.launch(range_, *on_x86.values(), *constants.values(), local=local, target="x86")
    result = kernel.over(local=local, **dict(zip("ABC", types, strict=True)), **constants)
    _, scheduled = choose.choose(Start(result, result, None), nvidia.machine(level))
    lengths = {f"{name}_{d}": value.shape[d] for name, value in values.items() for d in (0, 1)}
    flat = {name: value.reshape(-1) for name, value in values.items()}
    sizes = {"global_0": range_[0], "global_1": range_[1]}
    run(scheduled.kernel, {**flat, **lengths, **sizes})
    for name in ("c", "d"):
        np.testing.assert_array_equal(on_x86[name], wanted[name], err_msg=f"x86 {told}")
        np.testing.assert_array_equal(values[name], wanted[name], err_msg=told)
    return f"{told} {scheduled.log.notes} {'mma' if '<mma_' in str(scheduled.kernel) else ''}"


# 65: each lane rounds sums of its own behind a product that hands them to others.
@pytest.mark.parametrize("seed", [65, *in_turns(15, range(60))])
def test_random(seed: int) -> None:
    check(seed)
