"""When a term of a reduction does not count."""

from __future__ import annotations

from tilewright.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from tilewright.ir.stmt import Compute


def vanishes(compute: Compute, operand: Var) -> bool:
    """Whether a zero of ``operand`` makes the term neutral: a factor of a term of a sum.

    As everywhere with padding, the product of such a zero with an infinity or NaN is left out.
    """
    return compute.combiner == "add" and _is_factor(compute.body, operand)


def _is_factor(body: Expr, operand: Var) -> bool:
    match body:
        case Var():
            return body is operand
        case Cast() | Unary(op="neg") | Unary(op="abs"):
            return _is_factor(body.a, operand)
        case Binary(op="mul"):
            return _is_factor(body.a, operand) or _is_factor(body.b, operand)
        case Binary(op="add") | Binary(op="sub"):
            return _is_factor(body.a, operand) and _is_factor(body.b, operand)
        case Binary(op="div"):
            return _is_factor(body.a, operand)
        case _:
            return False


def is_identity(value: Expr, combiner: str | None) -> bool:
    """Whether combining with ``value`` changes nothing."""
    if not isinstance(value, Const):
        return False
    match combiner:
        case "add":
            return bool(value.value == 0)
        case "mul":
            return bool(value.value == 1)
        case "max":
            return bool(value.value == value.type.lowest)
        case "min":
            return bool(value.value == value.type.highest)
        case _:
            return False
