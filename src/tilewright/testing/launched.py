"""Kernels in Python that are timed: one for each way in which work-items reach memory, and meet."""

from __future__ import annotations

from tilewright.dtypes import f32, s32
from tilewright.lang.annotations import array
from tilewright.lang.groups import group_reduce
from tilewright.lang.ids import global_id, group_id, local_id
from tilewright.lang.kernel import kernel
from tilewright.lang.mathematics import exp, sqrt
from tilewright.lang.memory import barrier, local

TILE = 16


@kernel
def triad(a: f32, x: array(f32, 1), y: array(f32, 1), z: array(f32, 1)) -> None:
    """Neighbours to neighbours."""
    i = global_id(0)
    z[i] = a * x[i] + y[i]


@kernel
def decay(x: array(f32, 1), y: array(f32, 1)) -> None:
    """Functions of neighbours."""
    i = global_id(0)
    y[i] = exp(-x[i] * x[i]) / sqrt(1.0 + x[i] * x[i])


@kernel
def indexed(x: array(f32, 1), places: array(s32, 1), y: array(f32, 1)) -> None:
    """Elements at places that are loaded."""
    i = global_id(0)
    y[i] = x[places[i]]


@kernel
def stencil(x: array(f32, 2), y: array(f32, 2)) -> None:
    """Neighbours along two dims."""
    i, j = global_id(0), global_id(1)
    y[i, j] = 0.25 * (x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2])


@kernel
def row_sums(n: s32, x: array(f32, 2), y: array(f32, 1)) -> None:
    """A row for each work-item."""
    i = global_id(0)
    total = 0.0
    for j in range(n):
        total += x[i, j]
    y[i] = total


@kernel
def product(n: s32, a: array(f32, 2), b: array(f32, 2), c: array(f32, 2)) -> None:
    """A product of matrices, an element for each work-item."""
    i, j = global_id(0), global_id(1)
    total = 0.0
    for k in range(n):
        total += a[i, k] * b[k, j]
    c[i, j] = total


@kernel(local=(TILE, TILE))
def transposed(x: array(f32, 2), y: array(f32, 2)) -> None:
    """Tiles through local memory."""
    tile = local((TILE, TILE), "f32")
    row, column = group_id(0) * TILE, group_id(1) * TILE
    i, j = local_id(0), local_id(1)
    tile[i, j] = x[row + i, column + j]
    barrier()
    y[column + i, row + j] = tile[j, i]


@kernel(local=64)
def group_sums(x: array(f32, 1), sums: array(f32, 1)) -> None:
    """A sum for each workgroup."""
    total = group_reduce(x[global_id(0)], "add")
    if local_id(0) == 0:
        sums[group_id(0)] = total
