"""Tensors made of numbers."""

from __future__ import annotations

from typing import Any

from tilewright.dtypes import s64
from tilewright.frontends.torch.aten.promotion import Number
from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import Expr, cast, const
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import iota


def filled(at: Place, value: Number) -> Tensor:
    """The op's result with one number everywhere."""
    return at.builder.splat(value, at.dtype, at.shape)


@aten("full.default", "full_like.default", "fill.Scalar")
def full(at: Place, _: Any, value: Number, *__: Any, **___: Any) -> Tensor:
    return filled(at, value)


@aten("new_full.default")
def new_full(at: Place, _: Any, size: Any, value: Number, **__: Any) -> Tensor:
    return filled(at, value)


# What empty tensors hold is undefined: zeros are as good as anything.
@aten(
    *("zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format"),
    *("empty_strided.default", "empty_like.default", "new_empty.default"),
)
def zeros(at: Place, *_: Any, **__: Any) -> Tensor:
    return filled(at, 0)


@aten("ones.default", "ones_like.default", "new_ones.default")
def ones(at: Place, *_: Any, **__: Any) -> Tensor:
    return filled(at, 1)


@aten("scalar_tensor.default")
def scalar_tensor(at: Place, value: Number, **_: Any) -> Tensor:
    return filled(at, value)


@aten("arange.start_step", "arange.default", "arange.start")
def arange(at: Place, *bounds: Number, **_: Any) -> Tensor:
    start = bounds[0] if len(bounds) > 1 else 0
    step = bounds[2] if len(bounds) > 2 else 1
    places = iota(at.builder, s64, at.shape, 0)
    type_ = at.dtype

    def value(place: Expr) -> Expr:
        if type_.is_float and not (isinstance(start, int) and isinstance(step, int)):
            return const(start, type_) + const(step, type_) * cast(type_, place)
        return const(int(start), s64) + const(int(step), s64) * place

    return elementwise(value, places, dtype=type_)
