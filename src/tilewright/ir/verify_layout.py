"""Whether a layout fits its buffer."""

from __future__ import annotations

import math

import numpy as np

from tilewright.ir.buffer import MAX_EXTENT, Buffer, Layout

# Layouts whose strides don't decide the question are enumerated, up to so many elements.
_ENUMERATED = 1 << 20


def layout_defect(buffer: Buffer, written: bool) -> tuple[str, str] | None:
    """What is wrong with the layout of ``buffer`` (completing "the layout ..."), and the cure.

    A written buffer must keep every element at a place of its own.
    """
    layout, shape = buffer.layout, buffer.shape
    if any(size < 0 for size in shape):
        return f"is for the shape {list(shape)}, with a negative size", "give sizes of 0 or more"
    for block in layout.blocks:
        if not 0 <= block.dim < len(shape):
            return f"has a block of dim {block.dim}, of {len(shape)}", "number the dims from 0"
        if block.size < 0:
            return f"has a block of size {block.size}", "give sizes of 0 or more"
    swizzle = layout.swizzle
    if swizzle is not None and (
        min(swizzle.bits - 1, swizzle.base, swizzle.shift - swizzle.bits) < 0
        or swizzle.bits + swizzle.base + swizzle.shift > 60
    ):
        cure = "give 1 bit or more, a base of 0 or more, a shift of at least the bits: 60 in all"
        return f"has a swizzle of {swizzle.bits}:{swizzle.base}:{swizzle.shift}", cure
    held = layout.padded_shape(len(shape))
    steps = (abs(each) for block in layout.blocks for each in (block.stride, block.size))
    if max(0, *shape, *steps, layout.extent) > MAX_EXTENT:
        cure = "make it smaller: offsets in bytes are 64-bit"
        return f"reaches over more than {MAX_EXTENT} elements (2^60)", cure
    if any(size > room for size, room in zip(shape, held, strict=True)):
        cure = "enlarge the outermost block of the dim that does not fit"
        return f"holds {list(held)}, less than the shape {list(shape)}", cure
    if 0 in shape:
        return None
    if _lowest(layout) < 0:
        return "reaches before the start of the memory", "add an offset"
    if swizzle is not None and _lowest(layout) < layout.offset:
        return "swizzles elements before its offset", "give strides of 0 or more"
    if written and not _distinct(layout, shape):
        cure = "make each stride at least the extent of what it steps over"
        return "puts several elements at one place, but the buffer is written", cure
    return None


def _lowest(layout: Layout) -> int:
    """The least offset of any element."""
    return layout.offset + sum(min(0, (b.size - 1) * b.stride) for b in layout.blocks)


def _distinct(layout: Layout, shape: tuple[int, ...]) -> bool:
    """Whether distinct indices have distinct offsets."""
    extent = 1
    for block in sorted(layout.blocks, key=lambda b: abs(b.stride)):
        if block.size > 1:
            if abs(block.stride) < extent:
                return _enumerated(layout, shape)
            extent += (block.size - 1) * abs(block.stride)
    return True


def _enumerated(layout: Layout, shape: tuple[int, ...]) -> bool:
    """`_distinct` by trying: strides that overlap may still miss each other."""
    count = math.prod(shape)
    if count > _ENUMERATED:
        return False
    inner = [1] * len(shape)
    offsets = np.zeros(shape, dtype=np.int64)
    for block in reversed(layout.blocks):
        steps = np.arange(shape[block.dim]) // inner[block.dim]
        inner[block.dim] *= block.size
        if inner[block.dim] < layout.padded_shape(len(shape))[block.dim]:
            steps = steps % block.size
        axes = [1] * len(shape)
        axes[block.dim] = -1
        offsets += (steps * block.stride).reshape(axes)
    return bool(np.unique(offsets).size == count)
