"""Elementwise ops by PyTorch's rules: shapes are broadcast, types promoted, and what is narrower
than f32 is computed in f32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from tilewright.dtypes import DType, dtype
from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.ir.expr import Expr, StandIn, cast, number
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to

DEFAULT = KIND.DEFAULT
TO_FLOAT = KIND.INT_TO_FLOAT
TO_BOOL = KIND.ALWAYS_BOOL
Number = int | float | bool
Given = Tensor | Number


def torch_type(type_: DType) -> torch.dtype:
    """PyTorch's name of a type."""
    names = {"f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2"}
    torch_dtype: torch.dtype = getattr(torch, names.get(type_.name, type_.numpy_name))
    return torch_dtype


def promoted(values: tuple[Given, ...], kind: KIND = DEFAULT) -> tuple[DType, DType]:
    """The types to compute in, and of the result."""
    return _promoted(tuple(_described(value) for value in values), kind)


def _described(value: Given) -> tuple[Any, bool]:
    if isinstance(value, Tensor):
        return torch_type(value.dtype), bool(value.shape)
    return int if isinstance(value, StandIn) else type(value), False


@lru_cache(maxsize=1024)
def _promoted(described: tuple[tuple[Any, bool], ...], kind: KIND) -> tuple[DType, DType]:
    stand_ins = [
        torch.empty((1,) if has_dims else (), dtype=what, device="meta")
        if isinstance(what, torch.dtype)
        else what(0)
        for what, has_dims in described
    ]
    computed, result = elementwise_dtypes(*stand_ins, type_promotion_kind=kind)
    return dtype(computed), dtype(result)


def pointwise(
    at: Place,
    function: Callable[..., Expr],
    *numbers: Given,
    kind: KIND = DEFAULT,
    computed: DType | None = None,
) -> Tensor:
    """``function`` of expressions, of all that is given (tensors and numbers), as the op's result.
    ``computed`` is the type to compute in, where it is not what promotion says."""
    if computed is None:
        computed = promoted(numbers, kind)[0]
    if computed.name.startswith("f8"):
        refuse(f"{computed} is converted, not computed with")
    tensors = [broadcast_to(tensor, at.shape) for tensor in numbers if isinstance(tensor, Tensor)]
    result = at.dtype

    def value(*elements: Expr) -> Expr:
        left = iter(elements)
        values = [
            cast(computed, next(left)) if isinstance(term, Tensor) else number(term, computed)
            for term in numbers
        ]
        return cast(result, function(*values))

    return elementwise(value, *tensors, dtype=result)


def pointwise_op(function: Callable[..., Expr], *names: str, kind: KIND = DEFAULT) -> None:
    """Lists an op that is ``function`` of its arguments' elements under ``names`` of overloads."""

    @aten(*names)
    def build(at: Place, *arguments: Given) -> Tensor:
        return pointwise(at, function, *arguments, kind=kind)
