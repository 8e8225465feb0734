"""Whether a layout fits its buffer."""

from __future__ import annotations

import math

import numpy as np

from tilewright.ir.buffer import MAX_EXTENT, Buffer, Layout, Size, as_size, symbols_of
from tilewright.ir.expr import as_expr
from tilewright.ir.printer import to_text
from tilewright.ir.sizes import Sizes

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
    steps = (abs(number) for block in layout.blocks for number in (block.stride, block.size))
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


def symbolic_layout_defect(buffer: Buffer, written: bool, bounds: Sizes) -> tuple[str, str] | None:
    """`layout_defect` where sizes, strides or the offset depend on scalar parameters.

    A property that ``bounds`` do not prove for all arguments counts as wrong.
    """
    layout = buffer.layout
    if layout.swizzle is not None:
        cure = "leave the swizzle away, or give numbers as sizes and strides"
        return "has a swizzle, and depends on scalar parameters", cure
    for part in layout.parts:
        if not 0 <= part.dim < buffer.rank:
            return f"has a block of dim {part.dim}, of {buffer.rank}", "number the dims from 0"
    natural = [("a size", size) for size in buffer.sizes]
    natural += [("a block of size", part.size) for part in layout.parts]
    natural += [("a stride", part.stride) for part in layout.parts]
    natural.append(("the offset", layout.start))
    for what, size in natural:
        if isinstance(size, int) and size > MAX_EXTENT:
            return f"reaches over more than {MAX_EXTENT} elements (2^60)", "give smaller numbers"
        if not bounds.at_least(size, 0):
            names = ", ".join(sorted(symbol.name for symbol in symbols_of(size)))
            cure = f"give {names} bounds under which it is not, as in `n: s64 in 0..`"
            return f"has {what} that may be negative, `{_text(size)}`", cure
    for dim, (size, room) in enumerate(
        zip(buffer.sizes, layout.padded_sizes(buffer.rank), strict=True)
    ):
        if not bounds.at_least(room, size):
            return (
                f"holds `{_text(room)}` along dim {dim}, which may be less than its size "
                f"`{_text(size)}`",
                "enlarge the outermost block of the dim, as in `(n + 15) // 16` blocks of 16",
            )
    if any(isinstance(size, int) and not size for size in buffer.sizes):
        return None
    if written and not _distinct_parts(layout, bounds.not_empty(buffer.sizes)):
        return (
            "may put several elements at one place, but the buffer is written",
            "make each stride at least the extent of what it steps over: `(n + pad)` with "
            "`pad: s64 in 0..`",
        )
    return None


def _text(size: Size) -> str:
    return str(size) if isinstance(size, int) else to_text(size)


def _distinct_parts(layout: Layout, bounds: Sizes) -> bool:
    """Whether the stride of each part is at least the extent of all denser ones."""
    rest = [part for part in reversed(layout.parts) if not bounds.equal(part.size, 1)]
    extent: Size = 1
    while rest:
        for part in rest:
            others = (other for other in rest if other is not part)
            if all(bounds.at_least(other.stride, part.stride) for other in others):
                break
        else:
            return False
        if not bounds.at_least(part.stride, extent):
            return False
        extent = as_size(as_expr(extent) + (as_expr(part.size) - 1) * part.stride)
        rest.remove(part)
    return True


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
