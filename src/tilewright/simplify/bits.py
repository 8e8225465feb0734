"""And, or, not and shifts of integers.

On s64, those that equal products, quotients or remainders become such: facts are about these.
"""

from __future__ import annotations

from tilewright.dtypes import s64
from tilewright.facts import Facts
from tilewright.ir.expr import Binary, Const, Expr, binary, const
from tilewright.simplify.rules import Rule, Types, c0, c1, x, y

_MOST_BITS = 64
_ONES = const(-1)


def _low_bits(expr: Expr, facts: Facts) -> Expr | None:
    """``x and 7`` as ``x % 8``, which holds for negative numbers as well."""
    assert isinstance(expr, Binary)
    if not isinstance(expr.b, Const) or expr.b.value <= 0:
        return None
    divisor: int = expr.b.value + 1
    return expr.a % divisor if divisor & expr.b.value == 0 and divisor <= s64.highest else None


def _as_quotient(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Binary)
    amount = expr.b
    if not isinstance(amount, Const) or not 0 <= amount.value < _MOST_BITS - 1:
        return None
    divisor: int = 1 << amount.value
    return expr.a // divisor


def _as_product(expr: Expr, facts: Facts) -> Expr | None:
    """Only where no bit is lost: products of s64 count as unbounded."""
    assert isinstance(expr, Binary)
    amount = expr.b
    if not isinstance(amount, Const) or not 0 <= amount.value < _MOST_BITS - 2:
        return None
    factor: int = 1 << amount.value
    limit = (1 << (_MOST_BITS - 2)) // factor
    lo, hi = facts.bounds(expr.a)
    if lo is None or hi is None or lo < -limit or hi >= limit:
        return None
    return expr.a * factor


_AMOUNT = (const(0) <= c0) & (c0 < 20)
_AMOUNTS = _AMOUNT & (const(0) <= c1) & (c1 < 20)
_SMALL = (const(-1000) <= x) & (x < 1000)

RULES = (
    Rule("bits-and-zero", x & 0, const(0), types=Types.INTEGER),
    Rule("bits-and-ones", x & _ONES, x, types=Types.INTEGER),
    Rule("bits-and-constant-last", c0 & x, x & c0, types=Types.INTEGER),
    Rule("bits-and-self", x & x, x, types=Types.INTEGER),
    Rule("bits-and-not-self", x & ~x, const(0), types=Types.INTEGER),
    Rule("bits-and-constants", (x & c0) & c1, x & (c0 & c1), types=Types.INTEGER),
    Rule("bits-and-twice", (x & y) & y, x & y, types=Types.INTEGER),
    Rule("bits-and-of-or", x & (x | y), x, types=Types.INTEGER),
    Rule("bits-or-zero", x | 0, x, types=Types.INTEGER),
    Rule("bits-or-ones", x | _ONES, _ONES, types=Types.INTEGER),
    Rule("bits-or-constant-last", c0 | x, x | c0, types=Types.INTEGER),
    Rule("bits-or-self", x | x, x, types=Types.INTEGER),
    Rule("bits-or-not-self", x | ~x, _ONES, types=Types.INTEGER),
    Rule("bits-or-constants", (x | c0) | c1, x | (c0 | c1), types=Types.INTEGER),
    Rule("bits-or-twice", (x | y) | y, x | y, types=Types.INTEGER),
    Rule("bits-or-of-and", x | (x & y), x, types=Types.INTEGER),
    Rule("bits-not-not", ~~x, x, types=Types.INTEGER),
    Rule("bits-xor-ones", x ^ _ONES, ~x, types=Types.INTEGER),
    Rule("bits-xor-not-self", x ^ ~x, _ONES, types=Types.INTEGER),
    Rule("bits-xor-nots", ~x ^ ~y, x ^ y, types=Types.INTEGER),
    Rule("shift-left-by-zero", x << 0, x, types=Types.INTEGER),
    Rule("shift-right-by-zero", x >> 0, x, types=Types.INTEGER),
    Rule("zero-shifted-left", const(0) << x, const(0), types=Types.INTEGER),
    Rule("zero-shifted-right", const(0) >> x, const(0), types=Types.INTEGER),
    Rule("shift-left-twice", (x << c0) << c1, x << (c0 + c1), _AMOUNTS, Types.INTEGER),
    Rule("shift-right-twice", (x >> c0) >> c1, x >> (c0 + c1), _AMOUNTS, Types.INTEGER),
    Rule("high-of-zero", binary("mulhi", x, 0), const(0), types=Types.INTEGER),
    Rule(
        "high-of-constant-last", binary("mulhi", c0, x), binary("mulhi", x, c0), types=Types.INTEGER
    ),
    Rule(
        "low-bits-are-remainder",
        x & ((const(1) << c0) - 1),
        x % (const(1) << c0),
        _AMOUNT & (const(0) < c0),
        procedure=_low_bits,
    ),
    Rule(
        "shift-right-is-quotient",
        x >> c0,
        x // (const(1) << c0),
        _AMOUNT,
        procedure=_as_quotient,
    ),
    Rule(
        "shift-left-is-product",
        x << c0,
        x * (const(1) << c0),
        _AMOUNT & _SMALL,
        procedure=_as_product,
    ),
)
