"""Fourier transforms, as products with small matrices (J. W. Cooley and J. W. Tukey, 1965)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.ir.expr import Expr, const, select
from tilewright.tensor.contractions import complex_product, dot_general
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.places import axis
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to, reshape, transpose

Pair = tuple[Tensor, Tensor]
# A transform of so many points is one product with its matrix.
_WHOLE = 32


def fourier(z: Pair, dims: Sequence[int], *, inverse: bool = False) -> Pair:
    """The discrete transform along ``dims`` of tensors with the real and the imaginary part; the
    ``inverse`` one is divided by the number of points."""
    rank = z[0].rank
    for dim in dims:
        order = [n for n in range(rank) if n != dim] + [dim]
        back = [order.index(n) for n in range(rank)]
        moved = (transpose(z[0], order), transpose(z[1], order))
        transformed = _last_dim(moved, 1.0 if inverse else -1.0)
        z = (transpose(transformed[0], back), transpose(transformed[1], back))
    if inverse:
        count = math.prod(z[0].shape[n] for n in dims)
        scale = 1.0 / count if count else 1.0
        z = (_scaled(z[0], scale), _scaled(z[1], scale))
    return z


def mirrored(z: Pair, size: int, dims: Sequence[int]) -> Pair:
    """All ``size`` points along the last dim of a transform of real numbers along ``dims``, of
    which the first half is there: the others are conjugates of those at the opposite place."""
    real, imaginary = z
    rank, builder = real.rank, real.builder
    shape = [*real.shape[:-1], size]
    last = axis(rank - 1)
    is_there = last < real.shape[-1]
    index: list[Expr] = []
    for n in range(rank):
        if n == rank - 1:
            index.append(select(is_there, last, const(size) - last))
        elif n in dims:
            opposite = (const(shape[n]) - axis(n)) % const(max(shape[n], 1))
            index.append(select(is_there, axis(n), opposite))
        else:
            index.append(axis(n))
    if 0 in shape or 0 in real.shape:
        zero = builder.splat(0.0, real.dtype, shape)
        return zero, zero
    value = imaginary.at(*index)
    turned = builder.tensor(shape, select(is_there, value, -value))
    whole = real.viewed(shape, index)
    return builder.materialize(whole, "mirrored"), builder.materialize(turned, "mirrored")


def _scaled(tensor: Tensor, scale: float) -> Tensor:
    return elementwise(lambda x: x * scale, tensor, name="scale")


def _last_dim(z: Pair, sign: float) -> Pair:
    """The transform along the last dim, by the parts of its size."""
    size = z[0].shape[-1]
    first = _factor(size)
    if first in (1, size):
        return _product(z, size, sign)
    # Point a * inner + b of a result is a sum over c and d of element d * first + c.
    front = z[0].shape[:-1]
    inner = size // first
    count = len(front)
    grid = [*front, inner, first]
    swapped = [*range(count), count + 1, count]
    rows: Pair = (
        transpose(reshape(z[0], grid), swapped),
        transpose(reshape(z[1], grid), swapped),
    )
    rows = _last_dim(rows, sign)
    rows = _turned(rows, first, inner, size, sign)
    columns = _last_dim((transpose(rows[0], swapped), transpose(rows[1], swapped)), sign)
    whole = [*front, size]
    return (
        reshape(transpose(columns[0], swapped), whole),
        reshape(transpose(columns[1], swapped), whole),
    )


def _factor(size: int) -> int:
    """Into how many parts a transform is divided: ``size`` for none."""
    if size <= _WHOLE:
        return size
    parts = [n for n in range(2, _WHOLE + 1) if size % n == 0]
    return max(parts, default=size)


def _turned(z: Pair, first: int, inner: int, size: int, sign: float) -> Pair:
    """Element (c, b) of the last two dims, turned by c * b parts of a circle of ``size``."""
    angles = sign * 2 * np.pi * (np.outer(np.arange(first), np.arange(inner)) % size) / size
    cos, sin = (_like(table, z[0]) for table in (np.cos(angles), np.sin(angles)))
    real = elementwise(lambda a, b, c, s: a * c - b * s, *z, cos, sin, name="turn")
    imaginary = elementwise(lambda a, b, c, s: a * s + b * c, *z, cos, sin, name="turn")
    return real, imaginary


def _like(values: np.ndarray, tensor: Tensor) -> Tensor:
    constant = tensor.builder.constant(values.astype(tensor.dtype.numpy), "twiddle")
    return broadcast_to(constant, tensor.shape)


def _product(z: Pair, size: int, sign: float) -> Pair:
    """The transform as a product with its matrix."""
    turns = np.outer(np.arange(size), np.arange(size)) % max(size, 1)
    angles = sign * 2 * np.pi * turns / max(size, 1)
    builder, type_ = z[0].builder, z[0].dtype
    cos = builder.constant(np.cos(angles).astype(type_.numpy), "cosines")
    sin = builder.constant(np.sin(angles).astype(type_.numpy), "sines")
    inner = ((z[0].rank - 1,), (0,))
    return complex_product(z, (cos, sin), lambda x, y: dot_general(x, y, contracting=inner))
