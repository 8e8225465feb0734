"""Loops that lanes run differently often, as one that all of them run, and what is left of it.

Work-items mostly share out what there is by going through it in steps as wide as they are many:
``for k in range(lane, n, 8)``. Then none runs more than once more often than another one, and all
but the last iteration needs no masks.
"""

from __future__ import annotations

from tilewright.dtypes import s64
from tilewright.facts import Facts
from tilewright.ir.expr import Binary, Const, Expr, maximum, var
from tilewright.ir.stmt import Block, For, Let, Stmt
from tilewright.ir.visit import reads_memory, substitute_stmt, walk_stmts
from tilewright.passes.spmd.nests import fresh
from tilewright.passes.spmd.strides import Strides
from tilewright.simplify import simplify

# Bodies of more statements than this are not written twice.
_FEW = 60


def in_common(loop: For, strides: Strides, width: int, taken: set[str]) -> Stmt:
    """``loop`` of ``width`` lanes, apart from the iterations that all of them run.

        for k in (n - l + 7) // 8:
          a[k * 8 + l] = 1.0
    ->  all_k = max(n // 8, 0)
        for k in all_k:
          a[k * 8 + l] = 1.0
        for k in (n - l + 7) // 8 - all_k:
          a[(all_k + k) * 8 + l] = 1.0
    """
    if not strides.varying.of(loop.extent) or sum(1 for _ in walk_stmts(loop.body)) > _FEW:
        return loop
    least = least_trips(loop.extent, strides, width)
    if least is None:
        return loop
    common = var(fresh(f"all_{loop.var.name}", taken), s64)
    own = var(fresh(loop.var.name, taken), s64)
    left = substitute_stmt(loop.body, {loop.var: common + own})
    return Block(
        (
            Let(common, maximum(least, 0), loop.span),
            For(loop.var, common, loop.body, loop.kind, loop.span),
            For(own, loop.extent - common, left, loop.kind, loop.span),
        ),
        loop.span,
    )


def least_trips(extent: Expr, strides: Strides, width: int) -> Expr | None:
    """How often the lane runs that runs least often, of ``width``; below 0: never. None where
    nobody knows."""
    if reads_memory(extent):
        return None  # It may change on the way; what does not change has a name.
    over, divisor = extent, 1
    if isinstance(extent, Binary) and extent.op == "floordiv" and isinstance(extent.b, Const):
        over, divisor = extent.a, int(extent.b.value)
    strides.widened.clear()
    found = strides.of(over) if over.type is s64 and divisor > 0 else None
    if found is None or strides.widened:
        return None
    first, step = found
    least = first + step * (width - 1) if step < 0 else first
    return simplify(least // divisor if divisor > 1 else least, Facts.empty())
