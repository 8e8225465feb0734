"""What can be proved of layouts whose sizes and strides depend on scalar parameters.

`layout.queries` answers in numbers; here the answers hold for all that a call may pass, as `Sizes`
knows it. What is not known counts as not so. For users, as `layout.queries` is.
"""

from __future__ import annotations

import math

from tilewright.ir.buffer import Layout, Part, Size, product
from tilewright.ir.sizes import Sizes
from tilewright.ir.verify_layout import distinct_parts


def same_layout(a: Layout, b: Layout, known: Sizes) -> bool:
    """Whether both put each element at the same place: each dim has the same blocks."""
    if a.swizzle != b.swizzle or not known.equal(a.start, b.start):
        return False
    ours, theirs = (sorted(_kept(each, known), key=lambda p: p.dim) for each in (a, b))
    return len(ours) == len(theirs) and all(
        one.dim == other.dim
        and known.equal(one.size, other.size)
        and known.equal(one.stride, other.stride)
        for one, other in zip(ours, theirs, strict=True)
    )


def is_dense(layout: Layout, known: Sizes) -> bool:
    """Whether the elements fill their memory without gaps, each at a place of its own."""
    left = _kept(layout, known)
    extent: Size = 1
    while left:
        near = [each for each in left if known.equal(each.stride, extent)]
        if len(near) != 1:
            return False
        extent = product(near[0].size, extent)
        left = [each for each in left if each is not near[0]]
    return layout.swizzle is None


def is_distinct(layout: Layout, known: Sizes) -> bool:
    """Whether no two elements share a place."""
    return distinct_parts(layout, known)


def run_along(layout: Layout, dim: int, known: Sizes) -> Size:
    """How many elements along ``dim``, from index 0, follow one another in memory; at least 1."""
    run: Size = 1
    if layout.swizzle is not None:
        return run
    left = [each for each in _kept(layout, known) if each.dim == dim]
    while left:
        following = [each for each in left if known.equal(each.stride, run)]
        if not following:
            break
        run = product(following[-1].size, run)
        left = [each for each in left if each is not following[-1]]
    return run


def alignment_of(layout: Layout, known: Sizes, dim: int | None = None) -> int:
    """A number that divides the offset of every element whose index along ``dim`` is 0 (without a
    dim: of every element). 0 stands for a single element, at offset 0."""
    steps = [known.divisor(each.stride) for each in _kept(layout, known) if each.dim != dim]
    return math.gcd(known.divisor(layout.start), *steps)


def _kept(layout: Layout, known: Sizes) -> list[Part]:
    """The blocks of more than one element."""
    return [each for each in layout.parts if not known.equal(each.size, 1)]
