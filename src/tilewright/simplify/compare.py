"""Comparisons. Those of s64 become a sum against a sum, divided by what divides all terms."""

from __future__ import annotations

from tilewright.dtypes import boolean
from tilewright.facts import Affine, Facts, affine, order_key
from tilewright.ir.expr import Binary, Expr, binary, const
from tilewright.simplify.divmod import lone_quotient
from tilewright.simplify.rules import FALSE, TRUE, Rule, Types, c0, c1, p, x, y, z


def _decided(expr: Expr, facts: Facts) -> Expr | None:
    truth = facts.prove(expr)
    return None if truth is None else const(truth, boolean)


def _sides(form: Affine) -> tuple[Affine, Affine]:
    """``form`` as a difference of two sums with positive coefficients; the constant is left out."""
    positive = {atom: c for atom, c in form.terms.items() if c > 0}
    negative = {atom: -c for atom, c in form.terms.items() if c < 0}
    return Affine(positive), Affine(negative)


def _order(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Binary)
    form = affine(expr.a) - affine(expr.b)
    if not form.terms:
        return None
    # terms <= limit, over integers
    limit = -form.constant - (1 if expr.op == "lt" else 0)
    common = form.content
    form, limit = Affine(form.terms).divided(common), limit // common
    less, greater = _sides(form)
    quotient = _quotient_limit(less, greater, limit)
    result = quotient if quotient is not None else _at_most(less, greater, limit)
    return None if result is expr else result


def _at_most(less: Affine, greater: Affine, limit: int) -> Expr:
    """``less <= greater + limit``, with the constant where it is not negative."""
    if greater.is_constant:
        return less.to_expr() < const(limit + 1)
    if less.is_constant:
        return const(-limit) <= greater.to_expr()
    if limit == 0:
        return less.to_expr() <= greater.to_expr()
    if limit > 0:
        return less.to_expr() < greater.shifted(limit + 1).to_expr()
    return less.shifted(-limit - 1).to_expr() < greater.to_expr()


def _quotient_limit(less: Affine, greater: Affine, limit: int) -> Expr | None:
    """A limit of ``x // c`` alone, as one of ``x``."""
    quotient = lone_quotient(less if greater.is_constant else greater)
    if (less.terms and greater.terms) or quotient is None:
        return None
    dividend, by = quotient
    if less.terms:
        return dividend < const((limit + 1) * by)
    return const(-limit * by) <= dividend


def _equality(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Binary)
    form = affine(expr.a) - affine(expr.b)
    if not form.terms:
        return None
    common = form.content
    if form.constant % common != 0:
        return FALSE if expr.op == "eq" else TRUE
    form = form.divided(common)
    if form.terms[min(form.terms, key=order_key)] < 0:
        form = -form
    left, right = _sides(form)
    if right.is_constant or form.constant < 0:
        right = right.shifted(-form.constant)
    else:
        left = left.shifted(form.constant)
    result = binary(expr.op, left.to_expr(), right.to_expr())
    return None if result is expr else result


RULES = (
    Rule("less-known", x < y, TRUE, x < y, Types.ANY, _decided),
    Rule("at-most-known", x <= y, TRUE, x <= y, Types.ANY, _decided),
    Rule("equal-known", binary("eq", x, y), TRUE, binary("eq", x, y), Types.ANY, _decided),
    Rule("unequal-known", binary("ne", x, y), TRUE, binary("ne", x, y), Types.ANY, _decided),
    Rule("less-than-self", x < x, FALSE, types=Types.NUMBER),
    Rule("at-most-self", x <= x, TRUE, types=Types.INTEGER),
    Rule("equal-self", binary("eq", x, x), TRUE, types=Types.INTEGER),
    Rule("unequal-self", binary("ne", x, x), FALSE, types=Types.INTEGER),
    Rule("less-common-part", x + z < y + z, x < y, procedure=_order),
    Rule("at-most-common-part", x + z <= y + z, x <= y, procedure=_order),
    Rule(
        "less-common-factor",
        x * c0 < y * c0 + c1,
        x - y < -((-c1) // c0),
        const(0) < c0,
        procedure=_order,
    ),
    Rule("quotient-less", x // c0 < c1, x < c1 * c0, const(0) < c0, procedure=_order),
    Rule("quotient-at-least", c1 <= x // c0, c1 * c0 <= x, const(0) < c0, procedure=_order),
    Rule(
        "quotients-apart",
        x // c0 < (x + c1) // c0,
        const(0) < x % c0,
        (const(0) < c0) & (binary("eq", c1, c0 - 1)),
    ),
    Rule("at-most-constant", x <= c0, x < c0 + 1, procedure=_order),
    Rule("constant-less", c0 < x, c0 + 1 <= x, procedure=_order),
    Rule(
        "equal-common-factor",
        binary("eq", x * c0, y * c0),
        binary("eq", x, y),
        c0 != 0,
        procedure=_equality,
    ),
    Rule(
        "unequal-common-factor",
        binary("ne", x * c0, y * c0),
        binary("ne", x, y),
        c0 != 0,
        procedure=_equality,
    ),
    Rule(
        "equal-indivisible",
        binary("eq", x * c0, c1),
        FALSE,
        c1 % c0 != 0,
        procedure=_equality,
    ),
    Rule("is-true", binary("eq", p, TRUE), p, types=Types.BOOL),
    Rule("is-false", binary("eq", p, FALSE), ~p, types=Types.BOOL),
    Rule("is-not-true", binary("ne", p, TRUE), ~p, types=Types.BOOL),
    Rule("is-not-false", binary("ne", p, FALSE), p, types=Types.BOOL),
)
