"""exp, exp2, tanh and erf of f32 on all lanes, without branches.

``x`` becomes ``n log(2) + r``; a polynomial gives the exponential of ``r``, and the exponent's bits
multiply by ``2**n`` (Cody and Waite, "Software Manual for the Elementary Functions", 1980). The
errors in ulp are for results of any size, subnormal ones included, with or without FMA.
"""

from __future__ import annotations

import math

from tilewright.targets.llvm import polynomials as p
from tilewright.targets.llvm.arithmetic import Arithmetic


def exp(f: Arithmetic, x: str) -> str:
    """Error below 1.1 ulp."""
    # Beyond these the result is 0 and infinity anyway.
    x = f.at_least(f.at_most(x, 89.0), -104.0)
    n, r = _reduce(f, x)
    power = f.add(f.fma(f.mul(r, r), f.polynomial(p.EXP, r), r), 1.0)
    return _scale(f, power, n)


def exp2(f: Arithmetic, x: str) -> str:
    """Error below 1.1 ulp."""
    x = f.at_least(f.at_most(x, 129.0), -151.0)
    whole, n = f.round_with_magic(f.add(x, f.magic))
    r = f.sub(x, whole)
    return _scale(f, f.fma(f.polynomial(p.EXP2, r), r, 1.0), n)


def tanh(f: Arithmetic, x: str) -> str:
    """``t / (t + 2)`` where ``t = exp(2 abs(x)) - 1``. Error below 2.6 ulp."""
    a = f.absolute(x)
    # From 10 on the result is 1.
    n, r = _reduce(f, f.at_most(f.add(a, a), 20.0))
    less_one = f.fma(f.mul(r, r), f.polynomial(p.EXPM1, r), r)
    scale = f.power_of_two(n)
    t = f.fma(less_one, scale, f.sub(scale, 1.0))
    return f.with_sign_of(f.div(t, f.add(t, 2.0)), x)


def erf(f: Arithmetic, x: str) -> str:
    """Two polynomials, one of them for the logarithm of erfc. Error below 1.8 ulp."""
    a = f.absolute(x)
    near = f.fma(f.polynomial(p.ERF, f.mul(a, a)), a, a)
    logarithm = f.polynomial(p.ERFC_LOG2, f.at_most(a, 4.0))
    whole, n = f.round_with_magic(f.add(logarithm, f.magic))
    r = f.sub(logarithm, whole)
    power = f.mul(f.fma(f.polynomial(p.EXP2_SHORT, r), r, 1.0), f.power_of_two(n))
    far = f.sub(1.0, power)
    result = f.select(f.compare("olt", a, p.ERF_SMALL), near, far)
    return f.with_sign_of(result, x)


def _reduce(f: Arithmetic, x: str) -> tuple[str, str]:
    """``n`` (integers) and ``r`` with ``x = n log(2) + r``, abs(r) below 0.3475."""
    whole, n = f.round_with_magic(f.fma(x, math.log2(math.e), f.magic))
    r = f.fma(whole, -p.LN2_HIGH, x)
    return n, f.fma(whole, -p.LN2_LOW, r)


def _scale(f: Arithmetic, x: str, n: str) -> str:
    """``x * 2**n``. In two steps: 2**n itself may be too great or too small for f32, and only the
    second step rounds."""
    half = f.op("ashr", n, 1)
    rest = f.op("sub", n, half)
    return f.mul(f.mul(x, f.power_of_two(half)), f.power_of_two(rest))
