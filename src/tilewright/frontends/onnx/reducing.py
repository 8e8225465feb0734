"""Reductions, softmax, norms, scans, sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilewright.dtypes import f64, s32, s64
from tilewright.frontends.onnx.elements import mapped
from tilewright.frontends.onnx.table import Place, axis_of, op
from tilewright.frontends.onnx.values import type_of
from tilewright.graph.library import library
from tilewright.ir.expr import Expr, binary, cast, const, select, unary
from tilewright.problems.library import SortProblem, TopKProblem
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.nests import sort
from tilewright.tensor.reductions import combined, reduce, scan
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import (
    along,
    broadcast_in_dim,
    broadcast_to,
    iota,
    pad,
    reshape,
    slice_,
)

_BEFORE: dict[str, Callable[[Expr], Expr]] = {
    "ReduceL1": lambda x: unary("abs", x),
    "ReduceL2": lambda x: x * x,
    "ReduceSumSquare": lambda x: x * x,
}
_AFTER: dict[str, Callable[[Expr], Expr]] = {
    "ReduceL2": lambda x: (
        unary("sqrt", x) if x.type.is_float else cast(x.type, unary("sqrt", cast(f64, x)))
    ),
    "ReduceLogSum": lambda x: unary("log", x),
}
_COMBINERS = {"ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "mul"}


@op(
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
)
def reduction(at: Place, x: Tensor, given: Tensor | None = None) -> Tensor:
    dims = at.whole("axes", 1)
    if not dims:
        if at.attribute("noop_with_empty_axes", 0):
            before, after = _BEFORE.get(at.op), _AFTER.get(at.op)
            x = x if before is None else mapped(before, x)
            return x if after is None else mapped(after, x)
        dims = list(range(x.rank))
    gone = [axis_of(n, x.rank) for n in dims]
    shape = tuple(1 if n in gone else size for n, size in enumerate(x.shape))
    if not at.attribute("keepdims", 1):
        shape = tuple(size for n, size in enumerate(x.shape) if n not in gone)
    type_ = x.dtype
    values = convert(x, accumulator_for(type_))
    if at.op == "ReduceLogSumExp":
        found = _log_sum_exp(convert(x, f64) if not type_.is_float else values, gone)
    else:
        if at.op in _BEFORE:
            values = elementwise(_BEFORE[at.op], values)
        found = combined(values, gone, _COMBINERS.get(at.op, "add"))
        if at.op == "ReduceMean":
            count = prod(x.shape[n] for n in gone)
            found = elementwise(lambda s: _over(s, count), found)
        if at.op in _AFTER:
            found = elementwise(_AFTER[at.op], found)
    return reshape(convert(found, type_), shape)


def _over(s: Expr, count: int) -> Expr:
    return s / const(count, s.type) if s.type.is_float else s // const(max(1, count), s.type)


def _log_sum_exp(x: Tensor, gone: Sequence[int]) -> Tensor:
    most = combined(x, gone, "max")
    # Of infinities, the difference would be no number.
    finite = elementwise(
        lambda m: select(unary("abs", m) < const(float("inf"), m.type), m, const(0, m.type)), most
    )
    powers = elementwise(lambda s, m: unary("exp", s - m), x, along(finite, x.shape, gone))
    total = combined(powers, gone, "add")
    return elementwise(lambda t, m: unary("log", t) + m, total, finite)


@op("Softmax", "LogSoftmax", "Hardmax")
def softmax(at: Place, x: Tensor) -> Tensor:
    shape = x.shape
    if at.version < 13:
        n = axis_of(at.attribute("axis", 1), x.rank)
        x = reshape(x, (prod(shape[:n]), prod(shape[n:])))
        dims = [1]
    else:
        dims = [axis_of(at.attribute("axis", -1), x.rank)]
    values = convert(x, accumulator_for(x.dtype))
    if at.op == "Hardmax":
        _, place = extreme(values, dims[0], True, False)
        here = iota(at.builder, s64, x.shape, dims[0])
        one, zero = const(1, x.dtype), const(0, x.dtype)
        found = elementwise(
            lambda a, b: select(binary("eq", a, b), one, zero), here, along(place, x.shape, dims)
        )
        return reshape(found, shape)
    most = along(combined(values, dims, "max"), x.shape, dims)
    shifted = elementwise(lambda s, m: s - m, values, most)
    powers = elementwise(lambda s: unary("exp", s), shifted)
    total = along(combined(powers, dims, "add"), x.shape, dims)
    if at.op == "Softmax":
        found = elementwise(lambda p, t: p / t, powers, total, dtype=x.dtype)
    else:
        found = elementwise(lambda s, t: s - unary("log", t), shifted, total, dtype=x.dtype)
    return reshape(found, shape)


def extreme(x: Tensor, dim: int, greatest: bool, last: bool) -> tuple[Tensor, Tensor]:
    """The greatest or least elements along ``dim``, and the first or last places of them."""
    worst = x.dtype.lowest if greatest else x.dtype.highest

    def better(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, Expr]:
        a, b = (old[0], new[0]) if greatest else (new[0], old[0])
        wins = a <= b if last else a < b
        return select(wins, new[0], old[0]), select(wins, new[1], old[1])

    places = iota(x.builder, s64, x.shape, dim)
    initials = [x.builder.splat(worst, x.dtype), x.builder.splat(0, s64)]
    value, place = reduce([x, places], initials, [dim], better)
    return value, place


@op("ArgMax", "ArgMin")
def arg(at: Place, x: Tensor) -> Tensor:
    n = axis_of(at.attribute("axis", 0), x.rank)
    _, place = extreme(x, n, at.op == "ArgMax", bool(at.attribute("select_last_index", 0)))
    kept = at.attribute("keepdims", 1)
    return reshape(place, (*x.shape[:n], *((1,) if kept else ()), *x.shape[n + 1 :]))


@op("CumSum", "CumProd")
def running(at: Place, x: Tensor, dim: Tensor) -> Tensor:
    n = axis_of(at.integers(1)[0], x.rank)
    adds = at.op == "CumSum"
    backwards, exclusive = at.attribute("reverse", 0), at.attribute("exclusive", 0)
    type_ = accumulator_for(x.dtype)
    first = at.builder.splat(0 if adds else 1, type_)
    values = convert(x, type_)
    if exclusive:
        # Each sum is that of its neighbour.
        low = [int(k == n and not backwards) for k in range(x.rank)]
        high = [int(k == n and bool(backwards)) for k in range(x.rank)]
        values = pad(values, first, low, high)
        start = [int(k == n and bool(backwards)) for k in range(x.rank)]
        stop = [start[k] + size for k, size in enumerate(x.shape)]
        values = slice_(values, start, stop)
    found = scan(
        [values],
        [first],
        n,
        lambda old, new: (old[0] + new[0] if adds else old[0] * new[0],),
        reverse=bool(backwards),
    )[0]
    return convert(found, x.dtype)


@op("TopK")
def top_k(at: Place, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, Tensor]:
    n = axis_of(at.attribute("axis", -1), x.rank)
    given = at.attribute("k")
    count = at.integers(1)[0] if given is None else given
    largest = bool(at.attribute("largest", 1))
    if not x.dtype.is_float and x.dtype.bits > 32:
        order = iota(at.builder, s64, x.shape, n)
        ordered = sort([x, order], n, lambda a, b: b[0] < a[0] if largest else a[0] < b[0])
        stop = [count if k == n else size for k, size in enumerate(x.shape)]
        values, places = (slice_(each, [0] * x.rank, stop) for each in ordered)
        return values, places
    if largest:
        found = library(
            at.builder, TopKProblem(x.shape, n, amount=(count,)), types={"indices": s32}, src=x
        )
        return found["dst"], convert(found["indices"], s64)
    found = library(at.builder, SortProblem(x.shape, n), types={"indices": s32}, src=x)
    zero = [0] * x.rank
    stop = [count if k == n else size for k, size in enumerate(x.shape)]
    return slice_(found["dst"], zero, stop), convert(slice_(found["indices"], zero, stop), s64)


@op("LpNormalization")
def lp_normalization(at: Place, x: Tensor) -> Tensor:
    n, p = axis_of(at.attribute("axis", -1), x.rank), at.attribute("p", 2)
    values = elementwise(lambda s: s * s if p == 2 else unary("abs", s), x)
    total = along(combined(values, [n], "add"), x.shape, [n])

    def value(s: Expr, t: Expr) -> Expr:
        length = unary("sqrt", t) if p == 2 else t
        zero = const(0, s.type)
        return select(binary("eq", length, zero), zero, s / length)

    return elementwise(value, x, total)


def moments(x: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Means and variances, in the shape of ``x``."""
    count = float(prod(x.shape[n] for n in dims))
    mean = elementwise(lambda s: s / const(count, s.type), combined(x, dims, "add"))
    mean = along(mean, x.shape, dims)
    squares = elementwise(lambda s, m: (s - m) * (s - m), x, mean)
    variance = elementwise(lambda s: s / const(count, s.type), combined(squares, dims, "add"))
    return mean, along(variance, x.shape, dims)


