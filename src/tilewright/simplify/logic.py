"""And, or, not."""

from __future__ import annotations

from tilewright.facts import Facts
from tilewright.ir.expr import Binary, Expr, binary
from tilewright.ir.visit import variables
from tilewright.simplify.rules import FALSE, TRUE, Rule, Types, p, q, x, y

# Each condition is proven under all others; with more than this many, only repetitions go.
_PROOF_LIMIT = 16


def joined(expr: Binary) -> list[Expr]:
    """The operands that the operator of ``expr`` (and, or, min, max) joins, in order."""
    result: list[Expr] = []
    stack: list[Expr] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Binary) and node.op == expr.op:
            stack += [node.b, node.a]
        else:
            result.append(node)
    return result


def join(op: str, conditions: list[Expr]) -> Expr:
    """The conditions joined from left to right; those that decide nothing are left out."""
    result: Expr | None = None
    for condition in conditions:
        if condition is (TRUE if op == "and" else FALSE):
            continue
        result = condition if result is None else binary(op, result, condition)
    if result is None:
        return TRUE if op == "and" else FALSE
    return result


def _drop_redundant(expr: Expr, facts: Facts) -> Expr | None:
    """Drops conditions of "and" that follow from the others, and of "or" that contradict their
    negations."""
    assert isinstance(expr, Binary)
    absorbing = FALSE if expr.op == "and" else TRUE
    conditions = list(dict.fromkeys(joined(expr)))
    names = {condition: variables(condition) for condition in conditions}
    if any(condition is absorbing for condition in conditions):
        return absorbing
    position = len(conditions) - 1
    # From the last to the first, so that of two equivalent ones the first stays.
    while position >= 0 and len(conditions) <= _PROOF_LIMIT:
        tested = conditions[position]
        related = facts.related(names[tested])
        scope = facts
        for condition in conditions:
            # Conditions on unrelated variables cannot help, and each costs some 20 us.
            if condition is not tested and not names[condition].isdisjoint(related):
                scope = scope.assume(condition, expr.op == "and")
        truth = scope.prove(tested)
        if truth is bool(absorbing):
            return absorbing
        if truth is not None:
            del conditions[position]
        position -= 1
    result = join(expr.op, conditions)
    return None if result is expr else result


RULES = (
    Rule("and-true", p & TRUE, p, types=Types.BOOL),
    Rule("true-and", TRUE & p, p, types=Types.BOOL),
    Rule("and-false", p & FALSE, FALSE, types=Types.BOOL),
    Rule("false-and", FALSE & p, FALSE, types=Types.BOOL),
    Rule("or-false", p | FALSE, p, types=Types.BOOL),
    Rule("false-or", FALSE | p, p, types=Types.BOOL),
    Rule("or-true", p | TRUE, TRUE, types=Types.BOOL),
    Rule("true-or", TRUE | p, TRUE, types=Types.BOOL),
    Rule("and-self", p & p, p, types=Types.BOOL),
    Rule("or-self", p | p, p, types=Types.BOOL),
    Rule("and-not-self", p & ~p, FALSE, types=Types.BOOL),
    Rule("or-not-self", p | ~p, TRUE, types=Types.BOOL),
    Rule("and-of-or", p & (p | q), p, types=Types.BOOL),
    Rule("or-of-and", p | (p & q), p, types=Types.BOOL),
    Rule("and-implied", p & q, p, ~p | q, Types.BOOL, _drop_redundant),
    Rule("or-implying", p | q, p, p | ~q, Types.BOOL, _drop_redundant),
    Rule("not-not", ~~p, p, types=Types.ANY),
    # A comparison with NaN does not hold, and neither does its opposite.
    Rule("not-less", ~(x < y), y <= x, types=Types.INTEGER),
    Rule("not-at-most", ~(x <= y), y < x, types=Types.INTEGER),
    Rule("not-equal", ~binary("eq", x, y), binary("ne", x, y), types=Types.ANY),
    Rule("not-unequal", ~binary("ne", x, y), binary("eq", x, y), types=Types.ANY),
)
