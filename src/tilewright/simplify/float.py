"""Floats: only what gives the same value for every operand, infinities, NaN and zeros included.

So ``x * 0``, ``x - x`` and regrouping stay as they are.
"""

from __future__ import annotations

from math import frexp, isfinite

from tilewright.ir.expr import binary, const, unary
from tilewright.simplify.rules import Bindings, Predicate, Rule, Types, f, g, k0

_ONE = const(1.0)


def _has_exact_reciprocal(bindings: Bindings) -> bool:
    """A power of two whose reciprocal is one, too, without leaving the normal numbers."""
    constant = bindings[k0]
    value = constant.value  # type: ignore[attr-defined]
    if not isfinite(value) or value == 0.0 or abs(frexp(value)[0]) != 0.5:
        return False
    inverse = const(1.0 / value, constant.type).value
    return bool(isfinite(inverse) and inverse * value == 1.0)


def _rule(name: str, pattern: object, replacement: object) -> Rule:
    return Rule(name, pattern, replacement, types=Types.FLOAT)  # type: ignore[arg-type]


def _idempotent(op: str) -> Rule:
    return _rule(f"{op}-twice", unary(op, unary(op, f)), unary(op, f))


RULES = (
    _rule("float-times-one", f * _ONE, f),
    _rule("one-times-float", _ONE * f, f),
    _rule("float-times-minus-one", f * -1.0, -f),
    _rule("minus-one-times-float", const(-1.0) * f, -f),
    _rule("float-plus-minus-zero", f + const(-0.0), f),
    _rule("minus-zero-plus-float", const(-0.0) + f, f),
    _rule("float-minus-zero", f - const(0.0), f),
    _rule("minus-zero-minus-float", const(-0.0) - f, -f),
    _rule("float-divided-by-one", f / 1.0, f),
    _rule("float-divided-by-minus-one", f / -1.0, -f),
    _rule("float-negated-twice", unary("neg", -f), f),
    _rule("float-plus-negative", f + -g, f - g),
    _rule("negative-plus-float", -f + g, g - f),
    _rule("float-minus-negative", f - -g, f + g),
    _rule("negative-times-negative-float", (-f) * (-g), f * g),
    _rule("negative-divided-by-negative", (-f) / (-g), f / g),
    _rule("negative-float-times-constant", (-f) * k0, f * -k0),
    _rule("abs-of-negative", unary("abs", -f), unary("abs", f)),
    _rule("power-of-one", binary("pow", f, _ONE), f),
    _idempotent("abs"),
    _idempotent("floor"),
    _idempotent("ceil"),
    _idempotent("round"),
    Rule(
        "divide-by-power-of-two",
        f / k0,
        f * (_ONE / k0),
        Predicate("k0 is a power of two with an exact reciprocal", _has_exact_reciprocal),
        Types.FLOAT,
    ),
)
