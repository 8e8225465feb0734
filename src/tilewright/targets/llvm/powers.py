"""pow of f32 and f64 on all lanes, without branches: ``2**(y log2(x))`` with more digits than the
result has. They are those of f64 for f32, and of sums of two f64 for f64."""

from __future__ import annotations

import math

from tilewright.dtypes import f32
from tilewright.targets.llvm import polynomials as p
from tilewright.targets.llvm.arithmetic import Arithmetic
from tilewright.targets.llvm.exponentials import between_ends, rounded, scaled
from tilewright.targets.llvm.logarithms import ROOT_HALF, parts


def power(f: Arithmetic, x: str, y: str) -> str:
    """``x**y`` as C's powf and pow, of the absolute value and with a sign. Error below 0.51 ulp of
    f32, 0.7 of f64."""
    a = f.absolute(x)
    magnitude = _in_f64(f, a, y) if f.dtype is f32 else _in_two_parts(f, a, y)
    magnitude = f.select(_gives_one(f, x, a, y), 1.0, magnitude)
    # A negative x: only integers y have a result, and odd ones make it negative.
    integral = f.compare("oeq", f.rint(y), y)
    half = f.mul(y, 0.5)
    odd = f.logic("and", integral, f.compare("one", f.rint(half), half))
    sign = f.select_bits(odd, f.op("and", f.bits(x), 1 << (f.dtype.bits - 1)), 0)
    result = f.floats(f.op("or", f.bits(magnitude), sign))
    finite = f.logic("and", f.compare("olt", x, 0.0), f.compare("one", x, -math.inf))
    fractional = f.compare("one", f.rint(y), y)
    return f.select(f.logic("and", finite, fractional), math.nan, result)


def _gives_one(f: Arithmetic, x: str, a: str, y: str) -> str:
    """Where the result is 1 whatever the other operand is: x**0, 1**y, (-1)**infinity."""
    minus_one = f.logic("and", f.compare("oeq", a, 1.0), f.compare("oeq", f.absolute(y), math.inf))
    trivial = f.logic("or", f.compare("oeq", y, 0.0), f.compare("oeq", x, 1.0))
    return f.logic("or", minus_one, trivial)


def _in_f64(f: Arithmetic, a: str, y: str) -> str:
    """``a**y`` of f32 by f64, rounded once."""
    d, wide = f.widened(a)
    _, exponent = f.widened(y)
    return f.narrowed(_exp2(d, d.mul(exponent, _log2(d, wide))))


def _log2(d: Arithmetic, x: str) -> str:
    """log2 of f64 from 0 to infinity, or NaN; no subnormals. Relative error 2**-44."""
    # The exponent, plus 1023, and the fraction of x / sqrt(1/2).
    code = d.op("add", d.bits(x), d.one - ROOT_HALF[d.dtype])
    m = d.floats(d.op("add", d.op("and", code, (1 << d.shift) - 1), ROOT_HALF[d.dtype]))
    # An integer below 2**52 becomes a float by being the mantissa of 2**52.
    biased = d.floats(d.op("or", d.op("lshr", code, d.shift), 0x4330000000000000))
    e = d.sub(biased, 2.0**52 + 1023)
    s = d.div(d.sub(m, 1.0), d.add(m, 1.0))
    result = d.fma(d.polynomial(p.LOG2_F64, d.mul(s, s)), s, e)
    result = d.select(d.compare("oeq", x, 0.0), -math.inf, result)
    return d.select(d.compare("olt", x, math.inf), result, x)


def _exp2(d: Arithmetic, x: str) -> str:
    """2**x in f64, for a result that is rounded to f32. Relative error 2**-34."""
    x = d.at_least(d.at_most(x, 130.0), -160.0)
    whole, n = d.round_with_magic(d.add(x, d.magic))
    return d.mul(d.polynomial(p.EXP2_F64, d.sub(x, whole)), d.power_of_two(n))


def _in_two_parts(d: Arithmetic, a: str, y: str) -> str:
    """``a**y`` of f64: logarithm, product and exponent are sums of two numbers."""
    high, low = _exact_log2(d, a)
    # Of 0, infinity and NaN the logarithm is one number.
    edge = d.select(d.compare("oeq", a, 0.0), -math.inf, a)
    inside = d.logic("and", d.compare("ogt", a, 0.0), d.compare("olt", a, math.inf))
    product = d.mul(y, d.select(inside, high, edge))
    _, lost = d.exact_product(y, high)
    lost = d.fma(y, low, lost)
    # It says nothing, and may be NaN, where the result is 0 or infinity.
    lost = d.select(d.compare("olt", d.absolute(product), 2.0 * d.bias), lost, 0.0)
    return _exp2_of_sum(d, between_ends(d, product), lost)


def _exact_log2(d: Arithmetic, a: str) -> tuple[str, str]:
    """log2 of positive finite f64 as a sum of two numbers. Relative error 2**-64.5."""
    e, m = parts(d, a)
    # s = (m - 1) / (m + 1), and what its rounding lost.
    above, below = d.sub(m, 1.0), d.ordered_sum(1.0, m)
    inverse = d.div(1.0, below[0])
    s = d.mul(above, inverse)
    back, lost = d.exact_product(s, below[0])
    lost = d.sub(d.sub(d.sub(above, back), lost), d.mul(s, below[1]))
    s_low = d.mul(lost, inverse)
    square, square_low = d.exact_product(s, s)
    square_low = d.fma(d.add(s, s), s_low, square_low)
    rest = d.mul(square, d.pairs(p.LOG2_REST, square, d.mul(square, square)))
    series = _plus(d, p.LOG2_SECOND, (rest, 0.0))
    series = _plus(d, p.LOG2_FIRST, _times(d, (square, square_low), series))
    high, low = _times(d, (s, s_low), series)
    total, lost = d.ordered_sum(d.from_integers(e), high)
    return d.ordered_sum(total, d.add(lost, low))


def _plus(d: Arithmetic, x: tuple[float, float], y: tuple[str, str | float]) -> tuple[str, str]:
    """The sum of two sums, the first of them greater."""
    high, lost = d.ordered_sum(x[0], y[0])
    return high, d.add(lost, d.add(y[1], x[1]))


def _times(d: Arithmetic, x: tuple[str, str], y: tuple[str, str]) -> tuple[str, str]:
    """The product of two sums."""
    high, lost = d.exact_product(x[0], y[0])
    return high, d.fma(x[0], y[1], d.fma(x[1], y[0], lost))


def _exp2_of_sum(d: Arithmetic, x: str, low: str) -> str:
    """``2**(x + low)``. Error below 0.6 ulp."""
    whole, n = rounded(d, d.add(x, d.magic + 2 * d.bias), 2 * d.bias)
    x, low = d.ordered_sum(d.sub(x, whole), low)
    # e**(r + rest) is 1 + r + (e**r - 1 - r) + rest (1 + r), the small terms first.
    r, rest = _times(d, (x, low), (d.number(p.LN2_EXACT[0]), d.number(p.LN2_EXACT[1])))
    square = d.mul(r, r)
    tail = d.fma(square, d.pairs(p.EXPM1[d.dtype], r, square), d.fma(rest, r, rest))
    main, lost = d.ordered_sum(1.0, r)
    return scaled(d, d.add(lost, tail), n, main)
