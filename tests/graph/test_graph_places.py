"""Gathers, scatters, slices at computed places, control flow and nests of graphs, against numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphs import check, graph, numbers, run
from tilewright.errors import ProblemError
from tilewright.ir.expr import Expr
from tilewright.tensor import nests
from tilewright.tensor.control import case, if_, while_
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.fourier import fourier
from tilewright.tensor.indexing import (
    Windows,
    dynamic_slice,
    dynamic_update_slice,
    gather,
    scatter,
    take,
)
from tilewright.tensor.tensor import Builder, Tensor
from tilewright.tensor.views import slice_

ROWS = Windows(window=(1,), collapsed=(0,), addressed=(0,), vector=1)


def test_take() -> None:
    table, ids = numbers(5, 3), np.array([[4, 0], [9, -1]], np.int32)
    expected = table[np.array([[4, 0], [4, 4]])]
    check(lambda t, i: take(t, i, 0), expected, exact=True, t=table, i=ids)
    expected = np.take(table, [2, 0], axis=1)
    check(lambda t, i: take(t, i, 1), expected, exact=True, t=table, i=np.array([2, 0], np.uint8))


def test_gather_windows_move_inside() -> None:
    table = numbers(6, 4)
    starts = np.array([[0, 0], [5, 3], [-2, 1]], np.int64)
    windows = Windows(window=(1, 2), addressed=(0, 1), vector=1)
    rows = [(np.clip(a, 0, 4), np.clip(b, 0, 1)) for a, b in starts]
    expected = np.stack([table[a : a + 2, b : b + 3] for a, b in rows])
    check(lambda t, i: gather(t, i, windows, (2, 3)), expected, exact=True, t=table, i=starts)


def test_gather_with_batching_dims() -> None:
    table, ids = numbers(3, 5), np.array([[1, 2], [0, 0], [4, 3]], np.int32)
    windows = Windows(collapsed=(1,), addressed=(1,), vector=2, batching=(0,), index_batching=(0,))
    expected = np.take_along_axis(table, ids, 1)
    check(lambda t, i: gather(t, i, windows, (1, 1)), expected, exact=True, t=table, i=ids)


@pytest.mark.parametrize("target", ["interpreter", "x86"])
def test_scatter(target: str) -> None:
    base, ids = numbers(4, 3), np.array([[1], [3], [1], [7], [-1]], np.int32)
    updates = numbers(5, 3, seed=1)

    def build(b: Tensor, i: Tensor, u: Tensor) -> list[Tensor]:
        def halved(old: Sequence[Expr], new: Sequence[Expr]) -> Sequence[Expr]:
            return [old[0] * 0.5 + new[0]]

        rules: list[Any] = ["add", None, halved]
        return [scatter([b], i, [u], ROWS, rule)[0] for rule in rules]

    expected = [base.copy(), base.copy(), base.copy()]
    for place, row in zip(ids[:, 0], updates, strict=True):
        if 0 <= place < 4:
            expected[0][place] += row
            expected[1][place] = row
            expected[2][place] = expected[2][place] * np.float32(0.5) + row
    kernel = graph(build, b=base, i=ids, u=updates)
    for got, want in zip(run(kernel, target, b=base, i=ids, u=updates), expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-6, 1e-6)


def test_scatter_unique_and_whole_windows() -> None:
    base, ids = numbers(4, 3), np.array([[3], [0]], np.int32)
    updates = numbers(2, 2, 3, seed=1)
    windows = Windows(window=(1, 2), addressed=(0,), vector=1)
    partly, wholly = base.copy(), base.copy()
    partly[3] = updates[0, 0]
    partly[:2] = wholly[:2] = updates[1]

    def build(b: Tensor, i: Tensor, u: Tensor) -> list[Tensor]:
        return [
            scatter([b], i, [u], windows, None, unique=True, whole_windows=whole)[0]
            for whole in (False, True)
        ]

    check(build, [partly, wholly], exact=True, b=base, i=ids, u=updates)


def test_dynamic_slices() -> None:
    x, update = numbers(5, 4), numbers(2, 4, seed=1)
    first, second = np.array(4, np.int32), np.array(-3, np.int32)
    expected = x.copy()
    expected[3:] = update
    check(
        lambda x, u, a, b: [
            dynamic_slice(x, [a, b], (2, 3)),
            dynamic_update_slice(x, u, [a, b]),
            dynamic_update_slice(x, x, [a, b]),
        ],
        [x[3:5, 0:3], expected, x],
        exact=True,
        x=x,
        u=update,
        a=first,
        b=second,
    )


@pytest.mark.parametrize("target", ["interpreter", "x86"])
def test_while_swaps_what_it_carries(target: str) -> None:
    def build(first: Tensor, second: Tensor, n: Tensor) -> Sequence[Tensor]:
        def body(values: Sequence[Tensor]) -> Sequence[Tensor]:
            a, b, i = values
            total = elementwise(lambda p, q: p + q, a, b)
            return [b, total, elementwise(lambda k: k + 1, i)]

        def test(values: Sequence[Tensor]) -> Tensor:
            return elementwise(lambda k, most: k < most, values[2], n)

        zero = n.builder.splat(0, n.dtype)
        return while_([first, second, zero], test, body)

    x, y = numbers(3), numbers(3, seed=1)
    value = {"first": x, "second": y, "n": np.array(4, np.int64)}
    a, b = x, y
    for _ in range(4):
        a, b = b, a + b
    kernel = graph(build, **value)
    for got, want in zip(run(kernel, target, **value), [a, b, 4], strict=True):
        np.testing.assert_allclose(got, want, 1e-6)


def test_branches() -> None:
    def build(x: Tensor, go: Tensor, which: Tensor) -> Sequence[Tensor]:
        def times(factor: float) -> Any:
            return lambda: [elementwise(lambda v: v * factor, x)]

        (first,) = if_(go, times(2.0), times(3.0))
        (second,) = case(which, [times(5.0), times(7.0), times(11.0)])
        return [first, second]

    x = numbers(4)
    kernel = graph(build, x=x, go=np.array(True), which=np.array(1, np.int32))
    for go, which, factors in ((True, 1, (2, 7)), (False, 9, (3, 11)), (True, -1, (2, 11))):
        result = run(kernel, x=x, go=np.array(go), which=np.array(which, np.int32))
        for got, factor in zip(result, factors, strict=True):
            np.testing.assert_allclose(got, x * factor, 1e-6)


@pytest.mark.parametrize("target", ["interpreter", "x86"])
def test_sort_is_stable(target: str) -> None:
    keys = np.array([[3, 1, 2, 1, 3, 0, 2], [0, 0, 5, 4, 4, 9, 1]], np.int32)
    places = np.broadcast_to(np.arange(7, dtype=np.int32), (2, 7)).copy()

    def build(k: Tensor, p: Tensor) -> Sequence[Tensor]:
        return nests.sort([k, p], 1, lambda a, b: a[0] < b[0])

    order = np.argsort(keys, axis=1, kind="stable")
    kernel = graph(build, k=keys, p=places)
    result = run(kernel, target, k=keys, p=places)
    np.testing.assert_array_equal(result[0], np.take_along_axis(keys, order, 1))
    np.testing.assert_array_equal(result[1], order)


def test_sort_along_the_first_dim() -> None:
    x = numbers(5, 3)
    expected = -np.sort(-x, axis=0)
    check(lambda x: nests.sort([x], 0, lambda a, b: b[0] < a[0])[0], expected, exact=True, x=x)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_triangular_solve(lower: bool, left: bool, transposed: bool) -> None:
    a = numbers(2, 4, 4).astype(np.float64) + 4 * np.eye(4)
    b = numbers(2, 4, 3, seed=1).astype(np.float64)
    b = b if left else b.swapaxes(1, 2).copy()
    whole = np.tril(a) if lower else np.triu(a)
    whole = whole.swapaxes(1, 2) if transposed else whole
    expected = np.linalg.solve(whole, b) if left else b @ np.linalg.inv(whole)
    check(
        lambda a, b: nests.triangular_solve(
            [a], [b], left=left, lower=lower, transposed=transposed
        )[0],
        expected,
        a=a,
        b=b,
    )


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(lower: bool) -> None:
    part = numbers(2, 4, 4).astype(np.float64)
    a = part @ part.swapaxes(1, 2) + np.eye(4)
    expected = np.linalg.cholesky(a)
    expected = expected if lower else expected.swapaxes(1, 2)
    check(lambda a: nests.cholesky([a], lower=lower)[0], expected, a=a)


@pytest.mark.parametrize("size", [1, 7, 40, 96, 37])
def test_fourier(size: int) -> None:
    z = numbers(3, size).astype(np.float64) + 1j * numbers(3, size, seed=1)
    values = {"a": z.real.copy(), "b": z.imag.copy()}
    result = np.fft.fft(z)
    check(lambda a, b: fourier((a, b), [1]), [result.real, result.imag], **values)
    result = np.fft.ifft2(z)
    check(lambda a, b: fourier((a, b), [0, 1], inverse=True), [result.real, result.imag], **values)


def test_refused() -> None:
    builder = Builder()
    x, ids = builder.input("x", "f32", (4, 3)), builder.input("i", "s32", (2, 1))
    flag = builder.splat(True, "bool")
    refused = [
        (lambda: gather(x, x, ROWS, (1, 3)), "indices that are no integers"),
        (lambda: gather(x, ids, ROWS, (2, 3)), "2 long in dim 0"),
        (lambda: gather(x, ids, ROWS, (1, 9)), "windows of"),
        (lambda: gather(x, ids, Windows((1,), (0,), (0, 1), 1), (1, 3)), "index vectors of 1"),
        (lambda: gather(x, ids, Windows((0, 1), (0,), (0,), 1), (1, 3)), "windows have 1 dims"),
        (lambda: scatter([x], ids, [x], ROWS, "add"), "updates f32"),
        (lambda: scatter([x], ids, [x, x], ROWS, "add"), "1 tensors, 2 updates"),
        (lambda: scatter([x], ids, [slice_(x, [0, 0], [2, 3])], ROWS, "x"), "combines no values"),
        (lambda: dynamic_slice(x, [ids, ids], (1, 1)), "starts at"),
        (lambda: dynamic_slice(x, [], (1, 1)), "a slice of"),
        (lambda: dynamic_update_slice(x, ids, []), "one type and rank"),
        (lambda: if_(x, list, list), "the condition is"),
        (lambda: case(x, []), "a case of"),
        (lambda: while_([x], lambda v: v[0], lambda v: v), "the condition of a loop"),
        (lambda: while_([x], lambda v: flag, lambda v: [ids]), "its body gives"),
        (lambda: while_([x], lambda v: flag, lambda v: []), "carries 1 values"),
        (lambda: nests.sort([x, ids], 0, lambda a, b: a[0] < b[0]), "sorted along dim 0"),
        (lambda: nests.cholesky([x]), "the factor of"),
        (lambda: nests.triangular_solve([x], [x]), "is solved for"),
    ]
    for call, message in refused:
        with pytest.raises(ProblemError, match=message) as caught:
            call()
        assert caught.value.cure
