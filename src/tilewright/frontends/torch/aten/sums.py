"""Reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.dtypes import boolean, s64
from tilewright.frontends.torch.aten.promotion import Number
from tilewright.frontends.torch.table import Place, aten, dims_of
from tilewright.ir.expr import cast
from tilewright.problems.functions import logaddexp
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.nn import norms
from tilewright.tensor.nn.ordering import extreme, running, running_extreme
from tilewright.tensor.reductions import combined, scan
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import reshape

Dims = Sequence[int] | int | None


_COMBINERS = {
    **dict.fromkeys(("sum.dim_IntList", "sum.default", "cumsum.default"), "add"),
    **dict.fromkeys(("prod.dim_int", "prod.default", "cumprod.default"), "mul"),
    **dict.fromkeys(("amax.default", "max.default"), "max"),
    **dict.fromkeys(("amin.default", "min.default"), "min"),
}


@aten(*(name for name in _COMBINERS if not name.startswith("cum")))
def reduction(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    reduced = combined(convert(x, at.dtype), dims_of(dims, x.rank), _COMBINERS[at.op])
    return reshape(reduced, at.shape)


@aten("mean.dim", "mean.default")
def mean(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False, **_: Any) -> Tensor:
    values = convert(x, accumulator_for(at.dtype))
    return reshape(norms.mean(values, dims_of(dims, x.rank), at.dtype), at.shape)


@aten("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims")
def truth(at: Place, x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    values = elementwise(lambda s: cast(boolean, s), x, dtype=boolean, name="truth")
    # Of these two ops, an empty list of dims reduces none.
    none = isinstance(dims, list | tuple) and not dims
    combiner = "or" if at.op.startswith("any") else "and"
    reduced = combined(values, () if none else dims_of(dims, x.rank), combiner)
    return reshape(convert(reduced, at.dtype), at.shape)


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
    center, variance = (reshape(convert(tensor, at.dtype), at.shape) for tensor in both)
    return variance, center


@aten("max.dim", "min.dim")
def with_place(at: Place, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if not x.rank:
        return x, at.builder.splat(0, s64)
    value, place = extreme(x, dim % x.rank, greatest=at.op == "max.dim")
    return reshape(value, at.shape), reshape(place, at.shape)


@aten("argmax.default", "argmin.default")
def place(at: Place, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    if not x.rank:
        return at.builder.splat(0, s64, at.shape)
    flat = reshape(x, (x.elements,)) if dim is None else x
    along = 0 if dim is None else dim % x.rank
    return reshape(extreme(flat, along, greatest=at.op == "argmax.default")[1], at.shape)


@aten("cumsum.default", "cumprod.default")
def cumulated(at: Place, x: Tensor, dim: int, **_: Any) -> Tensor:
    rows = reshape(x, x.shape or (1,))
    # Rounded once: sums of what is to be narrow are kept wide.
    values = convert(rows, accumulator_for(at.dtype))
    sums = running(values, dim % rows.rank, _COMBINERS[at.op])
    return reshape(convert(sums, at.dtype), at.shape)


@aten("logcumsumexp.default")
def logarithms_cumulated(at: Place, x: Tensor, dim: int) -> Tensor:
    values = convert(reshape(x, x.shape or (1,)), accumulator_for(at.dtype))
    nothing = at.builder.splat(-math.inf, values.dtype)
    sums = scan(
        [values], [nothing], dim % values.rank, lambda old, new: (logaddexp(old[0], new[0]),)
    )
    return reshape(convert(sums[0], at.dtype), at.shape)


@aten("cummax.default", "cummin.default")
def running_place(at: Place, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    if not x.rank:
        return x, at.builder.splat(0, s64)
    return running_extreme(x, dim % x.rank, greatest=at.op == "cummax.default")
