"""Sums and differences.

Sums of s64 are brought to one form by `tilewright.facts.affine`; the rules on them put quotients
and remainders together. The rules on other integers are those that survive wrapping.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.dtypes import s64
from tilewright.facts import Affine, Facts, affine
from tilewright.ir.expr import Binary, Const, Expr, const, unary
from tilewright.simplify.rules import Rule, Types, c0, c1, x, y


def is_sum(expr: Expr) -> bool:
    """Whether ``expr`` is a sum or a multiple, as opposed to one atom."""
    if expr.type is not s64:
        return False
    form = affine(expr)
    return not (len(form.terms) == 1 and expr in form.terms)


def _divisions(form: Affine, op: str) -> Iterator[tuple[Binary, int, int]]:
    """The terms ``coefficient * (dividend op divisor)``: the atom, its divisor, its coefficient."""
    for atom, coefficient in form.terms.items():
        if isinstance(atom, Binary) and atom.op == op and isinstance(atom.b, Const):
            divisor = atom.b.value
            if divisor > 0:
                yield atom, divisor, coefficient


def _multiple_within(form: Affine, part: Affine, factor: int) -> bool:
    """Whether ``form`` has each term of ``factor * part``, so that taking it away leaves fewer."""
    return bool(part.terms) and all(
        form.terms.get(atom) == factor * coefficient for atom, coefficient in part.terms.items()
    )


def _quotient_and_remainder(expr: Expr, facts: Facts) -> Expr | None:
    form = affine(expr)
    for remainder, divisor, factor in _divisions(form, "mod"):
        for quotient, by, coefficient in _divisions(form, "floordiv"):
            if quotient.a is remainder.a and by == divisor and coefficient == factor * divisor:
                parts = Affine({remainder: -factor, quotient: -coefficient})
                return (form + parts).plus(affine(quotient.a), factor).to_expr()
    return None


def _less_quotient(expr: Expr, facts: Facts) -> Expr | None:
    form = affine(expr)
    for quotient, divisor, coefficient in _divisions(form, "floordiv"):
        dividend = affine(quotient.a)
        factor = -coefficient // divisor
        if coefficient % divisor == 0 and _multiple_within(form, dividend, factor):
            rest = form.plus(dividend, -factor) + Affine({quotient: -coefficient})
            return rest.plus(Affine({quotient.a % divisor: 1}), factor).to_expr()
    return None


def _less_remainder(expr: Expr, facts: Facts) -> Expr | None:
    form = affine(expr)
    for remainder, divisor, coefficient in _divisions(form, "mod"):
        dividend = affine(remainder.a)
        if _multiple_within(form, dividend, -coefficient):
            rest = form.plus(dividend, coefficient) + Affine({remainder: -coefficient})
            quotient = Affine({remainder.a // divisor: 1})
            return rest.plus(quotient, -coefficient * divisor).to_expr()
    return None


def _digits(expr: Expr, facts: Facts) -> Expr | None:
    form = affine(expr)
    for low, small, factor in _divisions(form, "mod"):
        for high, count, coefficient in _divisions(form, "mod"):
            shifted = high.a
            if coefficient != factor * small or not isinstance(shifted, Binary):
                continue
            if shifted.op != "floordiv" or shifted.a is not low.a:
                continue
            if isinstance(shifted.b, Const) and shifted.b.value == small:
                rest = form + Affine({low: -factor, high: -coefficient})
                return rest.plus(Affine({low.a % (small * count): 1}), factor).to_expr()
    return None


def _leading_digits(expr: Expr, facts: Facts) -> Expr | None:
    form = affine(expr)
    for low, count, factor in _divisions(form, "mod"):
        shifted = low.a
        if not isinstance(shifted, Binary) or shifted.op != "floordiv":
            continue
        for high, by, coefficient in _divisions(form, "floordiv"):
            if high.a is not shifted.a or coefficient != factor * count:
                continue
            if isinstance(shifted.b, Const) and shifted.b.value * count == by:
                rest = form + Affine({low: -factor, high: -coefficient})
                return rest.plus(Affine({shifted: 1}), factor).to_expr()
    return None


SUM_RULES = (
    Rule(
        "quotient-and-remainder",
        (x // c0) * c0 + x % c0,
        x,
        const(0) < c0,
        procedure=_quotient_and_remainder,
    ),
    Rule(
        "remainder-by-digits",
        ((x // c0) % c1) * c0 + x % c0,
        x % (c0 * c1),
        (const(0) < c0) & (const(0) < c1),
        procedure=_digits,
    ),
    Rule(
        "quotient-by-digits",
        (x // (c0 * c1)) * c1 + (x // c0) % c1,
        x // c0,
        (const(0) < c0) & (const(0) < c1),
        procedure=_leading_digits,
    ),
    Rule("less-quotient", x - (x // c0) * c0, x % c0, const(0) < c0, procedure=_less_quotient),
    Rule("less-remainder", x - x % c0, (x // c0) * c0, const(0) < c0, procedure=_less_remainder),
)

RULES = (
    Rule("add-zero", x + 0, x, types=Types.INTEGER),
    Rule("zero-add", const(0) + x, x, types=Types.INTEGER),
    Rule("constant-last", c0 + x, x + c0, types=Types.INTEGER),
    Rule("subtract-zero", x - 0, x, types=Types.INTEGER),
    Rule("zero-subtract", const(0) - x, -x, types=Types.INTEGER),
    Rule("subtract-self", x - x, const(0), types=Types.INTEGER),
    Rule("add-constants", (x + c0) + c1, x + (c0 + c1), types=Types.INTEGER),
    Rule("subtract-constant", x - c0, x + (-c0), types=Types.INTEGER),
    Rule("add-negative", x + -y, x - y, types=Types.INTEGER),
    Rule("negative-add", -x + y, y - x, types=Types.INTEGER),
    Rule("subtract-negative", x - -y, x + y, types=Types.INTEGER),
    Rule("add-then-subtract", (x + y) - y, x, types=Types.INTEGER),
    Rule("add-then-subtract-first", (x + y) - x, y, types=Types.INTEGER),
    Rule("subtract-then-add", (x - y) + y, x, types=Types.INTEGER),
    Rule("subtract-difference", x - (x - y), y, types=Types.INTEGER),
    Rule("subtract-sum", x - (x + y), -y, types=Types.INTEGER),
    Rule("negative-negative", unary("neg", -x), x, types=Types.INTEGER),
    Rule("negative-difference", -(x - y), y - x, types=Types.INTEGER),
    Rule("negative-of-sum-with-constant", -(x + c0), (-c0) - x, types=Types.INTEGER),
    Rule("constant-less-sum", c0 - (x + c1), (c0 - c1) - x, types=Types.INTEGER),
    Rule("add-multiples", x * c0 + x * c1, x * (c0 + c1), types=Types.INTEGER),
    Rule("add-to-multiple", x * c0 + x, x * (c0 + 1), types=Types.INTEGER),
)
