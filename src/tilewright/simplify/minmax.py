"""Minimum and maximum. For floats, a NaN and the sign of zero keep most rules away."""

from __future__ import annotations

from tilewright.facts import Affine, Facts, affine, order_key
from tilewright.ir.expr import Binary, Const, Expr, maximum, minimum
from tilewright.simplify.rules import Rule, Types, c0, c1, x, y, z


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
    operands: list[Expr] = []
    stack = [expr.b, expr.a]
    while stack:
        node = stack.pop()
        if isinstance(node, Binary) and node.op == expr.op:
            stack += [node.b, node.a]
        else:
            operands.append(node)
    operands = sorted(dict.fromkeys(operands), key=lambda e: (isinstance(e, Const), order_key(e)))
    result = operands[0]
    for operand in operands[1:]:
        result = _build(expr.op, result, operand)
    return None if result is expr else result


RULES = (
    Rule("min-self", minimum(x, x), x, types=Types.NUMBER),
    Rule("max-self", maximum(x, x), x, types=Types.NUMBER),
    Rule("min-known", minimum(x, y), x, x <= y, Types.INTEGER, _decided_order),
    Rule("max-known", maximum(x, y), y, x <= y, Types.INTEGER, _decided_order),
    Rule(
        "min-constants",
        minimum(minimum(x, c0), c1),
        minimum(x, minimum(c0, c1)),
        types=Types.INTEGER,
    ),
    Rule(
        "max-constants",
        maximum(maximum(x, c0), c1),
        maximum(x, maximum(c0, c1)),
        types=Types.INTEGER,
    ),
    Rule(
        "min-order",
        minimum(minimum(z, y), x),
        minimum(minimum(x, y), z),
        None,
        Types.INTEGER,
        _in_order,
    ),
    Rule(
        "max-order",
        maximum(maximum(z, y), x),
        maximum(maximum(x, y), z),
        None,
        Types.INTEGER,
        _in_order,
    ),
    Rule("min-repeated", minimum(minimum(x, y), y), minimum(x, y), types=Types.NUMBER),
    Rule("max-repeated", maximum(maximum(x, y), y), maximum(x, y), types=Types.NUMBER),
    Rule("min-of-max", minimum(x, maximum(x, y)), x, types=Types.INTEGER),
    Rule("min-of-max-second", minimum(x, maximum(y, x)), x, types=Types.INTEGER),
    Rule("max-of-min", maximum(x, minimum(x, y)), x, types=Types.INTEGER),
    Rule("max-of-min-second", maximum(x, minimum(y, x)), x, types=Types.INTEGER),
    Rule("max-and-min", minimum(maximum(x, y), x), x, types=Types.INTEGER),
    Rule("max-second-and-min", minimum(maximum(y, x), x), x, types=Types.INTEGER),
    Rule("min-and-max", maximum(minimum(x, y), x), x, types=Types.INTEGER),
    Rule("min-second-and-max", maximum(minimum(y, x), x), x, types=Types.INTEGER),
    Rule("min-common-part", minimum(x + z, y + z), minimum(x, y) + z, procedure=_common_part),
    Rule("max-common-part", maximum(x + z, y + z), maximum(x, y) + z, procedure=_common_part),
)
