"""Functions of one and of two arguments as expressions: those that `problems` has records of."""

from __future__ import annotations

from tilewright.ir.expr import Expr
from tilewright.problems import BINARY_RECORDS, UNARY_FUNCTIONS, Unary
from tilewright.problems.activations import scaled


def apply_unary(function: Unary, s: Expr) -> Expr:
    """``scale * function(s)``, of the type of ``s`` (a float)."""
    value = UNARY_FUNCTIONS[function.function].build(s, function.alpha, function.beta)
    return scaled(value, function.scale)


def apply_binary(function: str, a: Expr, b: Expr) -> Expr:
    """``function(a, b)`` of two floats of one type; comparisons give 1 or 0."""
    return BINARY_RECORDS[function].build(a, b)
