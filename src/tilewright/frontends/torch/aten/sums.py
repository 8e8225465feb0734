"""Reductions and scans."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilewright.dtypes import boolean, s64
from tilewright.frontends.torch.aten.promotion import Number
from tilewright.frontends.torch.table import Place, aten, dims_of
from tilewright.ir.expr import Expr, binary, cast, const, select
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.reductions import combined, reduce, scan
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import along, iota, reshape

Dims = Sequence[int] | int | None


def mean_of(x: Tensor, dims: Sequence[int]) -> Tensor:
    """The means of floats, without ``dims``."""
    count = prod(x.shape[n] for n in dims)
    total = combined(x, dims, "add")
    return elementwise(lambda s: s / const(float(count), s.type), total, name="mean")


def variance_of(x: Tensor, dims: Sequence[int], correction: float = 0.0) -> tuple[Tensor, Tensor]:
    """Variances of floats and their means, without ``dims``, in two passes."""
    count = prod(x.shape[n] for n in dims)
    mean = mean_of(x, dims)
    square = elementwise(
        lambda s, m: (s - m) * (s - m), x, along(mean, x.shape, dims), name="squares"
    )
    total = combined(square, dims, "add")
    rest = max(0.0, count - correction)
    return elementwise(lambda s: s / const(float(rest), s.type), total, name="variance"), mean


@aten("sum.dim_IntList", "sum.default")
def sum_(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    reduced = combined(convert(x, at.dtype), dims_of(dims, x.rank), "add")
    return reshape(reduced, at.shape)


@aten("mean.dim", "mean.default")
def mean(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    found = mean_of(convert(x, accumulator_for(at.dtype)), dims_of(dims, x.rank))
    return reshape(convert(found, at.dtype), at.shape)


@aten("prod.default")
def product(at: Place, x: Tensor, **_: Any) -> Tensor:
    return combined(convert(x, at.dtype), range(x.rank), "mul")


@aten("prod.dim_int")
def product_along(at: Place, x: Tensor, dim: int, keepdim: bool = False, **_: Any) -> Tensor:
    return reshape(combined(convert(x, at.dtype), dims_of(dim, x.rank), "mul"), at.shape)


@aten("amax.default")
def amax(at: Place, x: Tensor, dims: Dims = (), keepdim: bool = False) -> Tensor:
    return reshape(combined(x, dims_of(dims, x.rank), "max"), at.shape)


@aten("amin.default")
def amin(at: Place, x: Tensor, dims: Dims = (), keepdim: bool = False) -> Tensor:
    return reshape(combined(x, dims_of(dims, x.rank), "min"), at.shape)


def _truth(x: Tensor) -> Tensor:
    return elementwise(lambda s: cast(boolean, s), x, dtype=boolean, name="truth")


@aten("any.default", "any.dim", "any.dims")
def any_(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    found = combined(_truth(x), _none_is_all(dims, x.rank), "or")
    return reshape(convert(found, at.dtype), at.shape)


@aten("all.default", "all.dim", "all.dims")
def all_(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    found = combined(_truth(x), _none_is_all(dims, x.rank), "and")
    return reshape(convert(found, at.dtype), at.shape)


def _none_is_all(dims: Dims, rank: int) -> tuple[int, ...]:
    """Of these two ops, an empty list of dims reduces none."""
    return () if isinstance(dims, list | tuple) and not dims else dims_of(dims, rank)


@aten("var.correction", "var.dim")
def var(
    at: Place,
    x: Tensor,
    dims: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: Number | None = None,
) -> Tensor:
    rest = float(unbiased) if correction is None else float(correction)
    found, _ = variance_of(convert(x, accumulator_for(x.dtype)), dims_of(dims, x.rank), rest)
    return reshape(convert(found, at.dtype), at.shape)


@aten("var_mean.correction")
def var_mean(
    at: Place, x: Tensor, dims: Dims = None, *, correction: Number | None = None, **_: Any
) -> tuple[Tensor, Tensor]:
    rest = 1.0 if correction is None else float(correction)
    found = variance_of(convert(x, accumulator_for(x.dtype)), dims_of(dims, x.rank), rest)
    variance, center = (reshape(convert(each, at.dtype), at.shape) for each in found)
    return variance, center


def extreme_place(x: Tensor, dim: int, greatest: bool) -> tuple[Tensor, Tensor]:
    """The greatest (or least) element along ``dim`` and the first place of it; a NaN is both."""
    builder = x.builder
    worst = x.dtype.lowest if greatest else x.dtype.highest

    def better(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, Expr]:
        before, after = (old[0], new[0]) if greatest else (new[0], old[0])
        wins = before < after
        if x.dtype.is_float:
            wins = wins | (binary("ne", new[0], new[0]) & binary("eq", old[0], old[0]))
        return select(wins, new[0], old[0]), select(wins, new[1], old[1])

    places = iota(builder, s64, x.shape, dim)
    initials = [builder.splat(worst, x.dtype), builder.splat(0, s64)]
    value, place = reduce([x, places], initials, [dim], better)
    return value, place


def _with_place(at: Place, x: Tensor, dim: int, greatest: bool) -> tuple[Tensor, Tensor]:
    if not x.rank:
        return x, at.builder.splat(0, s64)
    value, place = extreme_place(x, dim % x.rank, greatest)
    return reshape(value, at.shape), reshape(place, at.shape)


@aten("max.dim")
def max_dim(at: Place, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _with_place(at, x, dim, True)


@aten("min.dim")
def min_dim(at: Place, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _with_place(at, x, dim, False)


@aten("max.default")
def max_all(at: Place, x: Tensor) -> Tensor:
    return combined(x, range(x.rank), "max")


@aten("min.default")
def min_all(at: Place, x: Tensor) -> Tensor:
    return combined(x, range(x.rank), "min")


@aten("argmax.default")
def argmax(at: Place, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _place(at, x, dim, True)


@aten("argmin.default")
def argmin(at: Place, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _place(at, x, dim, False)


def _place(at: Place, x: Tensor, dim: int | None, greatest: bool) -> Tensor:
    if not x.rank:
        return at.builder.splat(0, s64, at.shape)
    flat = reshape(x, (x.elements,)) if dim is None else x
    _, place = extreme_place(flat, 0 if dim is None else dim % x.rank, greatest)
    return reshape(place, at.shape)


@aten("cumsum.default")
def cumsum(at: Place, x: Tensor, dim: int, **_: Any) -> Tensor:
    return _running(at, x, dim, 0, lambda a, b: a + b)


@aten("cumprod.default")
def cumprod(at: Place, x: Tensor, dim: int, **_: Any) -> Tensor:
    return _running(at, x, dim, 1, lambda a, b: a * b)


def _running(at: Place, x: Tensor, dim: int, first: int, step: Any) -> Tensor:
    type_ = accumulator_for(at.dtype)
    x = convert(x, type_)
    if not x.rank:
        return convert(x, at.dtype)
    initial = at.builder.splat(first, type_)
    found = scan([x], [initial], dim % x.rank, lambda old, new: (step(old[0], new[0]),))[0]
    return convert(found, at.dtype)
