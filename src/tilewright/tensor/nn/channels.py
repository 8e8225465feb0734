"""Channels of images in another order: blocks of pixels to channels and back, groups."""

from __future__ import annotations

from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import reshape, transpose


def depth_to_space(x: Tensor, block: int, *, blocks_first: bool) -> Tensor:
    """Images (N, C, H, W) with blocks of pixels, ``block`` squared, of their channels: the place in
    a block is the slowest part of a channel's number (``blocks_first``), or the fastest."""
    b, (n, c, h, w) = block, x.shape
    deep = c // b**2
    if blocks_first:
        parts = transpose(reshape(x, (n, b, b, deep, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        parts = transpose(reshape(x, (n, deep, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return reshape(parts, (n, deep, h * b, w * b))


def space_to_depth(x: Tensor, block: int, *, blocks_first: bool) -> Tensor:
    """What `depth_to_space` makes images of ``x`` of."""
    b, (n, c, h, w) = block, x.shape
    order = (0, 3, 5, 1, 2, 4) if blocks_first else (0, 1, 3, 5, 2, 4)
    parts = transpose(reshape(x, (n, c, h // b, b, w // b, b)), order)
    return reshape(parts, (n, c * b * b, h // b, w // b))


def shuffled(x: Tensor, dim: int, group: int) -> Tensor:
    """The dim, seen as a matrix with rows of ``group`` elements, transposed."""
    front, size, after = x.shape[:dim], x.shape[dim], x.shape[dim + 1 :]
    matrix = reshape(x, (*front, size // group, group, *after))
    order = [*range(matrix.rank)]
    order[dim : dim + 2] = dim + 1, dim
    return reshape(transpose(matrix, order), x.shape)
