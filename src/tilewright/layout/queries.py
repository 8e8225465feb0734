"""What can be asked of a layout, and of a view along one dim of an op.

Everything counts in elements. A view's answers are those of its index expressions where these are
affine; where one is not (a division by a stride), there is no answer, which is None. All this is
for users: schedules ask narrower questions, each where it has the answer at hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.ir.buffer import Layout, LayoutBlock
from tilewright.ir.expr import Binary, Const, Expr, Unary, Var, const
from tilewright.ir.stmt import View
from tilewright.ir.visit import map_view, substitute, variables


def innermost(layout: Layout) -> LayoutBlock | None:
    """The block of more than one element that lies densest in memory; None for a scalar.

    A swizzle is not looked at: inside of its runs, neighbours stay neighbours.
    """
    blocks = [block for block in layout.blocks if block.size > 1]
    return min(blocks, key=lambda block: block.stride, default=None)


def is_innermost(layout: Layout, dim: int) -> bool:
    """Whether neighbours along ``dim`` are neighbours in memory, also after a swizzle."""
    block = innermost(layout)
    if block is None or block.dim != dim or block.stride != 1:
        return False
    together = _together(layout, dim)
    return together is None or block.size <= together


def contiguous_run(layout: Layout, dim: int) -> int:
    """How many elements along ``dim``, from index 0, follow one another in memory; at least 1.

    More than one block of the dim counts when they join: the 4 and 16 of ``4b16b``. Of a swizzle,
    no more than one run counts.
    """
    run = 1
    for block in sorted((b for b in layout.blocks if b.dim == dim), key=lambda b: b.stride):
        if block.size > 1 and block.stride == run:
            run *= block.size
    together = _together(layout, dim)
    return run if together is None else min(run, together)


def _together(layout: Layout, dim: int) -> int | None:
    """How many elements along ``dim``, from index 0, a swizzle leaves together wherever the others
    are; None without one."""
    if layout.swizzle is None:
        return None
    steps = [b.stride for b in layout.blocks if b.dim != dim and b.size > 1]
    return math.gcd(layout.swizzle.run, *steps)


def alignment(layout: Layout, dim: int | None = None) -> int:
    """A number that divides the offset of every element whose index along ``dim`` is 0.

    Without a dim, of every element. For a row of ``n`` elements that is ``n``: each row starts at
    a multiple of it. 0 stands for a single element, at offset 0.
    """
    steps = [b.stride for b in layout.blocks if b.dim != dim and b.size > 1]
    if steps and layout.swizzle is not None:
        steps.append(layout.swizzle.run)
    return math.gcd(layout.offset, *steps)


def padding_elements(layout: Layout, shape: tuple[int, ...]) -> int:
    """Elements that blocks hold beyond the logical ``shape``."""
    return math.prod(layout.padded_shape(len(shape))) - math.prod(shape)


def coefficient(expr: Expr, variable: Var) -> int | None:
    """By how much ``expr`` grows as ``variable`` grows by 1; None where that is not constant."""
    if expr is variable:
        return 1
    if variable not in variables(expr):
        return 0
    if isinstance(expr, Unary) and expr.op == "neg":
        inner = coefficient(expr.a, variable)
        return None if inner is None else -inner
    if not isinstance(expr, Binary):
        return None
    if expr.op in ("add", "sub"):
        a, b = coefficient(expr.a, variable), coefficient(expr.b, variable)
        if a is None or b is None:
            return None
        return a + b if expr.op == "add" else a - b
    if expr.op == "mul":
        factor, other = (expr.a, expr.b) if isinstance(expr.a, Const) else (expr.b, expr.a)
        inner = coefficient(other, variable)
        if isinstance(factor, Const) and inner is not None:
            return int(factor.value) * inner
    return None


def step_along(view: View, variable: Var, extent: int) -> int | None:
    """How far apart in memory neighbours along a dim of the op are, in elements.

    ``variable`` runs from 0 to ``extent``; the step holds for all of it. None where it varies: the
    dim crosses blocks, a swizzle exchanges neighbours, or the index is not affine in it.
    """
    total = 0
    for dim, index in enumerate(view.index):
        factor = coefficient(index, variable)
        if factor is None:
            return None
        if factor == 0 or extent == 1:
            continue
        stride = _stride_within(view, dim, index, variable, factor * (extent - 1) + 1)
        if stride is None:
            return None
        total += factor * stride
    return total


def _stride_within(view: View, dim: int, index: Expr, variable: Var, reach: int) -> int | None:
    """The stride of a buffer's dim over ``reach`` elements; None where a block ends in them, or
    a swizzle may move them apart."""
    if view.buffer.layout.swizzle is not None:
        return None
    inner = sorted(
        (b for b in view.buffer.layout.blocks if b.dim == dim and b.size > 1),
        key=lambda block: block.stride,
    )
    if not inner:
        return 0
    stride, size = inner[0].stride, inner[0].size
    for block in inner[1:]:
        if block.stride == stride * size:
            size *= block.size
        elif reach <= size and _starts_block(index, variable, size):
            return stride
        else:
            return None
    return stride


def _starts_block(index: Expr, variable: Var, size: int) -> bool:
    """Whether ``index`` is plainly a multiple of ``size`` where ``variable`` is 0."""
    rest = substitute(index, {variable: const(0)})
    return _is_multiple(rest, size)


def _is_multiple(expr: Expr, size: int) -> bool:
    if isinstance(expr, Const):
        return int(expr.value) % size == 0
    if isinstance(expr, Binary) and expr.op in ("add", "sub"):
        return _is_multiple(expr.a, size) and _is_multiple(expr.b, size)
    if isinstance(expr, Binary) and expr.op == "mul":
        return _is_multiple(expr.a, size) or _is_multiple(expr.b, size)
    return False


def subview(view: View, values: Mapping[Var, Expr]) -> View:
    """``view`` with dims of the op replaced: by ``offset + inner dim`` for a tile of it."""
    return map_view(view, lambda expr: substitute(expr, values))
