"""Products of integers."""

from __future__ import annotations

from tilewright.facts import Affine, Facts, affine, order_key
from tilewright.ir.expr import Binary, Expr, const
from tilewright.simplify.rules import Rule, Types, c0, c1, x, y, z


def _factors(expr: Expr) -> tuple[list[Expr], int]:
    """The factors of a product of s64, without the constant ones, and the product of those."""
    factors: list[Expr] = []
    scale = 1
    stack = [expr]
    while stack:
        node = stack.pop()
        form = affine(node)
        if form.is_constant:
            scale *= form.constant
        elif len(form.terms) == 1 and form.constant == 0:
            ((atom, coefficient),) = form.terms.items()
            scale *= coefficient
            if isinstance(atom, Binary) and atom.op == "mul":
                stack += [atom.b, atom.a]
            else:
                factors.append(atom)
        else:
            factors.append(node)
    return factors, scale


def _canonical(expr: Expr) -> Expr:
    factors, scale = _factors(expr)
    if not factors:
        return const(scale)
    factors.sort(key=order_key)
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return Affine({product: scale} if scale else {}).to_expr()


def _order_factors(expr: Expr, facts: Facts) -> Expr | None:
    result = _canonical(expr)
    return None if result is expr else result


RULES = (
    Rule("multiply-by-zero", x * 0, const(0), types=Types.INTEGER),
    Rule("zero-times", const(0) * x, const(0), types=Types.INTEGER),
    Rule("multiply-by-one", x * 1, x, types=Types.INTEGER),
    Rule("one-times", const(1) * x, x, types=Types.INTEGER),
    Rule("multiply-by-minus-one", x * -1, -x, types=Types.INTEGER),
    Rule("constant-factor-last", c0 * x, x * c0, types=Types.INTEGER),
    Rule("multiply-constants", (x * c0) * c1, x * (c0 * c1), types=Types.INTEGER),
    Rule("negative-times-constant", (-x) * c0, x * (-c0), types=Types.INTEGER),
    Rule("negative-times-negative", (-x) * (-y), x * y, types=Types.INTEGER),
    Rule("constant-out-of-product", (x * c0) * y, (x * y) * c0, procedure=_order_factors),
    Rule("order-factors", (z * y) * x, (x * y) * z, procedure=_order_factors),
)
