"""Which ops PyTorch takes apart before we see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from tilewright.frontends.torch.table import TABLE

# Their decompositions would draw other random numbers than PyTorch does.
_RANDOM = ("native_dropout", "bernoulli", "rand_like", "randn_like", "randint_like", "normal")


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOT autograd: to core ATen, but for what the table has, and random numbers."""
    found: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    aten = torch.ops.aten
    found |= get_decompositions(
        [
            *(aten.native_batch_norm, aten.native_layer_norm_backward, aten._softmax_backward_data),
            *(aten.grid_sampler_2d, aten.linalg_vector_norm),
        ]
    )
    for op in list(found):
        name = op._schema.name.removeprefix("aten::")
        if name in _RANDOM or f"{name}.{op._overloadname}" in TABLE:
            del found[op]
    return found
