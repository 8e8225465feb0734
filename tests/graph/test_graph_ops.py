"""The families of ops of graphs, in the interpreter against numpy."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphs import check, graph, numbers, run
from tilewright.dtypes import f32, s32, s64
from tilewright.errors import ProblemError
from tilewright.graph.library import library
from tilewright.ir import Compute, Expr, maximum, walk_stmts
from tilewright.ir import select as choose
from tilewright.problems.library import LIBRARY, SoftmaxProblem
from tilewright.tensor import views
from tilewright.tensor.contractions import dot_general, matmul
from tilewright.tensor.convolution import Dims, convolution
from tilewright.tensor.elementwise import bitcast, convert, elementwise, select
from tilewright.tensor.reductions import reduce, scan
from tilewright.tensor.tensor import Builder, Tensor
from tilewright.tensor.windows import reduce_window


def computes(kernel: Any) -> list[Compute]:
    return [s for s in walk_stmts(kernel.body) if isinstance(s, Compute)]


# Views.


def test_views_cost_no_compute() -> None:
    def build(x: Tensor) -> Tensor:
        y = views.reshape(views.transpose(x, (1, 0)), (2, 3, 4))
        y = views.reverse(views.slice_(y, (0, 1, 0), (2, 3, 4), (1, 1, 2)), (1,))
        return views.broadcast_in_dim(y, (5, 2, 2, 2), (1, 2, 3))

    x = numbers(4, 6)
    y = x.T.reshape(2, 3, 4)[:, 1:3, ::2][:, ::-1]
    kernel = check(build, np.broadcast_to(y, (5, 2, 2, 2)), exact=True, x=x)
    assert len(computes(kernel)) == 1


def test_reshapes_there_and_back_are_nothing() -> None:
    def build(x: Tensor) -> Tensor:
        y = views.reshape(views.reshape(x, (2, 12, 1)), (4, 6))
        assert y.buffer is x.buffer
        return y

    check(build, numbers(4, 6), x=numbers(4, 6))


def _padded(x: Any, value: float, low: Any, high: Any, between: Any) -> Any:
    shape = [n + max(0, n - 1) * c for n, c in zip(x.shape, between, strict=True)]
    spread = np.full(shape, value, x.dtype)
    spread[tuple(slice(None, None, c + 1) for c in between)] = x
    for n, (a, b) in enumerate(zip(low, high, strict=True)):
        spread = np.moveaxis(spread, n, 0)[max(0, -a) : len(np.moveaxis(spread, n, 0)) - max(0, -b)]
        widths = [(max(0, a), max(0, b))] + [(0, 0)] * (spread.ndim - 1)
        spread = np.moveaxis(np.pad(spread, widths, constant_values=value), 0, n)
    return spread


def test_random_chains_of_views() -> None:
    rng = random.Random(5)
    for _ in range(40):
        x = numbers(2, 3, 4, seed=rng.randrange(99))
        builder = Builder("g")
        tensor, value = builder.input("x", "f32", x.shape), x
        for _ in range(rng.randint(1, 6)):
            tensor, value = _random_view(rng, tensor, value)
        builder.output("y", tensor)
        assert tensor.shape == value.shape
        np.testing.assert_array_equal(run(builder.kernel(), x=x)[0], value)


def _random_view(rng: random.Random, tensor: Tensor, value: Any) -> tuple[Tensor, Any]:
    rank = value.ndim
    match rng.randrange(6):
        case 0:
            shape = _regrouped(rng, value.size)
            return views.reshape(tensor, shape), value.reshape(shape)
        case 1:
            order = rng.sample(range(rank), rank)
            return views.transpose(tensor, order), value.transpose(order)
        case 2:
            dims = [n for n in range(rank) if rng.random() < 0.5]
            return views.reverse(tensor, dims), np.flip(value, tuple(dims))
        case 3:
            cut = [sorted(rng.sample(range(n + 1), 2)) if n > 1 else [0, n] for n in value.shape]
            steps = [rng.randint(1, 2) for _ in cut]
            result = value[tuple(slice(a, b, c) for (a, b), c in zip(cut, steps, strict=True))]
            return views.slice_(tensor, [a for a, _ in cut], [b for _, b in cut], steps), result
        case 4 if value.size < 200:
            low, high = ([rng.randint(-1 if n > 2 else 0, 2) for n in value.shape] for _ in "ab")
            between = [rng.randint(0, 1) for _ in value.shape]
            outside = rng.choice((0.0, 3.0))
            padding = tensor.builder.splat(outside, "f32")
            padded = _padded(value, outside, low, high, between)
            return views.pad(tensor, padding, low, high, between), padded
        case _:
            return views.concatenate([tensor, tensor], rank - 1), np.concatenate([value] * 2, -1)


def _regrouped(rng: random.Random, size: int) -> list[int]:
    shape = [size]
    while rng.random() < 0.6:
        n = rng.randrange(len(shape))
        divisor = rng.choice([d for d in range(1, shape[n] + 1) if shape[n] % d == 0] or [1])
        shape[n : n + 1] = [divisor, shape[n] // divisor] if shape[n] else [0, 1]
    return shape


def test_iota_and_what_is_made_of_it_alone_stay_expressions() -> None:
    def build(x: Tensor) -> Tensor:
        rows, columns = (views.iota(x.builder, "s32", x.shape, n) for n in (0, 1))
        seen = elementwise(lambda a, b: b <= a, rows, columns)
        return select(seen, x, x.builder.splat(-1.0, "f32", x.shape))

    x = numbers(4, 4)
    kernel = check(build, np.where(np.tri(4, dtype=bool), x, -1), exact=True, x=x)
    assert len(computes(kernel)) == 1


def test_tensors_without_elements() -> None:
    def build(x: Tensor) -> list[Tensor]:
        empty = views.slice_(x, (1, 0), (1, 3))
        (sums,) = reduce([empty], [x.builder.splat(2.0, "f32")], [0], "add")
        return [views.concatenate([x, empty], 0), views.reshape(empty, (3, 0, 2)), sums]

    x = numbers(2, 3)
    check(build, (x, np.zeros((3, 0, 2)), np.full(3, 2.0)), exact=True, x=x)


# Elementwise.


def test_conversions_that_lose_nothing_are_done_where_the_result_is_used() -> None:
    x = numbers(6, dtype=np.int8)
    kernel = check(lambda a: elementwise(lambda e: e * 2, convert(a, s32)), x * 2, exact=True, x=x)
    assert len(computes(kernel)) == 1
    check(lambda a: convert(a, "s8"), x, exact=True, x=x.astype(np.float32))


@pytest.mark.parametrize(("old", "new"), [("uint32", "uint8"), ("float32", "int32"),
    ("int8", "int64"), ("float64", "float32"), ("uint16", "float32")])  # fmt: skip
def test_bits_as_another_type(old: str, new: str) -> None:
    raw: Any = np.random.default_rng(3).integers(0, 100, 3 * 8 * 8, dtype=np.uint8)
    x: Any = raw.view(old).reshape(3, -1, max(1, np.dtype(new).itemsize // np.dtype(old).itemsize))
    x = x if np.dtype(new).itemsize > np.dtype(old).itemsize else x[..., 0]
    wanted = x.view(new)
    if np.dtype(new).itemsize > np.dtype(old).itemsize:
        wanted = wanted[..., 0]
    elif np.dtype(new).itemsize < np.dtype(old).itemsize:
        wanted = np.ascontiguousarray(x).view(new).reshape(*x.shape, -1)
    check(lambda a: bitcast(a, new), wanted, exact=True, x=x)


# Sums of products.


def test_products_with_batches_in_any_order() -> None:
    a, b = numbers(3, 2, 5, 4), numbers(4, 6, 3, 2)
    wanted = np.einsum("bcmk,knbc->cbmn", a.astype(float), b)
    check(lambda a, b: dot_general(a, b, ((1, 0), (3, 2)), ((3,), (0,))), wanted, a=a, b=b)
    check(lambda a, b: dot_general(a, b), np.multiply.outer(a[0], b[0]), a=a[0], b=b[0])


@pytest.mark.parametrize("rows", [1, 4, 5])
def test_a_factor_that_is_read_a_few_times_is_not_copied(rows: int) -> None:
    """Its dims that are counted through are apart in the product, on either side."""
    x, few = numbers(2, 3, 6, 4), numbers(2, rows, 6)
    factor = x.transpose(0, 1, 3, 2).reshape(2, 12, 6)
    wanted = few @ factor.transpose(0, 2, 1)

    def left(few: Tensor, x: Tensor) -> Tensor:
        digits = views.reshape(views.transpose(x, (1, 0, 3, 2)), (24, 6))
        return dot_general(digits, few, contracting=((1,), (2,)))

    def right(few: Tensor, x: Tensor) -> Tensor:
        digits = views.reshape(views.transpose(x, (0, 1, 3, 2)), (2, 12, 6))
        return dot_general(few, digits, ((0,), (0,)), ((2,), (2,)))

    other = x.transpose(1, 0, 3, 2).reshape(24, 6)
    results = {left: np.einsum("nk,bmk->nbm", other, few), right: wanted}
    for build, result in results.items():
        kernel = check(build, result, few=few, x=x)
        copied = any("factor" in compute.name for compute in computes(kernel))
        assert copied == (few.size // 6 > 4 if build is left else rows > 4)


def test_a_factor_whose_digits_do_not_divide_is_copied() -> None:
    """Rows of 6 of a matrix whose rows are 4."""
    x, row = numbers(3, 4), numbers(1, 6)
    kernel = check(
        lambda row, x: dot_general(
            row, views.reshape(views.transpose(x, (1, 0)), (2, 6)), contracting=((1,), (1,))
        ),
        row @ x.T.reshape(2, 6).T,
        row=row,
        x=x,
    )
    assert any("factor" in compute.name for compute in computes(kernel))


def test_products_of_views_of_padded_and_of_converted_tensors() -> None:
    a, b = numbers(4, 6), numbers(6, 5)

    def build(a: Tensor, b: Tensor) -> list[Tensor]:
        zero, one = a.builder.splat(0.0, "f32"), a.builder.splat(1.0, "f32")
        padded = [views.pad(a, filling, (0, 1), (0, 1)) for filling in (zero, one)]
        longer = views.pad(b, zero, (1, 0), (1, 0))
        return [matmul(factor, longer) for factor in padded]

    wanted = [
        np.pad(a, ((0, 0), (1, 1)), constant_values=v) @ np.pad(b, ((1, 1), (0, 0))) for v in (0, 1)
    ]
    check(build, wanted, a=a, b=b)
    small = a.astype(np.int8), b.astype(np.int8)
    wanted = small[0].astype(int) @ small[1].astype(int)
    check(lambda a, b: matmul(a, b, dtype="s32"), wanted, exact=True, a=small[0], b=small[1])


def test_products_of_conditions() -> None:
    a, b = numbers(3, 4, dtype=bool), numbers(4, 5, dtype=bool)
    check(matmul, a @ b, exact=True, a=a, b=b)


def test_narrow_floats_are_added_up_in_f32() -> None:
    a, b = (numbers(*s).astype(np.float16) for s in ((3, 2000), (2000, 2)))
    kernel = graph(matmul, a=a, b=b)
    assert [str(s.outputs[0].buffer.dtype) for s in computes(kernel)] == ["f32", "f32", "f16"]


def _convolved(
    x: Any, k: Any, strides: Any, padding: Any, base: Any, dilation: Any, flip: Any
) -> Any:
    """N, C, spatial with O, I, spatial; padding may be negative."""
    x = _padded(
        x.astype(float), 0, (0, 0, *(p[0] for p in padding)), (0, 0, *(p[1] for p in padding)),
        (0, 0, *(b - 1 for b in base)),
    )  # fmt: skip
    k = np.flip(k.astype(float), tuple(n + 2 for n, f in enumerate(flip) if f))
    reach = [(t - 1) * d + 1 for t, d in zip(k.shape[2:], dilation, strict=True)]
    sizes = [max(0, (n - r) // s + 1) for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    out = np.zeros((x.shape[0], k.shape[0], *sizes))
    for taps in itertools.product(*map(range, k.shape[2:])):
        at = tuple(
            slice(t * d, t * d + (n - 1) * s + 1 if n else t * d, s)
            for t, d, n, s in zip(taps, dilation, sizes, strides, strict=True)
        )
        out += np.einsum("nc...,oc->no...", x[(..., *at)], k[(..., *taps)])
    return out


def test_random_convolutions() -> None:
    rng = random.Random(7)
    for _ in range(25):
        _random_convolution(rng)


def _random_convolution(rng: random.Random) -> None:
    spatial = rng.randint(1, 2)
    features, batches = rng.choice([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2)])
    groups = features * batches
    ic, oc, n = rng.randint(1, 3), rng.randint(1, 2), rng.randint(1, 2) * batches
    shape = [rng.randint(3, 6) for _ in range(spatial)]
    taps = [rng.randint(1, 3) for _ in range(spatial)]
    strides, base, dilation = ([rng.randint(1, 2) for _ in shape] for _ in "sbd")
    padding = [(rng.randint(-1, 2), rng.randint(-1, 2)) for _ in shape]
    flip = [rng.random() < 0.3 for _ in shape]
    x, k = numbers(n, ic * features, *shape), numbers(oc * groups, ic, *taps)
    xs = np.split(x, features, 1) if batches == 1 else np.split(x, batches, 0)
    ks = np.split(k, groups, 0)
    args = (strides, padding, base, dilation, flip)
    wanted = np.concatenate([_convolved(a, b, *args) for a, b in zip(xs, ks, strict=True)], 1)
    orders = [rng.sample(range(spatial + 2), spatial + 2) for _ in range(3)]
    dims = Dims(*((o[0], o[1], tuple(o[2:])) for o in orders))
    inverse = [tuple(np.argsort(o)) for o in orders]
    x = np.ascontiguousarray(x.transpose(inverse[0]))
    k = np.ascontiguousarray(k.swapaxes(0, 1).transpose(inverse[1]))

    def build(x: Tensor, k: Tensor) -> Tensor:
        return convolution(
            x, k, dims, strides=strides, padding=padding, base_dilations=base, dilations=dilation,
            reversal=flip, feature_groups=features, batch_groups=batches,
        )  # fmt: skip

    check(build, wanted.transpose(inverse[2]), x=x, k=k)


# Reductions.


def test_reductions_by_name_and_by_a_function() -> None:
    x = numbers(3, 4, 5)

    def argmax(old: Sequence[Expr], new: Sequence[Expr]) -> list[Expr]:
        better = (old[0] < new[0]) | (old[0].__eq__(new[0]) & (new[1] < old[1]))
        return [choose(better, n, o) for o, n in zip(old, new, strict=True)]

    def build(x: Tensor) -> list[Tensor]:
        builder = x.builder
        low, zero = builder.splat(-np.inf, "f32"), builder.splat(0, "s64")
        place = views.iota(builder, s64, x.shape, 1)
        two = builder.splat(2.0, "f32")
        return [
            *reduce([x], [two], [0, 2], "add"),
            *reduce([x], [two], [], "max"),
            *reduce([x, place], [low, zero], [1], argmax),
        ]

    wanted = (x.sum((0, 2)) + 2, np.maximum(x, 2), x.max(1), x.argmax(1))
    check(build, wanted, x=x)


def test_functions_that_are_named_combiners_count_as_these() -> None:
    def build(x: Tensor) -> list[Tensor]:
        zero = x.builder.splat(0.0, "f32")
        both = reduce([x, x], [zero, zero], [1], lambda a, b: [b[0] + a[0], maximum(a[1], b[1])])
        return [*both, *reduce([x], [zero], [1], lambda a, b: [a[0] + a[0]])]

    x = numbers(3, 5)
    wanted = (x.sum(1), np.maximum(x.max(1), 0), np.zeros(3))
    kernel = check(build, wanted, x=x)
    reduced = [c for c in computes(kernel) if len(c.dims) == 2]
    assert [r.combiner for c in reduced for r in c.results] == ["add", "max", None]


def test_long_chains_of_views_are_put_into_memory_in_between() -> None:
    def build(x: Tensor) -> Tensor:
        for n in range(12):
            value = x.builder.splat(float(n), "f32")
            x = views.pad(x, value, (1, 0), (0, 1), (1, 0))
        return x

    x = numbers(2, 2)
    wanted = x
    for n in range(12):
        wanted = _padded(wanted, float(n), (1, 0), (0, 1), (1, 0))
    kernel = check(build, wanted, exact=True, x=x)
    assert 1 < len(computes(kernel)) < 12


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_in_both_directions(reverse: bool) -> None:
    x = numbers(3, 6)

    def build(x: Tensor) -> tuple[Tensor, ...]:
        one = x.builder.splat(2.0, "f32")
        return scan([x], [one], 1, lambda old, new: [old[0] * new[0]], reverse=reverse)

    turned = x[:, ::-1] if reverse else x
    wanted = 2 * np.cumprod(turned, 1)
    check(build, wanted[:, ::-1] if reverse else wanted, x=x)


@pytest.mark.parametrize("combiner", ["add", "max", lambda old, new: [old[0] * 0.5 + new[0]]])
def test_windows(combiner: Any) -> None:
    x = numbers(2, 7, 6)
    padding, first = [(0, 0), (1, 2), (0, 1)], 0.5

    def build(x: Tensor) -> tuple[Tensor, ...]:
        return reduce_window(
            [x], [x.builder.splat(first, "f32")], combiner, (1, 3, 2), strides=(1, 2, 1),
            padding=padding, base_dilations=(1, 1, 2), dilations=(1, 2, 1),
        )  # fmt: skip

    spread = _padded(x, first, (0, 1, 0), (0, 2, 1), (0, 0, 1))
    wanted = np.full((2, 3, 11), first)
    for i, j in itertools.product(range(3), range(2)):
        seen = spread[:, 2 * i : 2 * i + 5 : 2, j : j + 11]
        if combiner == "add":
            wanted = wanted + seen
        elif combiner == "max":
            wanted = np.maximum(wanted, seen)
        else:
            wanted = wanted * 0.5 + seen
    check(build, wanted, x=x)


def test_ops_of_the_library_are_parts_of_graphs() -> None:
    x = numbers(4, 6)

    def build(x: Tensor) -> list[Tensor]:
        twice = elementwise(lambda a: a + a, x)
        result = library(x.builder, SoftmaxProblem((4, 6)), src=twice)["dst"]
        again = library(x.builder, SoftmaxProblem((6, 4), 0), src=views.transpose(result, (1, 0)))
        return [result, again["dst"]]

    power = np.exp(2 * x.astype(float))
    first = power / power.sum(1, keepdims=True)
    second = np.exp(first.T) / np.exp(first.T).sum(0, keepdims=True)
    check(build, (first, second), x=x)


def test_all_ops_of_the_library_can_be_inlined() -> None:
    assert len(LIBRARY) > 20
    for record in LIBRARY.values():
        problem = record.drawn(random.Random(1))
        direction = problem.directions[0]
        builder = Builder("g")
        types = dict(zip(problem.roles, problem.expanded((f32,)), strict=True))
        values = {
            slot.name: builder.input(slot.name, types.get(slot.role, slot.dtype or f32), slot.shape)
            for slot in problem.slots(direction)
            if slot.access != "out"
        }
        results = library(builder, problem, direction, types, **values)
        for name, tensor in results.items():
            builder.output(f"{name}_result", tensor)
        assert builder.kernel().arrays


# What is refused.


def _refusals() -> list[tuple[str, Any]]:
    builder = Builder("g")
    x, y = builder.input("x", "f32", (3, 4)), builder.input("y", "f32", (4, 5))
    flag, one = builder.input("flag", "bool", (3, 4)), builder.splat(1.0, "f32")
    zero = one.value
    flag_one = builder.splat(False, "bool")
    whole, pair = builder.splat(1, "s32"), (0, 1, ())
    return [
        ("12 elements, [5] 5", lambda: views.reshape(x, (5,))),
        ("no order of 2 dims", lambda: views.transpose(x, (0, 0))),
        ("does not broadcast", lambda: views.broadcast_in_dim(x, (3, 5), (0, 1))),
        ("no slice", lambda: views.slice_(x, (0, 0), (3, 5))),
        ("is padded by [0], [0], [0, 0]", lambda: views.pad(x, one, (0,), (0,))),
        ("is padded by s32[]", lambda: views.pad(x, whole, (0, 0), (0, 0))),
        ("do not meet along dim 1", lambda: views.concatenate([x, y], 1)),
        ("iota along dim 1", lambda: views.iota(builder, "s32", (3,), 1)),
        ("the condition is f32", lambda: select(x, x, x)),
        ("the bits of f32[3, 4] as f64", lambda: bitcast(x, "f64")),
        ("the bits of bool as f32", lambda: bitcast(flag, "f32")),
        ("name them in pairs", lambda: dot_general(x, y, contracting=((1,), ()))),
        ("dims [7] of f32[3, 4]", lambda: dot_general(x, y, contracting=((7,), (0,)))),
        ("make them one size", lambda: dot_general(x, y, contracting=((0,), (0,)))),
        ("the product of f32[3, 4] and f32[]", lambda: matmul(x, one)),
        ("the output has the dims", lambda: convolution(x, y, Dims(pair, pair, (0, 0, ())))),
        ("in 1 groups", lambda: convolution(x, y)),
        ("in 2 groups", lambda: convolution(x, y, feature_groups=2)),
        ("dims [2] of f32[3, 4]", lambda: reduce([x], [one], [2], "add")),
        ("is reversed along [2]", lambda: views.reverse(x, (2,))),
        ("'add' combines no bool", lambda: reduce([flag], [flag_one], [0], "add")),
        ("'sub' combines no values", lambda: reduce([x], [one], [0], "sub")),
        ("begins a reduction", lambda: reduce([x], [whole], [0], "add")),
        ("the combiner gives bool", lambda: reduce([x], [one], [0], lambda a, b: [a[0] < b[0]])),
        ("2 values for 1 tensors", lambda: reduce([x], [one], [0], lambda a, b: [*a, *b])),
        ("2 tensors, 1 initial", lambda: reduce([x, x], [one], [0], "add")),
        ("reduced together", lambda: reduce([x, y], [one, one], [0], "add")),
        ("a scan along dim 4", lambda: scan([x], [one], 4, lambda a, b: b)),
        ("windows [1]", lambda: reduce_window([x], [one], "add", (1,))),
        ("stride 0", lambda: reduce_window([x], [one], "add", (1, 1), strides=(0, 1))),
        ("2, 2, 1, 2 strides", lambda: reduce_window(
            [x], [one], "add", (1, 1), base_dilations=(1,))),
        ("a concatenation of no tensor", lambda: views.concatenate([], 0)),
        ("a reduction of no tensor", lambda: reduce([], [], [], "add")),
        ("a scan of no tensor", lambda: scan([], [], 0, lambda a, b: b)),
        ("windows of no tensor", lambda: reduce_window([], [], "add", (1,))),
        ("map of no tensor", lambda: elementwise(lambda: zero)),
        ("softmax of no tensor", lambda: library(builder, SoftmaxProblem((3, 4)))),
        ("src is missing", lambda: library(builder, SoftmaxProblem((3, 4)), dst=x)),
        ("src is f32[4, 5]", lambda: library(builder, SoftmaxProblem((3, 4)), src=y)),
        ("no argument other", lambda: library(builder, SoftmaxProblem((3, 4)), src=x, other=x)),
    ]  # fmt: skip


def test_refusals_say_what_is_wrong() -> None:
    refusals = list(_refusals())
    assert len(refusals) > 10
    for text, act in refusals:
        with pytest.raises(ProblemError) as caught:
            act()
        assert text in str(caught.value)
        assert "cure" in str(caught.value)
