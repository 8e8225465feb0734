"""Reductions and scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dtypes import boolean, s64
from tilewright.frontends.torch.aten.promotion import Number
from tilewright.frontends.torch.table import Place, aten, dims_of
from tilewright.ir.expr import cast
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.nn import norms
from tilewright.tensor.nn.ordering import extreme, running
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import reshape

Dims = Sequence[int] | int | None


@aten("sum.dim_IntList", "sum.default")
def sum_(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    reduced = combined(convert(x, at.dtype), dims_of(dims, x.rank), "add")
    return reshape(reduced, at.shape)


@aten("mean.dim", "mean.default")
def mean(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    values = convert(x, accumulator_for(at.dtype))
    return reshape(norms.mean(values, dims_of(dims, x.rank), at.dtype), at.shape)


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
    truth = combined(_truth(x), _none_is_all(dims, x.rank), "or")
    return reshape(convert(truth, at.dtype), at.shape)


@aten("all.default", "all.dim", "all.dims")
def all_(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    truth = combined(_truth(x), _none_is_all(dims, x.rank), "and")
    return reshape(convert(truth, at.dtype), at.shape)


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
    values = convert(x, accumulator_for(x.dtype))
    _, variance = norms.moments(values, dims_of(dims, x.rank), rest)
    return reshape(convert(variance, at.dtype), at.shape)


@aten("var_mean.correction")
def var_mean(
    at: Place, x: Tensor, dims: Dims = None, *, correction: Number | None = None, **_: Any
) -> tuple[Tensor, Tensor]:
    rest = 1.0 if correction is None else float(correction)
    values = convert(x, accumulator_for(x.dtype))
    both = norms.moments(values, dims_of(dims, x.rank), rest)
    center, variance = (reshape(convert(each, at.dtype), at.shape) for each in both)
    return variance, center


def _with_place(at: Place, x: Tensor, dim: int, greatest: bool) -> tuple[Tensor, Tensor]:
    if not x.rank:
        return x, at.builder.splat(0, s64)
    value, place = extreme(x, dim % x.rank, greatest=greatest)
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
    _, place = extreme(flat, 0 if dim is None else dim % x.rank, greatest=greatest)
    return reshape(place, at.shape)


@aten("cumsum.default")
def cumsum(at: Place, x: Tensor, dim: int, **_: Any) -> Tensor:
    return _running(at, x, dim, "add")


@aten("cumprod.default")
def cumprod(at: Place, x: Tensor, dim: int, **_: Any) -> Tensor:
    return _running(at, x, dim, "mul")


def _running(at: Place, x: Tensor, dim: int, combiner: str) -> Tensor:
    rows = reshape(x, x.shape or (1,))
    # Rounded once: sums of what is to be narrow are kept wide.
    sums = running(convert(rows, accumulator_for(at.dtype)), dim % rows.rank, combiner)
    return reshape(convert(sums, at.dtype), at.shape)
