"""Loops with trip counts that differ by lane, as a loop of all lanes and a masked rest.

Work-items mostly share a range by steps of as many as they are: ``for k in range(lane, n, 8)``.
Then their numbers of iterations differ by at most one, and only the last iteration needs masks.
"""

from __future__ import annotations

from tilewright.dtypes import s64
from tilewright.facts import Facts
from tilewright.ir.expr import Binary, Const, Expr, maximum, var
from tilewright.ir.renaming import fresh
from tilewright.ir.stmt import Block, For, Let, Stmt
from tilewright.ir.visit import reads_memory, substitute_stmt, walk_stmts
from tilewright.passes.spmd.strides import Strides
from tilewright.simplify import simplify

# Bodies of more statements than this are not written twice.
_FEW = 60


def split_common_trips(loop: For, strides: Strides, width: int, taken: set[str]) -> Stmt:
    """``loop`` of ``width`` lanes, split into the iterations that all of them run, and the rest.

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
    rest = var(fresh(loop.var.name, taken), s64)
    rest_body = substitute_stmt(loop.body, {loop.var: common + rest})
    return Block(
        (
            Let(common, maximum(least, 0), loop.span),
            For(loop.var, common, loop.body, loop.kind, loop.span),
            For(rest, loop.extent - common, rest_body, loop.kind, loop.span),
        ),
        loop.span,
    )


def least_trips(extent: Expr, strides: Strides, width: int) -> Expr | None:
    """The least number of iterations of ``width`` lanes (below 0: none); None where it is
    unknown."""
    if reads_memory(extent):
        return None  # It may change on the way; loads that do not change have a name.
    over, divisor = extent, 1
    if isinstance(extent, Binary) and extent.op == "floordiv" and isinstance(extent.b, Const):
        over, divisor = extent.a, int(extent.b.value)
    strides.widened.clear()
    stride = strides.of(over) if over.type is s64 and divisor > 0 else None
    if stride is None or strides.widened:
        return None
    first, step = stride
    least = first + step * (width - 1) if step < 0 else first
    return simplify(least // divisor if divisor > 1 else least, Facts.empty())
