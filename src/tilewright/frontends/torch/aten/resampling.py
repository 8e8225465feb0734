"""Images of another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import Expr, cast
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.nn.resampling import Tap, looked_up, weighted
from tilewright.tensor.places import axis
from tilewright.tensor.tensor import Tensor


def _scale(size: int, result: int, factor: float | None) -> np.float32:
    """How far places are apart that neighbours of the result have."""
    return np.float32(1.0 / factor) if factor else np.float32(size) / np.float32(result)


def _factors(scales: Any, count: int) -> list[float | None]:
    return [None] * count if scales is None else [float(each) for each in scales]


@aten("upsample_nearest2d.vec", "upsample_nearest1d.vec", "upsample_nearest3d.vec")
def upsample_nearest(at: Place, x: Tensor, size: Any, scales: Any) -> Tensor:
    index: list[Expr] = [axis(0), axis(1)]
    for n, factor in enumerate(_factors(scales, x.rank - 2), 2):
        here, there = x.shape[n], at.shape[n]
        if there % here == 0 and (factor is None or factor == there // here):
            index.append(axis(n) // (there // here))
            continue
        step = _scale(here, there, factor)
        table = np.minimum(np.floor(np.arange(there, dtype=np.float32) * step), here - 1)
        index.append(looked_up(at.builder, table.astype(np.int64), n))
    return x.viewed(at.shape, index)


@aten("upsample_bilinear2d.vec")
def upsample_bilinear(
    at: Place, x: Tensor, size: Sequence[int] | None, align_corners: bool, scales: Any
) -> Tensor:
    type_ = accumulator_for(x.dtype)
    taps: dict[int, list[Tap]] = {}
    for n, factor in enumerate(_factors(scales, 2), 2):
        here, there = x.shape[n], at.shape[n]
        places = np.arange(there, dtype=np.float32)
        if align_corners:
            step = np.float32(here - 1) / np.float32(there - 1) if there > 1 else np.float32(0)
            source = places * step
        else:
            step = _scale(here, there, factor)
            source = np.maximum((places + np.float32(0.5)) * step - np.float32(0.5), 0)
        low = np.minimum(np.floor(source).astype(np.int64), here - 1)
        part = np.clip(source - low.astype(np.float32), 0, 1).astype(type_.numpy)
        taps[n] = [(low, 1 - part), (low + 1, part)]
    resized = at.builder.tensor(at.shape, cast(at.dtype, weighted(x, taps, type_)))
    return at.builder.materialize(resized, at.builder.named("upsample"))
