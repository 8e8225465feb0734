"""Proofs about sizes: expressions of scalar parameters, which promise bounds and divisors.

`Sizes` proves that one size is at least another: the difference is a polynomial, and with each
variable counted from one of its bounds (``n = 1 + n'``) no coefficient is negative. All choices of
lower and upper bounds are tried. What is not proved counts as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import gcd, lcm

from tilewright.dtypes import s64
from tilewright.ir import intervals
from tilewright.ir.buffer import Size
from tilewright.ir.expr import Binary, Cast, Const, Expr, Unary, Var, as_expr, binary
from tilewright.ir.intervals import Interval
from tilewright.ir.stmt import ScalarParam

# Coefficients by monomial, which is its factors in order.
Monomial = tuple[Expr, ...]
Polynomial = dict[Monomial, int]

# Nothing is proved beyond so many terms, or so many variables with two bounds to choose from.
_TERMS = 64
_CHOICES = 6
_LARGEST = 1 << 16


class _TooLong(Exception):  # noqa: N818 - a signal to give up, not an error
    """A polynomial of too many terms."""


class Sizes:
    """Bounds of scalar parameters, and what follows for expressions of them."""

    def __init__(self, scalars: Iterable[ScalarParam]) -> None:
        self._ranges: dict[Var, Interval] = {}
        self._divisors: dict[Var, int] = {}
        for param in scalars:
            self._ranges[param.var] = param.range
            self._divisors[param.var] = param.divisor

    def not_empty(self, sizes: Iterable[Size]) -> Sizes:
        """The same under the assumption that each of ``sizes`` is 1 or more."""
        result = Sizes(())
        result._ranges, result._divisors = dict(self._ranges), self._divisors
        for size in sizes:
            for factor, least in self._factors(size, 1):
                divisor = self._divisors.get(factor, 1)
                low, high = result._ranges.get(factor, (None, None))
                least = -(-least // divisor) * divisor
                result._ranges[factor] = (least if low is None else max(low, least), high)
        return result

    def _factors(self, size: Size, least: int) -> Iterable[tuple[Var, int]]:
        """The parameters with what each is at least where ``size`` is ``least`` or more: the only
        one of a sum or a quotient, and all factors of naturals that are 1 or more."""
        try:
            terms = polynomial(size)
        except (_TooLong, RecursionError):
            return
        plus = terms.pop((), 0)
        ((monomial, times),) = terms.items() if len(terms) == 1 else [((), 0)]
        if times <= 0:
            return
        if len(monomial) > 1:
            lows = [self._range(atom)[0] for atom in monomial]
            if plus or least != 1 or any(low is None or low < 0 for low in lows):
                return
        for atom in monomial:
            bound = -((plus - least) // times)
            match atom:
                case Var():
                    yield atom, bound
                case Binary(op="floordiv", a=whole, b=Const(value=by)) if by > 0:
                    yield from self._factors(whole, bound * int(by))

    # Queries.

    def at_least(self, a: Size, b: Size) -> bool:
        """Whether ``a >= b`` for all arguments; False where that is not proved."""
        if isinstance(a, int) and isinstance(b, int):
            return a >= b
        if a is b:
            return True
        try:
            return self._is_natural(_sum(polynomial(a), polynomial(b), -1))
        except (_TooLong, RecursionError):
            return False

    def equal(self, a: Size, b: Size) -> bool:
        """Whether ``a == b`` for all arguments; False where that is not proved."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        if a is b:
            return True
        try:
            terms = self._with_dividends(_sum(polynomial(a), polynomial(b), -1))
            return not terms or self._interval(terms) == (0, 0)
        except (_TooLong, RecursionError):
            return False

    def divisor(self, size: Size) -> int:
        """A number that divides ``size`` for all arguments; 0 for the size 0."""
        if isinstance(size, int):
            return abs(size)
        try:
            terms = self._with_dividends(polynomial(size))
        except (_TooLong, RecursionError):
            return 1
        result = 0
        for monomial, coefficient in terms.items():
            for atom in monomial:
                coefficient *= self._divisors.get(atom, 1) if isinstance(atom, Var) else 1
            result = gcd(result, coefficient)
        return result

    def bounds(self, size: Size) -> Interval:
        """The least and the greatest value of ``size``, term by term; None where unknown."""
        try:
            return self._interval(polynomial(size))
        except (_TooLong, RecursionError):
            return (None, None)

    # Proofs.

    def _interval(self, terms: Polynomial) -> Interval:
        total: Interval = (0, 0)
        for monomial, coefficient in terms.items():
            value: Interval = (coefficient, coefficient)
            for atom in monomial:
                value = intervals.multiply(value, self._range(atom))
            total = intervals.add(total, value)
        return total

    def _is_natural(self, terms: Polynomial) -> bool:
        """Whether no value of the polynomial is negative."""
        if self._no_term_is_negative(terms):
            return True
        # (As often as makes multiples of all quotients' divisors.)
        times = _divisors(terms)
        for scaled in (terms, {m: n * times for m, n in terms.items()}) if times > 1 else (terms,):
            apart = self._with_dividends(scaled)
            if apart != scaled and self._no_term_is_negative(apart):
                return True
        return False

    def _no_term_is_negative(self, terms: Polynomial) -> bool:
        """Whether that shows with each atom counted from one of its bounds."""
        least = self._interval(terms)[0]
        if least is not None and least >= 0:
            return True
        atoms = sorted({atom for monomial in terms for atom in monomial}, key=repr)
        ranges = [self._range(atom) for atom in atoms]
        choices = [[end for end in (0, 1) if bounds[end] is not None] for bounds in ranges]
        if not all(choices):
            return False
        if sum(len(ends) > 1 for ends in choices) > _CHOICES:
            choices = [ends[:1] for ends in choices]
        for ends in product(*choices):
            shifted = terms
            for atom, bounds, end in zip(atoms, ranges, ends, strict=True):
                bound = bounds[end]
                assert bound is not None
                shifted = _shifted(shifted, atom, bound, 1 if end == 0 else -1)
            if all(coefficient >= 0 for coefficient in shifted.values()):
                return True
        return False

    def _with_dividends(self, terms: Polynomial) -> Polynomial:
        """Multiples of ``x // c * c`` as ``x - x % c``: bounded by what x is bounded by."""
        result: Polynomial = {}
        changed = False
        for monomial, coefficient in terms.items():
            place = _quotient_at(monomial, coefficient)
            if place is None:
                _add(result, monomial, coefficient)
                continue
            changed = True
            quotient = monomial[place]
            assert isinstance(quotient, Binary) and isinstance(quotient.b, Const)
            rest = monomial[:place] + monomial[place + 1 :]
            times = coefficient // int(quotient.b.value)
            whole = polynomial(quotient.a)
            if self.divisor(quotient.a) % int(quotient.b.value):
                whole = _sum(whole, {(binary("mod", quotient.a, quotient.b),): 1}, -1)
            for inner, factor in whole.items():
                _add(result, _sorted((*rest, *inner)), times * factor)
        return self._with_dividends(result) if changed else result

    def _range(self, atom: Expr) -> Interval:
        """The bounds of an atom: an expression that is no sum or product."""
        promised = self._ranges.get(atom) if isinstance(atom, Var) else None
        if promised is not None:
            return promised
        match atom:
            case Binary(op="floordiv" | "mod" | "min" | "max"):
                return intervals.BINARY[atom.op](self.bounds(atom.a), self.bounds(atom.b))
            case Cast() if atom.a.type.is_integer and atom.a.type is not s64:
                type_range = (int(atom.a.type.lowest), int(atom.a.type.highest))
                return intervals.intersection(type_range, self._range(atom.a))
            case _:
                return intervals.EVERYTHING


