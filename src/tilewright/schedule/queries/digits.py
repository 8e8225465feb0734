"""Numbers that several indices hold as digits: ``x // 49``, ``x // 7 % 7`` and ``x % 7`` say ``x``.

Dims that `fuse_dims` made one are reached so, and where all digits agree, the numbers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from tilewright.facts.affine import Affine, affine
from tilewright.ir.expr import Binary, Const, Expr


def digits_of(number: Expr, sizes: Sequence[int | Expr]) -> list[Expr]:
    """The digits of ``number``, the most significant first, which may be any: the others are below
    their sizes."""
    digits: list[Expr] = []
    for position, size in enumerate(sizes):
        step: int | Expr = prod(sizes[position + 1 :])
        digit = number if isinstance(step, int) and step == 1 else number // step
        digits.append(digit % size if position else digit)
    return digits


class _Digit(NamedTuple):
    """``number // divisor % modulus``; a modulus of 0 stands for none."""

    number: Affine
    divisor: int
    modulus: int


def numbers(index: Iterable[Expr]) -> list[Affine]:
    """The numbers of which ``index`` has all digits."""
    digits = [digit for digit in map(_digit, index) if digit is not None]
    affines: list[Affine] = []
    for top in digits:
        if top.modulus == 0 and _complete(top, digits):
            affines.append(top.number)
    return affines


def _digit(expr: Expr) -> _Digit | None:
    modulus = 0
    if isinstance(expr, Binary) and expr.op == "mod" and isinstance(expr.b, Const):
        modulus, expr = int(expr.b.value), expr.a
    form = affine(expr)
    divided = [a for a, c in form.terms.items() if c == 1 and _is_quotient(a)]
    if len(divided) != 1:
        return _Digit(form, 1, modulus) if modulus > 0 else None
    (quotient,) = divided
    assert isinstance(quotient, Binary) and isinstance(quotient.b, Const)
    divisor = int(quotient.b.value)
    # What was a multiple of the divisor may have been taken out of the division.
    rest = Affine({a: c for a, c in form.terms.items() if a is not quotient}, form.constant)
    return _Digit(affine(quotient.a) + rest.scaled(divisor), divisor, modulus)


def _is_quotient(expr: Expr) -> bool:
    return (
        isinstance(expr, Binary)
        and expr.op == "floordiv"
        and isinstance(expr.b, Const)
        and int(expr.b.value) >= 1
    )


def _complete(top: _Digit, digits: list[_Digit]) -> bool:
    """Whether the digits below ``top`` are there, down to the last."""
    weight = top.divisor
    while weight > 1:
        lower = next((d for d in digits if _continues(d, top.number, weight)), None)
        if lower is None:
            return False
        weight = lower.divisor
    return True


def _continues(digit: _Digit, number: Affine, weight: int) -> bool:
    """Whether ``digit`` is the one of ``number`` just below ``weight``.

    It depends on its number modulo ``weight`` alone, so another number will do that differs by a
    multiple of it (simplification leaves such).
    """
    if digit.modulus < 2 or digit.divisor * digit.modulus != weight:
        return False
    rest = digit.number - number
    return all(c % weight == 0 for c in (*rest.terms.values(), rest.constant))
