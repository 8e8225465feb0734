"""Integers of 32 bits as numbers without end, where they do not wrap: what is proved of indices is
proved of those."""

from __future__ import annotations

from tilewright.dtypes import s64
from tilewright.facts.scope import Facts
from tilewright.ir.expr import Binary, Cast, Const, Expr, Unary, binary, cast, const
from tilewright.ir.operators import COMPARISONS
from tilewright.ir.visit import rewrite

_ARITHMETIC = frozenset({"add", "sub", "mul", "floordiv", "mod", "min", "max"})


def widened(expr: Expr, facts: Facts) -> Expr:
    """``expr`` with comparisons and indices of narrower integers in s64, where that is the same.

    ``s32(0) < s32(i) + s32(1)`` becomes ``0 < i + 1`` where ``i`` is known to be far below 2^31.
    """

    def change(node: Expr) -> Expr:
        match node:
            case Binary() if node.op in COMPARISONS and node.a.type.is_integer:
                a, b = _wide(node.a, facts), _wide(node.b, facts)
                return node if a is None or b is None else binary(node.op, a, b)
            case Cast() if node.type is s64 and node.a.type.is_integer:
                wide = _wide(node.a, facts)
                return node if wide is None else wide
            case _:
                return node

    return rewrite(expr, change)


def _wide(expr: Expr, facts: Facts) -> Expr | None:
    """``expr`` in s64; None where it may wrap."""
    if expr.type is s64:
        return expr
    wide: Expr | None = None
    match expr:
        case Const():
            return const(int(expr.value), s64)
        case Cast() if expr.a.type.is_integer:
            wide = _wide(expr.a, facts)
        case Unary(op="neg"):
            inner = _wide(expr.a, facts)
            wide = None if inner is None else -inner
        case Binary() if expr.op in _ARITHMETIC:
            a, b = _wide(expr.a, facts), _wide(expr.b, facts)
            wide = None if a is None or b is None else binary(expr.op, a, b)
        case _:
            return cast(s64, expr)
    if wide is None:
        return None
    low, high = facts.bounds(wide)
    if low is None or high is None:
        return None
    least, most = expr.type.lowest, expr.type.highest
    return wide if least <= low and high <= most else None
