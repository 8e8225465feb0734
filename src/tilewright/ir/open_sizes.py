"""Sizes that calls pass, as integers: what builds a kernel calculates with them as with others.

An `OpenSize` is an int, of the value of an example, that stands for an expression of scalar
parameters (`expr.StandIn`). Sums, products and quotients of it stand for theirs; buffers, extents
and indices become these expressions. Comparisons are decided by what the parameters promise, or
else as they are for the example, and `OpenSizes` keeps what was `decided`: a kernel that was built
so is right for all sizes for which all of that comes out the same.

Something that takes an int apart (`range`, `float`) sees the example only. So a kernel is built
for two examples, and is right where both give the same text.

Who calculates with sizes as data (`ir.whole_numbers`) leaves open what is not proved: an
`OpenTruth` is decided when somebody asks whether it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import isqrt
from typing import Any, TypeVar

from tilewright.errors import UnsupportedError
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    StandIn,
    Unary,
    Var,
    as_expr,
    binary,
    const,
)
from tilewright.ir.intervals import Interval
from tilewright.ir.printer import to_text
from tilewright.ir.sizes import Monomial, Polynomial, Sizes, polynomial
from tilewright.ir.stmt import ScalarParam
from tilewright.ir.visit import rewrite, walk

T = TypeVar("T")
# What kernels are promised of a size that has no greatest value. Beyond it there is a program for
# the size itself.
HIGHEST = 65_535


def promising(allowed: ScalarParam) -> ScalarParam:
    """What kernels are promised of a size that may be what is ``allowed``: 2 or more, as one of 1
    broadcasts, and at most `HIGHEST`."""
    low, most = max(2, allowed.low or 0), allowed.high
    high = HIGHEST if most is None else min(most, HIGHEST)
    return ScalarParam(allowed.var, min(low, high), high, allowed.divisor)


def for_all_sizes(
    build: Callable[[int], tuple[T, OpenSizes]], text: Callable[[T], str]
) -> tuple[T, dict[Expr, bool]]:
    """What ``build`` makes of two examples of open sizes (0 and 1), and what both decided.

    Raises `UnsupportedError` where the two differ in their ``text``: numbers are made of sizes.
    """
    decided: dict[Expr, bool] = {}
    result: list[T] = []
    for example in (0, 1):
        what, sizes = build(example)
        result.append(what)
        for condition, holds in sizes.decided.items():
            if decided.setdefault(condition, holds) != holds:
                raise UnsupportedError(f"whether `{condition}` decides how it is computed")
    if text(result[0]) != text(result[1]):
        raise UnsupportedError("some of its numbers are made of sizes")
    return result[0], decided


class OpenSizes:
    """The sizes of one graph that calls pass: ``scalars`` with what they promise, ``examples`` by
    their names, and what building ``decided``: conditions, and whether they hold."""

    def __init__(self, scalars: Sequence[ScalarParam], examples: Mapping[str, int]) -> None:
        self.scalars = tuple(scalars)
        self._examples = {param.var: examples[param.name] for param in scalars}
        self._proofs = Sizes(scalars)
        self.decided: dict[Expr, bool] = {}

    @classmethod
    def of_example(cls, hints: Mapping[ScalarParam, int], example: int) -> OpenSizes:
        """With examples above what sizes are by these ``hints``, the first of two or the second
        (0 or 1): primes, all different, or else what is made of them might look like constants."""
        taken: set[int] = set()
        examples: dict[str, int] = {}
        for param, hint in hints.items():
            number = examples[param.name] = _example(param, hint, example, taken)
            taken.add(number)
        return cls(tuple(hints), examples)

    @property
    def promised(self) -> tuple[ScalarParam, ...]:
        """``scalars`` with the least values that what was ``decided`` leaves them: where all but
        four of ``n`` elements are taken, there are at least four."""
        least: dict[Expr, int | None] = {param.var: param.low for param in self.scalars}
        for condition, holds in self.decided.items():
            if not isinstance(condition, Binary) or condition.op != "lt":
                continue
            low, high = (condition.a, condition.b) if holds else (condition.b, condition.a)
            terms = dict(polynomial(high - low))
            rest = terms.pop((), 0) - holds
            for factors, times in terms.items():
                if len(terms) == len(factors) == 1 and factors[0] in least and times > 0:
                    before, bound = least[factors[0]], -(rest // times)
                    least[factors[0]] = bound if before is None else max(before, bound)
        return tuple(replace(param, low=least[param.var]) for param in self.scalars)

    def size(self, expr: Expr) -> int:
        """What stands for ``expr``: an `OpenSize`, or a plain int for one that is constant."""
        expr = plain_sum(polynomial(expr))
        if isinstance(expr, Const):
            return int(expr.value)
        return OpenSize(self, expr, int(evaluate(expr, self._examples)))

    def bounds(self, expr: Expr) -> Interval:
        """The least and the greatest value of ``expr``, as far as promises tell."""
        return self._proofs.bounds(expr)

    def less(self, a: int, b: int) -> bool | OpenTruth:
        """Whether ``a < b``: by proof, or open."""
        left, right = as_expr(a), as_expr(b)
        if self._proofs.at_least(left, right):
            return False
        if self._proofs.at_least(right, left + 1):
            return True
        return OpenTruth(self, binary("lt", left, right), int(a).__lt__(int(b)))

    def surely_less(self, a: int, b: int) -> bool:
        """Whether ``a < b`` is proved."""
        return self._proofs.at_least(as_expr(b), as_expr(a) + 1)

    def equal(self, a: int, b: int) -> bool | OpenTruth:
        """Whether ``a == b``, in the same way."""
        left, right = as_expr(a), as_expr(b)
        if left is right or self._proofs.equal(left, right):
            return True
        apart = (left, right + 1), (right, left + 1)
        if any(self._proofs.at_least(greater, less) for greater, less in apart):
            return False
        return OpenTruth(self, binary("eq", left, right), int(a).__eq__(int(b)))

    def settled(self, size: int) -> int:
        """``size`` without choices: of each, what the examples choose."""
        choice = next((e for e in walk(as_expr(size)) if isinstance(e, Select)), None)
        if choice is None:
            return size
        holds = bool(evaluate(choice.condition, self._examples))
        chosen = choice.a if OpenTruth(self, choice.condition, holds) else choice.b
        return self.settled(
            self.size(rewrite(as_expr(size), lambda e: chosen if e is choice else e))
        )


def surely_less(a: int, b: int) -> bool:
    """Whether ``a < b`` for all that calls pass: what is not proved of open sizes is not decided by
    an example, as with ``<``, but counts as unknown."""
    for size in (a, b):
        if isinstance(size, OpenSize):
            return size.sizes.surely_less(a, b)
    return a < b


def _example(param: ScalarParam, hint: int, example: int, taken: Collection[int]) -> int:
    """A prime above the hint, times what divides it; but of a size that is not to be so great, its
    greatest value or the one before."""
    (low, high), divisor = param.range, param.divisor
    first = _prime_after(max(11, hint) // divisor, taken)
    second = _prime_after(first, taken)
    if high is not None and second * divisor > high:
        return max(high - example * divisor, high if low is None else min(low, high))
    return (second if example else first) * divisor


def _prime_after(number: int, taken: Collection[int]) -> int:
    number += 1
    while number in taken or any(number % d == 0 for d in range(2, isqrt(number) + 1)):
        number += 1
    return number


def broken(decided: Mapping[Expr, bool], numbers: Mapping[Var, Any]) -> Expr | None:
    """The first of the conditions ``decided`` that comes out otherwise for ``numbers``."""
    for condition, holds in decided.items():
        if bool(evaluate(condition, numbers)) != holds:
            return condition
    return None


class OpenTruth:
    """A condition of ``sizes`` that no promise decides, and whether it ``holds`` for the examples:
    which is decided when somebody asks."""

    def __init__(self, sizes: OpenSizes, expr: Expr, holds: bool) -> None:
        self.sizes, self.expr, self.holds = sizes, expr, holds

    def __bool__(self) -> bool:
        # (A condition is decided as it is compared, whether it or its contrary is asked for.)
        expr, holds = self.expr, self.holds
        while isinstance(expr, Unary):
            expr, holds = expr.a, not holds
        self.sizes.decided[expr] = holds
        return self.holds


class OpenSize(StandIn):
    """An int of an example that stands for the expression of ``sizes`` that calls pass."""

    sizes: OpenSizes

    def __new__(cls, sizes: OpenSizes, expr: Expr, example: int) -> OpenSize:
        open_size = int.__new__(cls, example)
        open_size.sizes, open_size.expr = sizes, expr
        return open_size

    def _of(self, op: str, a: int, b: int) -> Any:
        if not isinstance(a, int) or not isinstance(b, int):
            return NotImplemented
        return self.sizes.size(binary(op, as_expr(a), as_expr(b)))

    def __add__(self, other: int) -> Any:
        return self._of("add", self, other)

    def __radd__(self, other: int) -> Any:
        return self._of("add", other, self)

    def __sub__(self, other: int) -> Any:
        return self._of("sub", self, other)

    def __rsub__(self, other: int) -> Any:
        return self._of("sub", other, self)

    def __mul__(self, other: int) -> Any:
        return self._of("mul", self, other)

    def __rmul__(self, other: int) -> Any:
        return self._of("mul", other, self)

    def __neg__(self) -> Any:
        return self._of("sub", 0, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __floordiv__(self, other: int) -> Any:
        return self._quotient(self, other)

    def __rfloordiv__(self, other: int) -> Any:
        return self._quotient(other, self)

    def __mod__(self, other: int) -> Any:
        return self._rest(self, other)

    def __rmod__(self, other: int) -> Any:
        return self._rest(other, self)

    def __divmod__(self, other: int) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> Any:
        return other // self, other % self

    def _quotient(self, a: int, b: int) -> Any:
        if not isinstance(a, int) or not isinstance(b, int):
            return NotImplemented
        whole, rest = _divided(a, b)
        quotient = plain_sum(whole)
        if rest:
            quotient = quotient + plain_sum(rest) // as_expr(b)
        return self.sizes.size(quotient)

    def _rest(self, a: int, b: int) -> Any:
        if not isinstance(a, int) or not isinstance(b, int):
            return NotImplemented
        _, rest = _divided(a, b)
        return self.sizes.size(plain_sum(rest) % as_expr(b)) if rest else 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and bool(self.sizes.equal(self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: int) -> Any:
        return bool(self.sizes.less(self, other)) if isinstance(other, int) else NotImplemented

    def __le__(self, other: int) -> Any:
        return not self.sizes.less(other, self) if isinstance(other, int) else NotImplemented

    def __gt__(self, other: int) -> Any:
        return bool(self.sizes.less(other, self)) if isinstance(other, int) else NotImplemented

    def __ge__(self, other: int) -> Any:
        return not self.sizes.less(self, other) if isinstance(other, int) else NotImplemented

    def __bool__(self) -> bool:
        return self != 0

    def __repr__(self) -> str:
        return to_text(self.expr)

    __hash__ = int.__hash__

    def __copy__(self) -> OpenSize:
        return self

    def __deepcopy__(self, memo: object) -> OpenSize:
        return self


def plain_sum(terms: Polynomial) -> Expr:
    """A sum of products as the one expression for all that are equal to it."""
    total: Expr | None = None
    for monomial in sorted(terms, key=lambda m: (-len(m), sorted(map(repr, m)))):
        part = _product(monomial, terms[monomial])
        total = part if total is None else total + part
    return const(0) if total is None else total


def _product(monomial: Monomial, coefficient: int) -> Expr:
    result: Expr | None = None
    for factor in sorted(monomial, key=repr):
        result = factor if result is None else result * factor
    if result is None:
        return const(coefficient)
    return result if coefficient == 1 else result * coefficient


def _divided(a: int, b: int) -> tuple[Polynomial, Polynomial]:
    """``a`` as multiples of ``b``, and the rest: that of a division that rounds down."""
    if b == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    terms, by = polynomial(as_expr(a)), polynomial(as_expr(b))
    if len(by) != 1:
        return ({(): 1}, {}) if terms == by else ({}, terms)
    ((factors, coefficient),) = by.items()
    whole: Polynomial = {}
    rest: Polynomial = {}
    for monomial, times in terms.items():
        left = list(monomial)
        for factor in factors:
            if factor in left:
                left.remove(factor)
        if len(left) + len(factors) != len(monomial):
            rest[monomial] = times
            continue
        # (One form of a quotient: constants in it are 0 to less than the divisor, and of what is an
        # odd multiple of half of it, there is the positive half.)
        count, over = divmod(times, coefficient)
        if monomial and over and 2 * over != coefficient:
            count, over = 0, times
        if count:
            whole[tuple(left)] = count
        if over:
            rest[monomial] = over
    return whole, rest


__all__ = [
    "OpenSize",
    "OpenSizes",
    "OpenTruth",
    "broken",
    "for_all_sizes",
    "plain_sum",
    "promising",
    "surely_less",
]
