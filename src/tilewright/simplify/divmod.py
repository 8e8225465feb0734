"""Floor division and modulo. Both give 0 where the divisor is 0."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tilewright.dtypes import s64
from tilewright.facts import Affine, Facts, affine
from tilewright.facts.affine import is_wide
from tilewright.ir.expr import Binary, Const, Expr, binary, const
from tilewright.simplify.rules import Rule, Types, c0, c1, c2, x, y, z


def _division(expr: Expr) -> tuple[Affine, int]:
    """The dividend and the divisor of a division by a constant; divisor 0 for any other."""
    assert isinstance(expr, Binary)
    if isinstance(expr.b, Const):
        return affine(expr.a), expr.b.value
    return affine(expr.a), 0


def single_block(form: Affine, divisor: int, facts: Facts) -> int | None:
    """The quotient, where it is the same for all values of the dividend; else None."""
    lo, hi = facts.affine_bounds(form)
    if lo is None or hi is None or lo > hi or lo // divisor != hi // divisor:
        return None
    return lo // divisor


def _constant_quotient(expr: Expr, facts: Facts) -> Expr | None:
    form, divisor = _division(expr)
    quotient = single_block(form, divisor, facts) if divisor > 0 else None
    return None if quotient is None else const(quotient)


def _within_one_period(expr: Expr, facts: Facts) -> Expr | None:
    form, divisor = _division(expr)
    quotient = single_block(form, divisor, facts) if divisor > 0 else None
    return None if quotient is None else form.shifted(-quotient * divisor).to_expr()


def split_multiples(form: Affine, step: int) -> tuple[Affine, Affine]:
    """``form`` as (multiples of ``step``, rest), the rest with its constant in [0, step)."""
    multiples: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for atom, coefficient in form.terms.items():
        (rest if coefficient % step else multiples)[atom] = coefficient
    low = form.constant % step
    return Affine(multiples, form.constant - low), Affine(rest, low)


def _divide_multiples(expr: Expr, facts: Facts) -> Expr | None:
    form, divisor = _division(expr)
    if divisor <= 0:
        return None
    multiples, rest = split_multiples(form, divisor)
    if not multiples.terms and not multiples.constant:
        return None
    return (multiples.divided(divisor) + affine(rest.to_expr() // divisor)).to_expr()


def _drop_multiples(expr: Expr, facts: Facts) -> Expr | None:
    form, divisor = _division(expr)
    if divisor <= 0:
        return None
    _, rest = split_multiples(form, divisor)
    # Coefficients keep their sign: -x % 16 is no simpler as x * 15 % 16.
    terms = {atom: (abs(c) % divisor) * (1 if c > 0 else -1) for atom, c in rest.terms.items()}
    reduced = Affine(terms, rest.constant)
    if reduced == form:
        return None
    return reduced.to_expr() % divisor


def _blocks(form: Affine, divisor: int, facts: Facts) -> Iterator[tuple[Affine, Affine, int]]:
    """Splits of the dividend into ``multiples + rest`` where the rest stays within one ``step``.

    The step divides the divisor. Gives (multiples / step, rest moved to [0, step), step).
    """
    steps = {gcd(divisor, coefficient) for coefficient in form.terms.values()} - {1, divisor}
    for step in sorted(steps, reverse=True):
        multiples, rest = split_multiples(form, step)
        quotient = single_block(rest, step, facts)
        if quotient is not None and multiples.terms:
            yield multiples.divided(step).shifted(quotient), rest.shifted(-quotient * step), step


def _divide_blocks(expr: Expr, facts: Facts) -> Expr | None:
    form, divisor = _division(expr)
    for multiples, _, step in _blocks(form, divisor, facts) if divisor > 1 else ():
        return multiples.to_expr() // (divisor // step)
    return None


def _modulo_blocks(expr: Expr, facts: Facts) -> Expr | None:
    form, divisor = _division(expr)
    for multiples, rest, step in _blocks(form, divisor, facts) if divisor > 1 else ():
        high = affine(multiples.to_expr() % (divisor // step))
        return (high.scaled(step) + rest).to_expr()
    return None


def lone_quotient(form: Affine) -> tuple[Expr, int] | None:
    """The dividend and the positive divisor where ``form`` is one quotient, and a constant."""
    if len(form.terms) != 1:
        return None
    ((atom, coefficient),) = form.terms.items()
    if coefficient != 1 or not (isinstance(atom, Binary) and atom.op == "floordiv"):
        return None
    if not isinstance(atom.b, Const) or atom.b.value <= 0:
        return None
    return atom.a, atom.b.value


def _nested_quotient(expr: Expr, facts: Facts) -> Expr | None:
    form, divisor = _division(expr)
    quotient = lone_quotient(form)
    if divisor <= 0 or quotient is None:
        return None
    dividend, inner = quotient
    number = affine(dividend).shifted(form.constant * inner)
    return number.to_expr() // (inner * divisor) if _fits(number, facts) else None


def _nested_remainder(expr: Expr, facts: Facts) -> Expr | None:
    form, divisor = _division(expr)
    for atom, coefficient in form.terms.items() if divisor > 0 else ():
        if not (isinstance(atom, Binary) and atom.op == "mod" and isinstance(atom.b, Const)):
            continue
        if atom.b.value > 0 and coefficient * atom.b.value % divisor == 0:
            rest = form + Affine({atom: -coefficient})
            whole = rest.plus(affine(atom.a), coefficient)
            # What wraps around at 2^64 has the same remainder by a power of two.
            if divisor & (divisor - 1) == 0 or _fits(whole, facts):
                return whole.to_expr() % divisor
    return None


def _fits(form: Affine, facts: Facts) -> bool:
    """Whether a sum fits in s64: it is sure to, or has only terms that count as small."""
    if not any(is_wide(atom, facts.wide) for atom in form.terms):
        return True
    low, high = facts.affine_bounds(form)
    return low is not None and high is not None and s64.lowest <= low <= high <= s64.highest


def _quotient_of_remainder(expr: Expr, facts: Facts) -> Expr | None:
    form, divisor = _division(expr)
    if divisor <= 0 or len(form.terms) != 1 or form.constant != 0:
        return None
    ((atom, coefficient),) = form.terms.items()
    if coefficient != 1 or not (isinstance(atom, Binary) and atom.op == "mod"):
        return None
    if not isinstance(atom.b, Const) or atom.b.value <= 0 or atom.b.value % divisor != 0:
        return None
    count: int = atom.b.value // divisor
    return (atom.a // divisor) % count


def _negated(expr: Expr, facts: Facts) -> Expr | None:
    """A quotient or remainder by a negative number, as one by a positive number."""
    assert isinstance(expr, Binary)
    if not isinstance(expr.b, Const) or not s64.lowest < expr.b.value < 0:
        return None
    low, _ = facts.bounds(expr.a)
    if low is None or low <= s64.lowest:
        return None
    result = binary(expr.op, -expr.a, -expr.b)
    return result if expr.op == "floordiv" else -result


_POSITIVE = const(0) < c0
_BOTH_POSITIVE = (const(0) < c0) & (const(0) < c1)
_IN_BLOCK = (const(0) <= y) & (y < c0)
# The least s64 is its own negative: as a divisor it would be negated for ever, and divided by -3 it
# would get the wrong sign.
_NEGATIVE = (const(s64.lowest) < c0) & (c0 < 0) & (const(s64.lowest) < x)

RULES = (
    Rule("divide-zero", const(0) // x, const(0), types=Types.INTEGER),
    Rule("divide-by-zero", x // 0, const(0), types=Types.INTEGER),
    Rule("divide-by-one", x // 1, x, types=Types.INTEGER),
    Rule("zero-modulo", const(0) % x, const(0), types=Types.INTEGER),
    Rule("modulo-zero", x % 0, const(0), types=Types.INTEGER),
    Rule("modulo-one", x % 1, const(0), types=Types.INTEGER),
    Rule("modulo-self", x % x, const(0), types=Types.INTEGER),
    Rule("divide-self", x // x, const(1), x != 0, types=Types.INTEGER),
    Rule("negative-divisor", x // c0, (-x) // (-c0), _NEGATIVE, procedure=_negated),
    Rule("negative-modulus", x % c0, -((-x) % (-c0)), _NEGATIVE, procedure=_negated),
    Rule(
        "constant-quotient",
        x // c0,
        c1,
        _POSITIVE & (c1 * c0 <= x) & (x < c1 * c0 + c0),
        procedure=_constant_quotient,
    ),
    Rule(
        "modulo-within-period",
        x % c0,
        x - c1 * c0,
        _POSITIVE & (c1 * c0 <= x) & (x < c1 * c0 + c0),
        procedure=_within_one_period,
    ),
    Rule(
        "divide-multiples",
        (x * (c0 * c1) + y) // c0,
        x * c1 + y // c0,
        _POSITIVE,
        procedure=_divide_multiples,
    ),
    Rule(
        "modulo-multiples",
        (x * (c0 * c1) + y) % c0,
        y % c0,
        _POSITIVE,
        procedure=_drop_multiples,
    ),
    Rule(
        "nested-quotient",
        (x // c0 + c2) // c1,
        (x + c2 * c0) // (c0 * c1),
        _BOTH_POSITIVE,
        procedure=_nested_quotient,
    ),
    Rule(
        "nested-remainder",
        ((x % (c0 * c1)) * c2 + y) % (c1 * c2),
        (x * c2 + y) % (c1 * c2),
        _BOTH_POSITIVE & (const(0) < c2),
        procedure=_nested_remainder,
    ),
    Rule(
        "quotient-of-remainder",
        (x % (c0 * c1)) // c0,
        (x // c0) % c1,
        _BOTH_POSITIVE,
        procedure=_quotient_of_remainder,
    ),
    Rule(
        "divide-blocks",
        (x * c0 + y) // (c0 * c1),
        x // c1,
        _BOTH_POSITIVE & _IN_BLOCK,
        procedure=_divide_blocks,
    ),
    Rule(
        "modulo-blocks",
        (x * c0 + y) % (c0 * c1),
        (x % c1) * c0 + y,
        _BOTH_POSITIVE & _IN_BLOCK,
        procedure=_modulo_blocks,
    ),
    Rule("divide-product", (x * y) // y, x, y != 0),
    Rule("divide-product-by-first", (x * y) // x, y, x != 0),
    Rule("modulo-of-product", (x * y) % y, const(0)),
    Rule("modulo-of-product-by-first", (x * y) % x, const(0)),
    Rule("divide-sum-with-product", (x * y + z) // y, x + z // y, y != 0),
    Rule("divide-sum-with-product-by-first", (x * y + z) // x, y + z // x, x != 0),
    Rule("modulo-sum-with-product", (x * y + z) % y, z % y),
    Rule("modulo-sum-with-product-by-first", (x * y + z) % x, z % x),
    Rule("small-quotient", x // y, const(0), (const(0) <= x) & (x < y)),
    Rule("small-modulo", x % y, x, (const(0) <= x) & (x < y)),
    Rule("quotient-of-own-remainder", (x % y) // y, const(0), types=Types.INTEGER),
    Rule("modulo-of-own-remainder", (x % y) % y, x % y, types=Types.INTEGER),
)
