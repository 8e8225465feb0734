"""Reductions, softmax, norms, scans, sorting."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tilewright.dtypes import f64, s64
from tilewright.frontends.onnx.elements import mapped
from tilewright.frontends.onnx.table import Place, axis_of, op
from tilewright.graph.library import ordered
from tilewright.ir.expr import Expr, binary, cast, const, select, unary
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.nn import norms
from tilewright.tensor.nn.ordering import extreme, running
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import (
    along,
    broadcast_in_dim,
    broadcast_to,
    iota,
    reshape,
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
def reduction(at: Place, x: Tensor, axes: Tensor | None = None) -> Tensor:
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
        reduced = norms.log_sum_exp(convert(x, f64) if not type_.is_float else values, gone)
    else:
        if at.op in _BEFORE:
            values = elementwise(_BEFORE[at.op], values)
        if at.op == "ReduceMean":
            reduced = norms.mean(values, gone, type_)
        else:
            reduced = combined(values, gone, _COMBINERS.get(at.op, "add"))
        if at.op in _AFTER:
            reduced = elementwise(_AFTER[at.op], reduced)
    return reshape(convert(reduced, type_), shape)


@op("Softmax", "LogSoftmax", "Hardmax")
def softmax(at: Place, x: Tensor) -> Tensor:
    shape = x.shape
    if at.version < 13:
        n = axis_of(at.attribute("axis", 1), x.rank)
        x, dim = reshape(x, (prod(shape[:n]), prod(shape[n:]))), 1
    else:
        dim = axis_of(at.attribute("axis", -1), x.rank)
    if at.op == "Hardmax":
        _, place = extreme(x, dim)
        here = iota(at.builder, s64, x.shape, dim)
        one, zero = const(1, x.dtype), const(0, x.dtype)
        place = along(place, x.shape, [dim])
        result = elementwise(lambda a, b: select(binary("eq", a, b), one, zero), here, place)
    else:
        function = norms.softmax if at.op == "Softmax" else norms.log_softmax
        result = function(x, dim, x.dtype)
    return reshape(result, shape)


@op("ArgMax", "ArgMin")
def arg(at: Place, x: Tensor) -> Tensor:
    n = axis_of(at.attribute("axis", 0), x.rank)
    last = bool(at.attribute("select_last_index", 0))
    _, place = extreme(x, n, greatest=at.op == "ArgMax", last=last)
    kept = at.attribute("keepdims", 1)
    return reshape(place, (*x.shape[:n], *((1,) if kept else ()), *x.shape[n + 1 :]))


@op("CumSum", "CumProd")
def cumulated(at: Place, x: Tensor, dim: Tensor) -> Tensor:
    n = axis_of(at.integers(1)[0], x.rank)
    combiner = "add" if at.op == "CumSum" else "mul"
    backwards = bool(at.attribute("reverse", 0))
    exclusive = bool(at.attribute("exclusive", 0))
    return running(x, n, combiner, reverse=backwards, exclusive=exclusive)


@op("TopK")
def top_k(at: Place, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, Tensor]:
    n = axis_of(at.attribute("axis", -1), x.rank)
    attribute = at.attribute("k")
    count = at.integers(1)[0] if attribute is None else attribute
    return ordered(x, n, count, descending=bool(at.attribute("largest", 1)))


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


@op("LayerNormalization", "InstanceNormalization", "GroupNormalization")
def normalization(
    at: Place, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    shape, parts, eps = x.shape, x.shape, at.attribute("epsilon", 1e-5)
    if at.op == "LayerNormalization":
        dims = list(range(axis_of(at.attribute("axis", -1), x.rank), x.rank))
    else:
        dims = list(range(2, x.rank))
    if at.op == "GroupNormalization":
        groups = at.attribute("num_groups")
        size = shape[1] // groups
        parts = (shape[0], groups, size, *shape[2:])
        dims.append(x.rank)
        if scale.shape == (groups,) and at.version < 21:
            scale, bias = (
                reshape(broadcast_in_dim(t, (groups, size), (0,)), (shape[1],))
                for t in (scale, bias)
                if t is not None
            )

    def spread(t: Tensor) -> Tensor:
        if at.op == "LayerNormalization":
            return broadcast_to(t, shape)
        return broadcast_in_dim(t, shape, (1,))

    shift = None if bias is None else spread(bias)
    norm = norms.standardized(x, dims, (spread(scale), shift), eps, x.dtype, parts)
    if at.op != "LayerNormalization":
        return (norm.result,)
    kept = [1 if n in dims else size for n, size in enumerate(shape)]
    return norm.result, reshape(norm.mean, kept), reshape(norm.inverse, kept)


@op("BatchNormalization")
def batch_normalization(
    at: Place, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> tuple[Tensor, ...]:
    eps = at.attribute("epsilon", 1e-5)
    factors = norms.of_channels(x, scale, bias)
    if not at.attribute("training_mode", 0):
        return (norms.batch_normalized(x, mean, variance, factors, eps, x.dtype).result,)
    dims = [n for n in range(x.rank) if n != 1]
    norm = norms.standardized(x, dims, factors, eps, x.dtype)
    new_part = 1 - at.attribute("momentum", 0.9)
    pairs = ((mean, norm.mean), (variance, norm.variance))
    moved = (norms.running_average(old, new, new_part, 1.0, mean.dtype) for old, new in pairs)
    return norm.result, *moved
