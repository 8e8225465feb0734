"""Conversions of types, and ops that give their argument back."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.dtypes import dtype
from tilewright.frontends.torch.table import Place, aten
from tilewright.tensor.elementwise import bitcast, convert
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to, reshape

CONVERSIONS = ("_to_copy.default", "prims.convert_element_type.default")
"""What a program converts itself."""


@aten(*CONVERSIONS)
def to_copy(at: Place, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return convert(x, at.dtype)


@aten("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default")
@aten("resolve_conj.default", "resolve_neg.default")
def same(at: Place, x: Tensor, **_: Any) -> Tensor:
    return x


@aten("copy.default")
def copy(at: Place, x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return broadcast_to(convert(source, at.dtype), at.shape)


@aten("view.dtype")
def view_dtype(at: Place, x: Tensor, type_: torch.dtype) -> Tensor:
    new, old = dtype(type_), x.dtype
    if new.bits > old.bits:
        count = new.bits // old.bits
        x = reshape(x, (*x.shape[:-1], x.shape[-1] // count, count))
    return reshape(bitcast(x, new), at.shape)