def polynomial(size: Size) -> Polynomial:
    """``size`` as a sum of products."""
    expr = as_expr(size)
    if isinstance(expr, Const):
        return {(): int(expr.value)} if expr.value else {}
    if isinstance(expr, Binary) and expr.type is s64:
        if expr.op == "add":
            return _sum(polynomial(expr.a), polynomial(expr.b), 1)
        if expr.op == "sub":
            return _sum(polynomial(expr.a), polynomial(expr.b), -1)
        if expr.op == "mul":
            return _product(polynomial(expr.a), polynomial(expr.b))
    if isinstance(expr, Unary) and expr.op == "neg" and expr.type is s64:
        return _sum({}, polynomial(expr.a), -1)
    return {(expr,): 1}


def _sorted(atoms: Iterable[Expr]) -> Monomial:
    return tuple(sorted(atoms, key=id))


def _add(terms: Polynomial, monomial: Monomial, coefficient: int) -> None:
    total = terms.get(monomial, 0) + coefficient
    if total:
        terms[monomial] = total
    else:
        terms.pop(monomial, None)
    if len(terms) > _TERMS:
        raise _TooLong


def _sum(a: Polynomial, b: Polynomial, factor: int) -> Polynomial:
    result = dict(a)
    for monomial, coefficient in b.items():
        _add(result, monomial, factor * coefficient)
    return result


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for one, coefficient in a.items():
        for other, factor in b.items():
            _add(result, _sorted((*one, *other)), coefficient * factor)
    return result


def _shifted(terms: Polynomial, atom: Expr, bound: int, sign: int) -> Polynomial:
    """``terms`` with ``atom`` replaced by ``bound + sign * atom``."""
    result: Polynomial = {}
    for monomial, coefficient in terms.items():
        power = sum(factor is atom for factor in monomial)
        part: Polynomial = {tuple(factor for factor in monomial if factor is not atom): coefficient}
        for _ in range(power):
            counted: Polynomial = {(): bound} if bound else {}
            counted[(atom,)] = sign
            part = _product(part, counted)
        result = _sum(result, part, 1)
    return result


def _divisors(terms: Polynomial) -> int:
    """A number by which quotients have to be multiplied to be multiples of what they are divided
    by; 1 beyond some size."""
    numbers = [
        int(atom.b.value)
        for monomial in terms
        for atom in monomial
        if isinstance(atom, Binary) and atom.op == "floordiv" and isinstance(atom.b, Const)
    ]
    result = lcm(*numbers)
    return result if 0 < result <= _LARGEST else 1


def _quotient_at(monomial: Monomial, coefficient: int) -> int | None:
    """The position in ``monomial`` of an ``x // c`` whose ``c`` divides ``coefficient``."""
    for position, atom in enumerate(monomial):
        if isinstance(atom, Binary) and atom.op == "floordiv" and isinstance(atom.b, Const):
            by = int(atom.b.value)
            if by > 0 and coefficient % by == 0:
                return position
    return None
