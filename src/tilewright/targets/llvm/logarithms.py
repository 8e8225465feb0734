"""log, log1p and pow of f32 on all lanes, without branches.

An argument becomes ``m 2**e`` with ``m`` from sqrt(1/2) to sqrt(2), by integer arithmetic on its
bits. The errors in ulp hold with or without FMA.
"""

from __future__ import annotations

import math

from tilewright.targets.llvm import polynomials as p
from tilewright.targets.llvm.arithmetic import Arithmetic

_ROOT_HALF_F32 = 0x3F3504F3  # the bits of sqrt(1/2)
_ROOT_HALF_F64 = 0x3FE6A09E667F3BCD


def log(f: Arithmetic, x: str) -> str:
    """Error below 1 ulp."""
    subnormal = f.compare("olt", x, 2.0**-126)
    code = f.bits(f.select(subnormal, f.mul(x, 2.0**23), x))
    e, m = _split(f, code)
    e = f.op("sub", e, f.select_bits(subnormal, 23, 0))
    result = _log_of_parts(f, e, f.sub(m, 1.0))
    return _at_the_edges(f, result, x, x)


def log1p(f: Arithmetic, x: str) -> str:
    """The part of ``x`` that is lost in ``1 + x`` joins the mantissa. Error below 1.5 ulp."""
    u = f.add(x, 1.0)
    # Knuth's sum: lost = (1 + x) - u exactly, whichever is greater.
    back = f.sub(u, x)
    lost = f.add(f.sub(1.0, back), f.sub(x, f.sub(u, back)))
    e, m = _split(f, f.bits(u))
    # 2**-e; from e = 127 on, when nothing of the 1 is left in u, it is 0.
    inverse = f.op("sub", f.one, f.op("shl", e, f.shift))
    inverse = f.floats(f.select_bits(f.compare_bits("slt", e, 128), inverse, 0))
    result = _log_of_parts(f, e, f.fma(lost, inverse, f.sub(m, 1.0)))
    # log1p(-0) is -0.
    result = f.select(f.compare("oeq", x, 0.0), x, result)
    return _at_the_edges(f, result, u, x)


def _split(f: Arithmetic, code: str) -> tuple[str, str]:
    """``e`` (integers) and ``m`` of the positive normal numbers with these bits."""
    e = f.op("ashr", f.op("sub", code, _ROOT_HALF_F32), f.shift)
    return e, f.floats(f.op("sub", code, f.op("shl", e, f.shift)))


def _log_of_parts(f: Arithmetic, e: str, r: str) -> str:
    """``e log(2) + log(1 + r)``, the small terms first."""
    exponent = f.from_integers(e)
    square = f.mul(r, r)
    tail = f.mul(f.mul(square, r), f.polynomial(p.LOG, r))
    tail = f.fma(exponent, p.LN2_LOW, tail)
    tail = f.fma(square, -0.5, tail)
    return f.fma(exponent, p.LN2_HIGH, f.add(r, tail))


def _at_the_edges(f: Arithmetic, result: str, u: str, x: str) -> str:
    """log(u): -infinity at 0 and NaN below; infinity and NaN stay as they are in ``x``."""
    edge = f.select(f.compare("olt", u, 0.0), math.nan, x)
    edge = f.select(f.compare("oeq", u, 0.0), -math.inf, edge)
    inside = f.logic("and", f.compare("ogt", u, 0.0), f.compare("olt", u, math.inf))
    return f.select(inside, result, edge)


def power(f: Arithmetic, x: str, y: str) -> str:
    """``x**y`` as C's powf: ``2**(y log2(abs(x)))`` in f64, rounded to f32 once, and a sign.

    Error below 0.51 ulp.
    """
    a = f.absolute(x)
    d, wide = f.widened(a)
    _, exponent = f.widened(y)
    product = d.mul(exponent, _log2(d, wide))
    magnitude = f.narrowed(_exp2(d, product))
    magnitude = f.select(_gives_one(f, x, a, y), 1.0, magnitude)
    # A negative x: only integers y have a result, and odd ones make it negative.
    integral = f.compare("oeq", f.rint(y), y)
    half = f.mul(y, 0.5)
    odd = f.logic("and", integral, f.compare("one", f.rint(half), half))
    sign = f.select_bits(odd, f.op("and", f.bits(x), 1 << 31), 0)
    result = f.floats(f.op("or", f.bits(magnitude), sign))
    finite = f.logic("and", f.compare("olt", x, 0.0), f.compare("one", x, -math.inf))
    fractional = f.compare("one", f.rint(y), y)
    return f.select(f.logic("and", finite, fractional), math.nan, result)


def _gives_one(f: Arithmetic, x: str, a: str, y: str) -> str:
    """Where the result is 1 whatever the other operand is: x**0, 1**y, (-1)**infinity."""
    minus_one = f.logic("and", f.compare("oeq", a, 1.0), f.compare("oeq", f.absolute(y), math.inf))
    trivial = f.logic("or", f.compare("oeq", y, 0.0), f.compare("oeq", x, 1.0))
    return f.logic("or", minus_one, trivial)


def _log2(d: Arithmetic, x: str) -> str:
    """log2 of f64 from 0 to infinity, or NaN; no subnormals. Relative error 2**-44."""
    # The exponent, plus 1023, and the fraction of x / sqrt(1/2).
    code = d.op("add", d.bits(x), d.one - _ROOT_HALF_F64)
    m = d.floats(d.op("add", d.op("and", code, (1 << d.shift) - 1), _ROOT_HALF_F64))
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