@op("LayerNormalization", "InstanceNormalization", "GroupNormalization")
def normalization(
    at: Place, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    number = at.attribute("stash_type", 1)
    type_ = type_of(number) if number == 1 else accumulator_for(x.dtype)
    values = convert(x, accumulator_for(x.dtype) if x.dtype is f64 else type_)
    shape, eps = x.shape, at.attribute("epsilon", 1e-5)
    if at.op == "LayerNormalization":
        n = axis_of(at.attribute("axis", -1), x.rank)
        dims = list(range(n, x.rank))
    elif at.op == "InstanceNormalization":
        dims = list(range(2, x.rank))
    else:
        groups = at.attribute("num_groups")
        values = reshape(values, (shape[0], groups, shape[1] // groups, *shape[2:]))
        dims = list(range(2, values.rank))
        if scale.shape == (groups,) and at.version < 21:
            each = shape[1] // groups
            scale, bias = (
                reshape(broadcast_in_dim(t, (groups, each), (0,)), (shape[1],))
                for t in (scale, bias)
                if t is not None
            )

    def spread(t: Tensor) -> Tensor:
        if at.op == "LayerNormalization":
            return broadcast_to(t, shape)
        return broadcast_in_dim(t, shape, (1,))

    mean, variance = moments(values, dims)
    inverse = elementwise(lambda v: unary("rsqrt", v + const(eps, v.type)), variance)
    normal = elementwise(lambda s, m, r: (s - m) * r, values, mean, inverse)
    given = [reshape(normal, shape), spread(scale), *([spread(bias)] if bias is not None else [])]

    def value(s: Expr, w: Expr, b: Expr | None = None) -> Expr:
        found = (
            cast(x.dtype, s) * w if w.type is x.dtype and x.dtype is s.type else s * cast(s.type, w)
        )
        return found if b is None else found + cast(found.type, b)

    result = elementwise(value, *given, dtype=x.dtype)
    if at.op != "LayerNormalization":
        return (result,)
    kept = [1 if n in dims else size for n, size in enumerate(shape)]
    zero = [0] * x.rank
    return result, slice_(mean, zero, kept), slice_(inverse, zero, kept)


@op("BatchNormalization")
def batch_normalization(
    at: Place, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> tuple[Tensor, ...]:
    type_, eps = accumulator_for(x.dtype), at.attribute("epsilon", 1e-5)
    spread = [broadcast_in_dim(convert(t, type_), x.shape, (1,)) for t in (scale, bias)]
    values = convert(x, type_)
    if at.attribute("training_mode", 0):
        dims = [n for n in range(x.rank) if n != 1]
        center, width = moments(values, dims)
        momentum = at.attribute("momentum", 0.9)
        old = [broadcast_in_dim(convert(t, type_), x.shape, (1,)) for t in (mean, variance)]
        moved = [
            elementwise(
                lambda a, b: a * const(momentum, a.type) + b * const(1 - momentum, a.type), a, b
            )
            for a, b in zip(old, (center, width), strict=True)
        ]
        first = [0] * x.rank
        part = [size if n == 1 else 1 for n, size in enumerate(x.shape)]
        kept = [
            convert(reshape(slice_(each, first, part), (x.shape[1],)), mean.dtype) for each in moved
        ]
    else:
        center, width = (
            broadcast_in_dim(convert(t, type_), x.shape, (1,)) for t in (mean, variance)
        )
        kept = []
    result = elementwise(
        lambda s, m, v, w, b: (s - m) * unary("rsqrt", v + const(eps, v.type)) * w + b,
        *(values, center, width, *spread),
        dtype=x.dtype,
    )
    return (result, *kept)
