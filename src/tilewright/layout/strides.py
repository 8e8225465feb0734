"""Layouts from explicit strides, and overlap."""

from __future__ import annotations

import math

import numpy as np

from tilewright.errors import LayoutError
from tilewright.ir.buffer import MAX_EXTENT, Layout, LayoutBlock

# Most elements whose offsets are counted to find an overlap.
_COUNTED = 2**20


def from_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], *, written: bool = False
) -> Layout:
    """The layout of ``shape`` whose dim i advances by ``strides[i]`` elements.

    A stride of 0 broadcasts. Raises `LayoutError` for a wrong number of strides, for negative ones,
    and, where the tensor is ``written``, when two elements share memory.
    """
    if len(shape) != len(strides):
        raise LayoutError(
            f"{len(strides)} strides are given for {len(shape)} dims",
            where=f"strides {strides}, shape {shape}",
            cure="give one stride in elements for each dim",
        )
    if min(strides, default=0) < 0:
        raise LayoutError(
            "strides must not be negative",
            where=f"strides {strides}",
            why="a kernel gets the address of the first element in memory",
            cure="copy the array to flip it",
        )
    # Outermost first; the sort is stable.
    order = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    layout = Layout(tuple(LayoutBlock(dim, shape[dim], strides[dim]) for dim in order))
    check_reach(layout, f"strides {strides}, shape {shape}")
    if written and overlaps(layout):
        raise LayoutError(
            "elements of a result overlap in memory",
            where=f"strides {strides}, shape {shape}",
            why="two indices have the same offset",
            cure="give a result strides under which every element has its own place",
        )
    return layout


def check_reach(layout: Layout, where: str | None) -> None:
    """Raises `LayoutError` for a layout that 64-bit offsets in bytes cannot reach."""
    if layout.extent > MAX_EXTENT or any(block.stride > MAX_EXTENT for block in layout.blocks):
        raise LayoutError(
            "the layout is too large",
            where=where,
            why="offsets are 64-bit: a tensor reaches over at most 2^60 elements",
            cure="give smaller strides or blocks, or split the problem",
        )


def check_blocks(layout: Layout, rank: int, where: str | None) -> None:
    """Raises `LayoutError` for a layout whose blocks do not fit a tensor with ``rank`` dims."""
    wrong = [
        block
        for block in layout.blocks
        if not all(type(number) is int for number in (block.dim, block.size, block.stride))
        or not 0 <= block.dim < rank
        or block.size < 1
        or block.stride < 0
    ]
    if wrong or type(layout.offset) is not int:
        raise LayoutError(
            f"the layout has the block {wrong[0]}"
            if wrong
            else "the layout's offset is no integer",
            where=where,
            why=f"blocks are of dims 0 to {rank - 1}, of 1 element or more, with strides from 0",
            cure="make a layout for this shape",
        )
    check_reach(layout, where)


def overlaps(layout: Layout) -> bool:
    """Whether two indices have the same offset.

    Exact up to 2^20 elements; beyond, layouts in which blocks interleave count as overlapping.
    """
    blocks = sorted((b for b in layout.blocks if b.size > 1), key=lambda block: block.stride)
    reach = 0
    nested = True
    for block in blocks:
        nested = nested and block.stride > reach
        reach += (block.size - 1) * block.stride
    if nested:
        return False
    count = math.prod(block.size for block in blocks)
    # More elements than places: no need to look.
    if count > reach + 1 or count > _COUNTED:
        return True
    offsets = np.zeros(1, dtype=np.int64)
    for block in blocks:
        steps = np.arange(block.size, dtype=np.int64) * block.stride
        offsets = (offsets[:, None] + steps).reshape(-1)
    return bool(np.unique(offsets).size < count)


def strides_of(layout: Layout, rank: int) -> tuple[int, ...] | None:
    """The stride of each dim in elements; None where blocks give a dim no single stride, or a
    swizzle exchanges elements.

    A dim of size 1, or that no block holds, has stride 0.
    """
    if layout.swizzle is not None:
        return None
    strides = [0] * rank
    inner: dict[int, LayoutBlock] = {}
    for block in reversed(layout.blocks):
        if block.size == 1:
            continue
        before = inner.get(block.dim)
        if before is None:
            strides[block.dim] = block.stride
        elif block.stride != before.stride * before.size:
            return None
        # The blocks of the dim so far count as one of their joint size.
        size = block.size * (before.size if before is not None else 1)
        inner[block.dim] = LayoutBlock(block.dim, size, strides[block.dim])
    return tuple(strides)
