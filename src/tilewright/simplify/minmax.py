"""Minimum and maximum. For floats, a NaN and the sign of zero keep most rules away."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from tilewright.facts import Affine, Facts, affine, order_key
from tilewright.ir.expr import Binary, Const, Expr, maximum, minimum
from tilewright.simplify.logic import joined
from tilewright.simplify.rules import Rule, Types, c0, c1, x, y, z

Extreme = Callable[[Expr, Expr], Expr]


def _decided_order(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Binary)
    difference = affine(expr.a) - affine(expr.b)
    least, greatest = (expr.a, expr.b) if expr.op == "min" else (expr.b, expr.a)
    if facts.is_at_most(difference, 0):
        return least
    return greatest if facts.is_at_most(-difference, 0) else None


def _common_part(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Binary)
    a, b = affine(expr.a), affine(expr.b)
    common = Affine({atom: k for atom, k in a.terms.items() if b.terms.get(atom) == k})
    if a.constant == b.constant:
        common = common.shifted(a.constant)
    if not common.terms and not common.constant:
        return None
    a, b = a - common, b - common
    choice = _build(expr.op, a.to_expr(), b.to_expr())
    return (affine(choice) + common).to_expr()


def _build(op: str, a: Expr, b: Expr) -> Expr:
    return minimum(a, b) if op == "min" else maximum(a, b)


def _in_order(expr: Expr, facts: Facts) -> Expr | None:
    """Operands are flattened and ordered, constants last."""
    assert isinstance(expr, Binary)
    operands = dict.fromkeys(joined(expr))
    ordered = sorted(operands, key=lambda e: (isinstance(e, Const), order_key(e)))
    result = reduce(partial(_build, expr.op), ordered)
    return None if result is expr else result


def _rules(op: str, first: Extreme, dual_op: str, dual: Extreme) -> tuple[Rule, ...]:
    """The rules of ``first``, which is minimum or maximum; ``dual`` is the other one."""
    integer = Types.INTEGER
    decided = x if op == "min" else y
    return (
        Rule(f"{op}-self", first(x, x), x, types=Types.NUMBER),
        Rule(f"{op}-known", first(x, y), decided, x <= y, integer, _decided_order),
        Rule(f"{op}-constants", first(first(x, c0), c1), first(x, first(c0, c1)), types=integer),
        Rule(
            f"{op}-order",
            first(first(z, y), x),
            first(first(x, y), z),
            types=integer,
            procedure=_in_order,
        ),
        Rule(f"{op}-repeated", first(first(x, y), y), first(x, y), types=Types.NUMBER),
        Rule(f"{op}-of-{dual_op}", first(x, dual(x, y)), x, types=integer),
        Rule(f"{op}-of-{dual_op}-second", first(x, dual(y, x)), x, types=integer),
        Rule(f"{dual_op}-and-{op}", first(dual(x, y), x), x, types=integer),
        Rule(f"{dual_op}-second-and-{op}", first(dual(y, x), x), x, types=integer),
        Rule(f"{op}-common-part", first(x + z, y + z), first(x, y) + z, procedure=_common_part),
    )


RULES = (*_rules("min", minimum, "max", maximum), *_rules("max", maximum, "min", minimum))
