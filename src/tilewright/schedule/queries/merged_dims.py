"""Buffers with one dim for several neighbouring ones, in the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tilewright.ir.buffer import Buffer, Layout, LayoutBlock, Part, part, product, row_major
from tilewright.ir.printer import to_text
from tilewright.ir.sizes import Sizes
from tilewright.schedule.queries.refusal import refusal


def with_one_dim(old: Buffer, places: tuple[int, ...], *, anew: bool) -> Buffer:
    """``old`` with one dim for those in ``places``, in the place of the first: in the same memory,
    or, where the kernel may lay it out ``anew``, row-major."""
    new = old
    while len(places) > 1:
        *_, p, q = places
        layout = None if anew else _merged_layout(new, p, q)
        if layout is None and not anew:
            raise refusal(
                f"the dims {p} and {q} of '{old.name}' do not fuse",
                to_text(new),
                "stage the operand in a layout in which they are neighbours",
                why=f"in memory, a step of dim {p} is not the whole of dim {q}",
            )
        sizes = tuple(
            product(size, new.sizes[q]) if d == p else size
            for d, size in enumerate(new.sizes)
            if d != q
        )
        new = Buffer(old.name, old.dtype, sizes, layout or row_major(sizes), old.space)
        places = tuple(d - (d > q) for d in places[:-1])
    return new


def _merged_layout(old: Buffer, p: int, q: int) -> Layout | None:
    """The layout after dim ``q`` was fused into ``p``; None where the fused dim has no one step.

    Element (i, j) of the two dims becomes i * shape[q] + j. Dim q keeps the number p.
    """
    parts = [layout_part for layout_part in old.layout.parts if layout_part.dim in (p, q)]
    layout_blocks = [
        layout_block for layout_block in parts if isinstance(layout_block, LayoutBlock)
    ]
    number = {d: d - (d > q) for d in range(old.rank) if d != q}
    number[q] = number[p]
    if len(layout_blocks) < len(parts):
        return _merged_whole(old, parts, p, q, number)
    blocks_p = [b for b in layout_blocks if b.dim == p]
    blocks_q = [b for b in layout_blocks if b.dim == q]
    if prod(b.size for b in blocks_q) != old.sizes[q]:
        return None
    # Each digit of the fused dim, most significant first, and which old block ends it.
    digits: list[tuple[LayoutBlock, LayoutBlock]] = []
    for block in (*blocks_p, *blocks_q):
        last = digits[-1][0] if digits else None
        if last is not None and (block.size == 1 or last.stride == block.size * block.stride):
            stride = last.stride if block.size == 1 else block.stride
            digits[-1] = (LayoutBlock(number[p], last.size * block.size, stride), block)
        elif last is not None and last.size == 1:
            digits[-1] = (LayoutBlock(number[p], block.size, block.stride), block)
        else:
            digits.append((LayoutBlock(number[p], block.size, block.stride), block))
    if len(digits) > max(len(blocks_p), len(blocks_q), 1):
        return None
    return replace(old.layout, parts=_in_place(old, p, q, number, digits))


def _merged_whole(
    old: Buffer, parts: Sequence[Part], p: int, q: int, number: dict[int, int]
) -> Layout | None:
    """`_merged_layout` where sizes or strides are none that are known: of whole dims."""
    if [part_.dim for part_ in parts] != [p, q]:
        return None
    outer, inner = parts
    if not Sizes(()).equal(outer.stride, product(inner.size, inner.stride)):
        return None
    one = part(number[p], product(outer.size, inner.size), inner.stride)
    return replace(old.layout, parts=_in_place(old, p, q, number, [(one, inner)]))


def _in_place(
    old: Buffer,
    p: int,
    q: int,
    number: dict[int, int],
    digits: Sequence[tuple[Part, Part]],
) -> tuple[Part, ...]:
    """The blocks of the other dims, and the digits where their last old block was.

    The digits have to stay in order; where the old places are not, all go to the first.
    """
    places = [old.layout.parts.index(last) for _, last in digits]
    if places != sorted(places):
        places = [min(places)] * len(places)
    blocks: list[Part] = []
    for i, block in enumerate(old.layout.parts):
        blocks += [digit for (digit, _), place in zip(digits, places, strict=True) if place == i]
        if block.dim not in (p, q):
            blocks.append(part(number[block.dim], block.size, block.stride))
    return tuple(blocks)
