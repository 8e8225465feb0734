"""Vectors in kernels in Python: on each target, against numpy; and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES
from tilewright.errors import KernelError

TARGETS = ["interpreter", "x86", *DEVICES]


@tw.function
def cross(a, b):
    return tw.vector(
        a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
    )


@tw.kernel
def turned(x: tw.array("T", 2), y: tw.array("T", 2), out: tw.array("T", 2), steps: tw.s32) -> None:
    """Sums of products over a loop, a swap, a branch, a clamp, a shorter vector."""
    i = tw.global_id(0)
    total = tw.vector(*(0,) * 3)
    a, b = tw.load_vector(x, (i, 0), 3), tw.load_vector(y, (i, 0), 3)
    for step in range(steps):
        total += cross(a, b) * (step + 1)
        if total[0] > 0:
            total = tw.vector(total[2], total[0], total[1])
            a, b = b, a
    total = max(min(-total, 50), tw.vector(-40, -30, -20))
    total = tw.where(total < 0, total - 1, total)
    tw.store_vector(out, (i, 1), total[1:])
    out[i, 0] = tw.vector_reduce(total, "add")


def expected(x: Any, y: Any, steps: int) -> Any:
    out = np.zeros_like(x)
    for i in range(len(x)):
        a, b, total = x[i], y[i], np.zeros(3, x.dtype)
        for step in range(steps):
            total = total + np.cross(a, b) * x.dtype.type(step + 1)
            if total[0] > 0:
                total, a, b = total[[2, 0, 1]], b, a
        total = np.maximum(np.minimum(-total, 50), np.array([-40, -30, -20], x.dtype))
        total = np.where(total < 0, total - 1, total)
        out[i] = total.sum(), *total[1:]
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64])
def test_vectors(dtype: Any, target: str) -> None:
    g = np.random.default_rng(0)
    x, y = (g.integers(-3, 4, (21, 3)).astype(dtype) for _ in range(2))
    out = np.zeros_like(x)
    turned.launch(21, x, y, out, 4, target=target)
    np.testing.assert_array_equal(out, expected(x, y, 4))


def test_ptx() -> None:
    assert ".entry turned" in tw.compile(turned.over(T="f32"), "nvidia:sm_80").source("asm")


@tw.kernel
def mixed(x: tw.array("f32", 1), n: tw.array("s64", 1), out: tw.array("f64", 1)) -> None:
    v = tw.vector(1, x[0], n[0])  # f32: floats take integers
    w = tw.exp(v * 0) + tw.f64(v[0])
    a: tw.f64 = w[0] + tw.fma(w, w, 1.0)[1]
    out[0] = a
    out[1] = tw.vector_reduce(tw.s32(tw.load_vector(x, 0, 4)) & 3, "or")
    out[2] = len(w)


@pytest.mark.parametrize("target", TARGETS)
def test_types_meet(target: str) -> None:
    out = np.zeros(3)
    x = np.array([2.5, 1, 2, 0], np.float32)
    mixed.launch(1, x, np.array([7]), out, target=target)
    assert out.tolist() == [2 + 5, 3, 3]


@tw.kernel
def wrong(x: tw.array("f32", 1), which: tw.constant) -> None:
    v = tw.vector(x[0], 2.0)
    if which == "lengths":
        v + tw.vector(1, 2, 3)
    elif which == "slice":
        x[0] = tw.vector_reduce(v[2:], "add")
    elif which == "step":
        x[0] = v[::0][0]
    elif which == "element":
        x[0] = v[2]
    elif which == "known":
        x[0] = v[tw.global_id(0)]
    elif which == "number":
        x[0] = v
    elif which == "condition":
        if v > 0:
            x[0] = 1.0
    elif which == "assign":
        v[0] = 1.0
    elif which == "empty":
        tw.vector()
    elif which == "reduce":
        x[0] = tw.vector_reduce(x[0], "add")
    elif which == "rank":
        tw.store_vector(x, (0, 0), v)
    elif which == "array":
        v + x


@tw.kernel
def ways(x: tw.array("f32", 1), which: tw.constant) -> None:
    v = tw.vector(x[0], 2.0)
    for i in range(3):
        if which == "longer":
            v = tw.vector(1, 2, 3)
        elif which == "number":
            v = x[i]
        else:
            v = v + x[i]
    x[0] = v[0]


@pytest.mark.parametrize(
    ("kernel", "which", "what"),
    [
        (wrong, "lengths", "vectors of 2 and 3"),
        (wrong, "element", "element 2 of a vector of 2"),
        (wrong, "slice", "a vector of 0"),
        (wrong, "step", "a slice by steps of 0"),
        (wrong, "known", "it is a s32 that work-items compute"),
        (wrong, "number", "the value is a vector of 2"),
        (wrong, "condition", "the condition is a vector of 2"),
        (wrong, "assign", "a vector of 2 has no elements to assign to"),
        (wrong, "empty", "a vector of 0"),
        (wrong, "reduce", "tw.vector_reduce of a f32"),
        (wrong, "rank", "x has 1 dims, and 2 indices"),
        (wrong, "array", "an operand beside a vector is the array x"),
        (ways, "longer", "v is a vector of 2 on one path, and a vector of 3 here"),
        (ways, "number", "v is a vector of 2 on one path, and a f32"),
    ],
)
def test_refusals_have_a_place(kernel: Any, which: str, what: str) -> None:
    with pytest.raises(KernelError) as caught:
        kernel.over(which=which)
    assert what in caught.value.what, caught.value
    assert caught.value.span is not None and caught.value.cure
    assert ways.over(which="fine") is not None


@tw.kernel
def rows(
    table: tw.array("s32", 1), x: tw.array("f32", 2), out: tw.array("f32", 1), n: tw.s32
) -> None:
    """What a lane has loaded says where it loads more, over dims that a call passes."""
    i = tw.global_id(0)
    if i < n:
        row = table[i]
        total = x[row, 0] + x[row, 1]
        for column in range(4):
            total += x[row, column]
        out[i] = total


@pytest.mark.parametrize("target", TARGETS)
def test_rows_at_loaded_places(target: str) -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 12, 75).astype(np.int32)
    x, out = rng.standard_normal((12, 6)).astype(np.float32), np.zeros(75, np.float32)
    rows.launch(80, table, x, out, 75, target=target)
    want = x[table, 0] + x[table, 1] + x[table, :4].sum(axis=1)
    np.testing.assert_allclose(out, want, rtol=1e-5)
