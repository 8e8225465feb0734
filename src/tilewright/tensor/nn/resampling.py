"""Images of another size: elements from some of a source, by tables of places and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.ir.expr import Expr, cast
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert
from tilewright.tensor.places import axes, axis
from tilewright.tensor.tensor import Builder, Tensor

Table = np.ndarray[Any, np.dtype[Any]]
# Places in the source and the weights of these (None: 1), for each place of the result.
Tap = tuple[Table, Table | None]


def cubic_weights(distance: Table, a: float) -> Table:
    """R. Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    weights: Table = np.where(distance <= 1, near, far * (distance < 2))
    return weights


def looked_up(builder: Builder, table: Table, dim: int) -> Expr:
    """The entry of a table for the place along a dim."""
    return builder.constant(table).at(axis(dim))


def weighted(x: Tensor, dim: int, taps: Sequence[Tap], type_: DType) -> Expr:
    """The element of ``x`` resampled along ``dim``, in ``type_``: the sum of elements by their
    weights. Places outside count as the nearest inside."""
    total = None
    for places, weights in taps:
        inside = np.clip(places, 0, x.shape[dim] - 1).astype(np.int64)
        index: list[Expr] = [*axes(x.rank)]
        index[dim] = looked_up(x.builder, inside, dim)
        part = cast(type_, x.at(*index))
        if weights is not None:
            part = part * looked_up(x.builder, weights.astype(type_.numpy), dim)
        total = part if total is None else total + part
    assert total is not None
    return total


def resampled(x: Tensor, taps: Mapping[int, Sequence[Tap]], dtype: DType) -> Tensor:
    """``x`` resampled along the dims of ``taps``, one after the other: those that get shorter
    first, then from the last on, whose elements are read one by one. Of ``dtype``, to which values
    are rounded at the end."""
    moved = all(weights is None for along in taps.values() for _, weights in along)
    type_ = x.dtype if moved else accumulator_for(x.dtype)

    def growth(dim: int) -> float:
        return len(taps[dim][0][0]) / x.shape[dim]

    for dim in sorted(sorted(taps, reverse=True), key=lambda n: growth(n) >= 1):
        shape = (*x.shape[:dim], len(taps[dim][0][0]), *x.shape[dim + 1 :])
        value = x.builder.tensor(shape, weighted(x, dim, taps[dim], type_))
        x = x.builder.materialize(value, x.builder.named("resample"))
    return convert(x, dtype)
