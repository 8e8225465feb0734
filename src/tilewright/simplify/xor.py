"""Exclusive or of integers."""

from __future__ import annotations

from math import gcd

from tilewright.facts import Facts, affine, order_key
from tilewright.ir.expr import Binary, Const, Expr, binary, const
from tilewright.simplify.divmod import single_block, split_multiples
from tilewright.simplify.rules import Rule, Types, c0, c1, w, x, y, z


def _in_order(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Binary)
    if isinstance(expr.a, Const) or isinstance(expr.b, Const):
        return None
    return expr.b ^ expr.a if order_key(expr.b) < order_key(expr.a) else None


def _blocks(expr: Expr, facts: Facts) -> Expr | None:
    """High bits and low bits apart, at the highest place where both operands can be cut."""
    assert isinstance(expr, Binary)
    sides = affine(expr.a), affine(expr.b)
    factors = [factor for form in sides for factor in form.terms.values()]
    for step in sorted({gcd(factor, 1 << 62) for factor in factors} - {1}, reverse=True):
        high, low = [], []
        for form in sides:
            multiples, rest = split_multiples(form, step)
            quotient = single_block(rest, step, facts)
            if quotient is None:
                break
            high.append(multiples.divided(step).shifted(quotient).to_expr())
            low.append(rest.shifted(-quotient * step).to_expr())
        else:
            return (high[0] ^ high[1]) * step + (low[0] ^ low[1])
    return None


_POWER_OF_TWO = (const(0) < c0) & binary("eq", c0 ^ (c0 - 1), c0 * 2 - 1)
_IN_BLOCK = (const(0) <= y) & (y < c0) & (const(0) <= w) & (w < c0)

RULES = (
    Rule("xor-zero", x ^ 0, x, types=Types.INTEGER),
    Rule("zero-xor", const(0) ^ x, x, types=Types.INTEGER),
    Rule("xor-self", x ^ x, const(0), types=Types.INTEGER),
    Rule("xor-constant-last", c0 ^ x, x ^ c0, types=Types.INTEGER),
    Rule("xor-constants", (x ^ c0) ^ c1, x ^ (c0 ^ c1), types=Types.INTEGER),
    Rule("xor-twice", (x ^ y) ^ y, x, types=Types.INTEGER),
    Rule("xor-twice-first", (x ^ y) ^ x, y, types=Types.INTEGER),
    Rule("xor-after", x ^ (x ^ y), y, types=Types.INTEGER),
    Rule("xor-after-second", x ^ (y ^ x), y, types=Types.INTEGER),
    Rule("xor-order", y ^ x, x ^ y, None, Types.INTEGER, _in_order),
    Rule(
        "xor-blocks",
        (x * c0 + y) ^ (z * c0 + w),
        (x ^ z) * c0 + (y ^ w),
        _POWER_OF_TWO & _IN_BLOCK,
        procedure=_blocks,
    ),
)
