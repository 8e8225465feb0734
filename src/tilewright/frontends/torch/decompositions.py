"""Which ops PyTorch takes apart before we see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from tilewright.frontends.torch.table import TABLE

# Their decompositions would draw other random numbers than PyTorch does.
_RANDOM = ("native_dropout", "bernoulli", "rand_like", "randn_like", "randint_like", "normal")


_NEAREST = ("nearest1d", "nearest2d", "nearest3d")
# What PyTorch takes apart below its table, in graphs without gradients, too.
_BELOW = tuple(
    getattr(getattr(torch.ops.aten, f"upsample_{name}"), overload)
    for name in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d", *_NEAREST)
    for overload in ("vec", "default")
)
_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)


@contextmanager
def resampling_whole() -> Iterator[None]:
    """Inside, ops that resample are captured whole: taken apart they are gathers along all dims at
    once. Their gradients are captured so only in parts."""
    kept = {
        op: {key: op.py_kernels.pop(key) for key in _KEYS if key in op.py_kernels} for op in _BELOW
    }
    try:
        for op in _BELOW:
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernels in kept.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOT autograd: to core ATen, but for what the table has, and random numbers."""
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    aten = torch.ops.aten
    table |= get_decompositions(
        [
            *(aten.native_batch_norm, aten.native_layer_norm_backward, aten._softmax_backward_data),
            *(aten.linalg_vector_norm, aten._weight_norm_interface),
            *(aten.addmv, aten.dist, aten.ldexp, aten._addmm_activation),
            *(aten.narrow_copy, aten.as_strided_copy),
        ]
    )
    for op in list(table):
        name = op._schema.name.removeprefix("aten::")
        if name in _RANDOM or f"{name}.{op._overloadname}" in TABLE:
            del table[op]
    return table | {aten.native_dropout.default: _dropout}


def _dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """What `native_dropout` gives: PyTorch draws what is kept, as it does inside of that op."""
    aten = torch.ops.aten
    kept = aten.new_ones.default(x, x.shape, dtype=torch.bool)
    if train is False or p == 0 or not x.numel():
        return aten.clone.default(x), kept
    kept = aten.bernoulli.p(kept, 1 - p)
    return x * kept * (0.0 if p == 1 else 1.0 / (1.0 - p)), kept
