"""Images of another size: elements from some of a source, by tables of places and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.ir.expr import Expr, cast
from tilewright.tensor.places import axes, axis
from tilewright.tensor.tensor import Builder, Tensor

Table = np.ndarray[Any, np.dtype[Any]]
# Places in the source and the weights of these (None: 1), for each place of the result.
Tap = tuple[Table, Table | None]


def looked_up(builder: Builder, table: Table, dim: int) -> Expr:
    """The entry of a table for the place along a dim."""
    return builder.constant(table).at(axis(dim))


def weighted(x: Tensor, taps: Mapping[int, Sequence[Tap]], type_: DType) -> Expr:
    """The element of ``x`` resampled along the dims of ``taps``, in ``type_``: the sum of elements
    by their weights. Places outside count as the nearest inside."""
    dims = list(taps)

    def value(index: tuple[Expr, ...], level: int) -> Expr:
        if level == len(dims):
            return cast(type_, x.at(*index))
        n, total = dims[level], None
        for places, weights in taps[n]:
            inside = np.clip(places, 0, x.shape[n] - 1).astype(np.int64)
            place = looked_up(x.builder, inside, n)
            part = value((*index[:n], place, *index[n + 1 :]), level + 1)
            if weights is not None:
                part = part * looked_up(x.builder, weights.astype(type_.numpy), n)
            total = part if total is None else total + part
        assert total is not None
        return total

    return value(axes(x.rank), 0)
