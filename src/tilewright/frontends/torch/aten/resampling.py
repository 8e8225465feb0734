"""Images of another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.ir.expr import Expr
from tilewright.tensor.nn.resampling import Table, Tap, cubic_weights, resampled
from tilewright.tensor.nn.sampling import LINEAR, NEAREST, cubic, grid_sampled
from tilewright.tensor.places import axes, axis
from tilewright.tensor.tensor import Tensor


def _scale(size: int, result: int, factor: float | None) -> np.float32:
    """How far places are apart that neighbours of the result have."""
    return np.float32(1.0 / factor) if factor else np.float32(size) / np.float32(result)


def _overloads(*names: str) -> tuple[str, ...]:
    """Those that take factors one by one, and as a list."""
    return tuple(f"{name}.{overload}" for name in names for overload in ("default", "vec"))


def _factors(scales: Sequence[Any], count: int) -> list[float | None]:
    """A factor for each dim, or None; they come one by one, or as a list, and may be left out."""
    if len(scales) == 1 and not isinstance(scales[0], float | None):
        scales = scales[0]
    return list(scales) if len(scales) == count else [None] * count


@aten(*_overloads("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"))
def upsample_nearest(at: Place, x: Tensor, size: Sequence[int] | None, *scales: Any) -> Tensor:
    index: list[Expr] = [*axes(x.rank)]
    taps: dict[int, list[Tap]] = {}
    for n, factor in enumerate(_factors(scales, x.rank - 2), 2):
        here, there = x.shape[n], at.shape[n]
        if there % here == 0 and (factor is None or factor == there // here):
            index[n] = axis(n) // (there // here)
            continue
        places = np.floor(np.arange(there, dtype=np.float32) * _scale(here, there, factor))
        taps[n] = [(places, None)]
    return resampled(x, taps, x.dtype).viewed(at.shape, index)


@aten(*_overloads("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"))
def upsample_linear(
    at: Place, x: Tensor, size: Sequence[int] | None, align_corners: bool, *scales: Any
) -> Tensor:
    taps: dict[int, list[Tap]] = {}
    for n, source in _sources(at, x, align_corners, scales).items():
        source = np.maximum(source, np.float32(0))
        low = np.minimum(np.floor(source).astype(np.int64), x.shape[n] - 1)
        part = np.clip(source - low.astype(np.float32), 0, 1)
        taps[n] = [(low, 1 - part), (low + 1, part)]
    return resampled(x, taps, at.dtype)


@aten(*_overloads("upsample_bicubic2d"))
def upsample_bicubic(
    at: Place, x: Tensor, size: Sequence[int] | None, align_corners: bool, *scales: Any
) -> Tensor:
    taps: dict[int, list[Tap]] = {}
    for n, source in _sources(at, x, align_corners, scales).items():
        low = np.floor(source)
        taps[n] = [
            (low + k, cubic_weights(np.abs(source - (low + k)), -0.75)) for k in range(-1, 3)
        ]
    return resampled(x, taps, at.dtype)


def _sources(at: Place, x: Tensor, align_corners: bool, scales: Sequence[Any]) -> dict[int, Table]:
    """By dim, where each place of the result lies in ``x``."""
    tables: dict[int, Table] = {}
    for n, factor in enumerate(_factors(scales, x.rank - 2), 2):
        here, there = x.shape[n], at.shape[n]
        places = np.arange(there, dtype=np.float32)
        if align_corners:
            step = np.float32(here - 1) / np.float32(there - 1) if there > 1 else np.float32(0)
            tables[n] = places * step
        else:
            half = np.float32(0.5)
            tables[n] = (places + half) * _scale(here, there, factor) - half
    return tables


_SAMPLED = (LINEAR, NEAREST, cubic(-0.75))
_OUTSIDE = ("zeros", "border", "reflection")


@aten("grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(
    at: Place, x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool
) -> Tensor:
    if (mode, padding) == (2, 1):
        refuse("bicubic samples of a border are PyTorch's")
    return grid_sampled(x, grid, _SAMPLED[mode], _OUTSIDE[padding], align_corners)
