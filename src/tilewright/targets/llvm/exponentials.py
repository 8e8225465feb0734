"""exp, exp2, tanh and erf of f32 on all lanes, without branches.

``x`` becomes ``n log(2) + r``; a polynomial gives the exponential of ``r``, and the exponent's bits
multiply by ``2**n`` (Cody and Waite, "Software Manual for the Elementary Functions", 1980). The
errors in ulp are for results of any size, subnormal ones included, with or without FMA.
"""

from __future__ import annotations

import math

from tilewright.targets.llvm import polynomials as p
from tilewright.targets.llvm.arithmetic import Arithmetic

# Of f32's exponent: added to a magic number, it puts the biased exponent in the low bits.
_BIAS = 127


def exp(f: Arithmetic, x: str) -> str:
    """Error below 1.1 ulp."""
    # Beyond these bounds the result is 0 or infinity.
    x = f.at_least(f.at_most(x, 89.0), -104.0)
    n, r = _reduce(f, x, 2 * _BIAS)
    square = f.mul(r, r)
    return _scaled(f, f.fma(square, f.pairs(p.EXP, r, square), r), n)


def exp2(f: Arithmetic, x: str) -> str:
    """Error below 1.1 ulp."""
    x = f.at_least(f.at_most(x, 129.0), -151.0)
    whole, n = _rounded(f, f.add(x, f.magic + 2 * _BIAS), 2 * _BIAS)
    r = f.sub(x, whole)
    return _scaled(f, f.mul(f.polynomial(p.EXP2, r), r), n)


def tanh(f: Arithmetic, x: str) -> str:
    """``t / (t + 2)`` where ``t = exp(2 abs(x)) - 1``. Error below 2.6 ulp."""
    a = f.absolute(x)
    # From 10 on the result is 1.
    n, r = _reduce(f, f.at_most(f.add(a, a), 20.0), _BIAS)
    square = f.mul(r, r)
    less_one = f.fma(square, f.pairs(p.EXPM1, r, square), r)
    scale = _power_of_two(f, n)
    t = f.fma(less_one, scale, f.sub(scale, 1.0))
    return f.with_sign_of(f.div(t, f.add(t, 2.0)), x)


def erf(f: Arithmetic, x: str) -> str:
    """``1 - 2**l``, where ``l`` is a polynomial for the logarithm of erfc; where lanes can look up
    coefficients, a polynomial for each part of the range. Error below 2.8 ulp."""
    if f.w.dialect.permute:
        return _erf_in_parts(f, x)
    # From 4 on the result is 1.
    a = f.at_most(f.absolute(x), 4.0)
    logarithm = f.mul(f.pairs(p.ERFC_LOG2, a, f.mul(a, a)), a)
    whole, n = _rounded(f, f.add(logarithm, f.magic + _BIAS), _BIAS)
    r = f.sub(logarithm, whole)
    less_one = f.mul(f.polynomial(p.EXP2, r), r)
    scale = _power_of_two(f, n)
    minus = f.fma(less_one, scale, f.sub(scale, 1.0))
    return f.with_sign_of(minus, x)


def _erf_in_parts(f: Arithmetic, x: str) -> str:
    # From 4 on the result is 1.
    a = f.at_most(f.absolute(x), 4.0)
    part, n = _rounded(f, f.fma(a, p.ERF_STEPS, f.magic), 0)
    t = f.fma(part, -1 / p.ERF_STEPS, a)
    result = f.looked_up(p.ERF[-1], n)
    for coefficients in reversed(p.ERF[:-1]):
        result = f.fma(result, t, f.looked_up(coefficients, n))
    return f.with_sign_of(result, x)


def _reduce(f: Arithmetic, x: str, bias: int) -> tuple[str, str]:
    """``n + bias`` (in the low bits of integers) and ``r`` with ``x = n log(2) + r``, abs(r) below
    0.3475."""
    whole, n = _rounded(f, f.fma(x, math.log2(math.e), f.magic + bias), bias)
    r = f.fma(whole, -p.LN2_HIGH, x)
    return n, f.fma(whole, -p.LN2_LOW, r)


def _rounded(f: Arithmetic, shifted: str, bias: int) -> tuple[str, str]:
    """``x`` plus a magic number and ``bias`` to ``rint(x)``, and that plus ``bias`` in the low bits
    of integers (see `Arithmetic.round_with_magic`)."""
    return f.sub(shifted, f.magic + bias), f.bits(shifted)


def _power_of_two(f: Arithmetic, n: str) -> str:
    """``2**n``, with the biased ``n`` in the low bits: the shift drops the bits above."""
    return f.floats(f.op("shl", n, f.shift))


def _scaled(f: Arithmetic, less_one: str, n: str) -> str:
    """``(1 + less_one) * 2**n`` for an ``n`` with twice the bias. In two steps: 2**n itself may
    be too great or too small for f32, and only the second step rounds subnormal results."""
    half = f.op("lshr", n, 1)
    first, second = _power_of_two(f, half), _power_of_two(f, f.op("sub", n, half))
    return f.mul(f.fma(less_one, first, first), second)
