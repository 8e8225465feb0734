"""What programs calculate with whole numbers and truth values, of which some are sizes that calls
pass. What is not proved of these stays open: a choice is an expression, and what is compared an
`OpenTruth`."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import Binary, Const, StandIn, Unary, as_expr, select
from tilewright.ir.open_sizes import OpenSize, OpenSizes, OpenTruth
from tilewright.ir.sizes import polynomial

Truth = Any  # of numpy or Python, or open


def is_open(number: object) -> bool:
    """Whether it is known when a call passes sizes only."""
    return isinstance(number, StandIn | OpenTruth)


def less(a: Any, b: Any) -> Truth:
    """Whether ``a < b``, of numbers or of truth values."""
    if isinstance(a, bool | OpenTruth) or isinstance(b, bool | OpenTruth):
        return both(negated(a), b)
    sizes = _sizes_of(a, b)
    return a < b if sizes is None else sizes.less(a, b)


def equal(a: int, b: int) -> Truth:
    """Whether ``a == b``, of numbers or of truth values."""
    if isinstance(a, bool | OpenTruth) or isinstance(b, bool | OpenTruth):
        return negated(differ(a, b))
    sizes = _sizes_of(a, b)
    return a == b if sizes is None else sizes.equal(a, b)


def negated(truth: Truth) -> Truth:
    """The contrary."""
    if isinstance(truth, OpenTruth):
        return OpenTruth(truth.sizes, ~truth.expr, not truth.holds)
    return not truth


def both(a: Truth, b: Truth) -> Truth:
    """Whether the two hold."""
    if not isinstance(a, OpenTruth):
        return b if a else False
    if not isinstance(b, OpenTruth):
        return a if b else False
    return OpenTruth(a.sizes, a.expr & b.expr, a.holds and b.holds)


def either(a: Truth, b: Truth) -> Truth:
    """Whether one of them holds."""
    return negated(both(negated(a), negated(b)))


def differ(a: Truth, b: Truth) -> Truth:
    """Whether one of them holds, and only one."""
    return either(both(a, negated(b)), both(negated(a), b))


def chosen(condition: Truth, a: Any, b: Any) -> Any:
    """``a`` where it holds, else ``b``."""
    if not isinstance(condition, OpenTruth):
        return a if condition else b
    if isinstance(a, bool | OpenTruth) or isinstance(b, bool | OpenTruth):
        return either(both(condition, a), both(negated(condition), b))
    sizes, apart = condition.sizes, a - b
    if not isinstance(apart, StandIn):
        indicator = _indicator(condition) if apart else 0
        if indicator is not None:
            return b + apart * indicator
    choice = select(condition.expr, as_expr(a), as_expr(b))
    return OpenSize(sizes, choice, int(a if condition.holds else b))


def greatest(a: int, b: int) -> Any:
    """The greater of two."""
    return chosen(less(a, b), b, a)


def least(a: int, b: int) -> Any:
    """The smaller of two."""
    return chosen(less(b, a), b, a)


def sign(number: int) -> Any:
    """1, 0 or -1."""
    return chosen(less(0, number), 1, chosen(less(number, 0), -1, 0))


def quotient(a: int, b: int) -> Any:
    """Rounded to 0."""
    return chosen(differ(less(a, 0), less(b, 0)), -(-a // b), a // b)


def remainder(a: int, b: int) -> Any:
    """What `quotient` leaves: of the sign of ``a``."""
    by = greatest(b, -b)
    return chosen(less(a, 0), -(-a % by), a % by)


def wrapped(number: int, low: int, high: int) -> int:
    """``number`` as a type from ``low`` to ``high`` has it: whether it lies outside is decided."""
    outside = less(number, low) or less(high, number)
    return (number - low) % (high - low + 1) + low if outside else number


def _sizes_of(*numbers: int) -> OpenSizes | None:
    return next((number.sizes for number in numbers if isinstance(number, OpenSize)), None)


def _indicator(condition: OpenTruth) -> Any:
    """1 where it holds, else 0, as a size; None where that is none. Of ``x % c == 0`` and its
    contrary it is what rounding up adds to a quotient."""
    contrary = isinstance(condition.expr, Unary)
    expr = condition.expr.a if isinstance(condition.expr, Unary) else condition.expr
    terms = polynomial(expr.a - expr.b) if isinstance(expr, Binary) and expr.op == "eq" else {}
    atoms = [factors[0] for factors in terms if len(factors) == len(terms) == 1]
    match atoms:
        case [Binary(op="mod", a=number, b=Const(value=by))] if by > 0:
            whole = condition.sizes.size(number)
            adds = (whole + (by - 1)) // by - whole // by
            return adds if contrary else 1 - adds
    return None
