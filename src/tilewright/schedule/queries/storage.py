"""The layouts of the buffers that transforms make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.errors import ScheduleError
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Layout, LayoutBlock, Part, Size, Swizzle, as_size, part, product
from tilewright.ir.expr import as_expr
from tilewright.schedule.queries.refusal import refusal
from tilewright.simplify import simplify

# Ordered blocks in terms of named dims, outermost first: ("oc", None) is what the inner blocks of
# oc leave, ("oc", 16) is a block of 16; a name alone is the same as (name, None).
BlockList = Sequence[str | tuple[str, int | None]]


def ordered_layout(shape: Sequence[int], order: Sequence[int]) -> Layout:
    """The dense layout whose dims lie in ``order``, innermost last."""
    blocks: list[LayoutBlock] = []
    stride = 1
    for dim in reversed(order):
        blocks.append(LayoutBlock(dim, shape[dim], stride))
        stride *= shape[dim]
    return Layout(tuple(reversed(blocks)))


def blocked_layout(
    names: Sequence[str],
    sizes: Sequence[Size],
    blocks: BlockList = (),
    row_padding: Mapping[str, int] | None = None,
    swizzle: Swizzle | None = None,
) -> tuple[tuple[Size, ...], Layout]:
    """The padded shape and the layout that ``blocks`` describe.

    ``[("oc", None), ("ic", None), ("oc", 32), ("ic", 2)]`` on oc = 40, ic = 5 gives the shape
    (64, 6) and offsets ``oc//32 * 192 + ic//2 * 64 + oc%32 * 2 + ic%2``. Dims that are not
    mentioned are outermost. ``row_padding`` makes each step along a dim (its outermost block) that
    many elements longer than what lies inside. ``swizzle`` then exchanges runs; steps within its
    period have to be powers of two, as its rows are.
    """
    entries = _complete(names, blocks)
    padding = dict(row_padding or {})
    for name in padding:
        if name not in names:
            raise _unknown(name, names)
    inner = dict.fromkeys(names, 1)
    for name, size in entries:
        inner[name] *= size or 1
    counts = {n: _blocks(size, inner[n]) for n, size in zip(names, sizes, strict=True)}
    result: list[Part] = []
    stride: Size = 1
    for name, size in reversed(entries):
        if size is None and padding.get(name, 0):
            stride = as_size(as_expr(stride) + padding[name])
        count = counts[name] if size is None else size
        result.append(part(list(names).index(name), count, stride))
        stride = product(count, stride)
    layout = Layout(tuple(reversed(result)), 0, swizzle)
    _check_swizzle(names, layout)
    return tuple(product(counts[n], inner[n]) for n in names), layout


def _blocks(size: Size, inner: int) -> Size:
    """How many blocks of ``inner`` elements hold ``size``."""
    if isinstance(size, int):
        return -(-size // inner)
    return size if inner == 1 else as_size(simplify((size + (inner - 1)) // inner, Facts.empty()))


def _check_swizzle(names: Sequence[str], layout: Layout) -> None:
    swizzle = layout.swizzle
    if swizzle is None:
        return
    text = f"{swizzle.bits}:{swizzle.base}:{swizzle.shift}"
    if swizzle.bits < 1 or swizzle.base < 0 or swizzle.shift < swizzle.bits:
        raise refusal(
            f"{text} is no swizzle",
            "the layout",
            "give bits of 1 or more, a base of 0 or more, and a shift of at least the bits",
        )
    for block in layout.blocks:
        inside = block.size > 1 and block.stride % swizzle.period
        if inside and block.stride & (block.stride - 1):
            raise refusal(
                f"the swizzle {text} cuts rows of {block.stride} elements",
                f"the steps along '{names[block.dim]}'",
                "make what lies inside a power of two, without padding, or pad rows instead",
                why="what it exchanges are runs of rows whose length is a power of two",
            )


def _unknown(name: str, names: Sequence[str]) -> ScheduleError:
    return refusal(
        f"the new buffer has no dim '{name}'", "the layout", "choose from " + ", ".join(names)
    )


def _complete(names: Sequence[str], blocks: BlockList) -> list[tuple[str, int | None]]:
    """The blocks with the missing outermost parts added, each of which comes first of its dim."""
    entries = [(b, None) if isinstance(b, str) else b for b in blocks]
    whole: set[str] = set()
    for i, (name, size) in enumerate(entries):
        if name not in names:
            raise _unknown(name, names)
        if size is not None and size < 1:
            raise refusal(
                f"a block of '{name}' has the size {size}", "the layout", "sizes are 1 or more"
            )
        if size is None:
            if name in whole or any(n == name for n, _ in entries[:i]):
                raise refusal(
                    f"('{name}', None) is not the outermost block of '{name}'",
                    "the layout",
                    "put it before the blocks that have a size, once",
                )
            whole.add(name)
    missing: list[tuple[str, int | None]] = [(n, None) for n in names if n not in whole]
    return missing + entries
