"""exp, exp2, tanh and erf of f32 and f64 on all lanes, without branches.

``x`` becomes ``n log(2) + r``; a polynomial gives the exponential of ``r``, and the exponent's bits
multiply by ``2**n`` (Cody and Waite, "Software Manual for the Elementary Functions", 1980). The
errors in ulp are for results of any size, subnormal ones included, with or without FMA.

A magic number rounds to ``n``. The exponent's bias, added to it, puts the biased exponent in the
low bits.
"""

from __future__ import annotations

import math

from tilewright.dtypes import f32
from tilewright.targets.llvm import polynomials as p
from tilewright.targets.llvm.arithmetic import Arithmetic


def exp(f: Arithmetic, x: str) -> str:
    """Error below 1.1 ulp."""
    x = between_ends(f, x, math.log(2))
    whole, n, r = _reduce(f, x, 2 * f.bias)
    square = f.mul(r, r)
    rest = f.fma(square, f.pairs(p.EXP[f.dtype], r, square), r)
    return scaled(f, rest, n, whole=whole, inside=_is_inside(f, x, math.log(2)))


def exp_for_bf16(f: Arithmetic, x: str) -> str:
    """What is rounded to bf16 next: error below 2**-17, so that the result is off by 0.51 ulp."""
    x = between_ends(f, x, math.log(2))
    whole, n = rounded(f, f.fma(x, math.log2(math.e), f.magic + 2 * f.bias), 2 * f.bias)
    r = f.fma(x, math.log2(math.e), f.sub(-0.0, whole))
    rest = f.mul(f.polynomial(p.EXP2_FOR_BF16, r), r)
    return scaled(f, rest, n, whole=whole, inside=_is_inside(f, x, math.log(2)))


def exp2(f: Arithmetic, x: str) -> str:
    """Error below 1.1 ulp."""
    x = between_ends(f, x)
    whole, n = rounded(f, f.add(x, f.magic + 2 * f.bias), 2 * f.bias)
    r = f.sub(x, whole)
    rest = f.times_polynomial(p.EXP2[f.dtype], r)
    return scaled(f, rest, n, whole=whole, inside=_is_inside(f, x))


def tanh(f: Arithmetic, x: str) -> str:
    """``t / (t + 2)`` where ``t = exp(2 abs(x)) - 1``. Error below 2.6 ulp."""
    a = f.absolute(x)
    # From 10 (of f64, 20) on the result is 1.
    _, n, r = _reduce(f, f.at_most(f.add(a, a), 20.0 if f.dtype is f32 else 40.0), f.bias)
    square = f.mul(r, r)
    less_one = f.fma(square, f.pairs(p.EXPM1[f.dtype], r, square), r)
    scale = _power_of_two(f, n)
    t = f.fma(less_one, scale, f.sub(scale, 1.0))
    return f.with_sign_of(f.div(t, f.add(t, 2.0)), x)


def erf(f: Arithmetic, x: str) -> str:
    """``1 - 2**l``, where ``l`` is a polynomial for the logarithm of erfc; of f32, where lanes can
    look up coefficients, a polynomial for each part of the range. Error below 2.8 ulp."""
    if f.dtype is f32 and f.w.dialect.permute:
        return _erf_in_parts(f, x)
    # From 4 (of f64, 6) on the result is 1.
    a = f.at_most(f.absolute(x), 4.0 if f.dtype is f32 else 6.0)
    logarithm = f.times_polynomial(p.ERFC_LOG2[f.dtype], a)
    whole, n = rounded(f, f.add(logarithm, f.magic + f.bias), f.bias)
    less_one = f.times_polynomial(p.EXP2[f.dtype], f.sub(logarithm, whole))
    scale = _power_of_two(f, n)
    minus = f.fma(less_one, scale, f.sub(scale, 1.0))
    return f.with_sign_of(minus, x)


def _erf_in_parts(f: Arithmetic, x: str) -> str:
    # From 4 on the result is 1.
    a = f.at_most(f.absolute(x), 4.0)
    part, n = rounded(f, f.fma(a, p.ERF_STEPS, f.magic), 0)
    t = f.fma(part, -1 / p.ERF_STEPS, a)
    result = f.looked_up(p.ERF[-1], n)
    for coefficients in reversed(p.ERF[:-1]):
        result = f.fma(result, t, f.looked_up(coefficients, n))
    return f.with_sign_of(result, x)


def between_ends(f: Arithmetic, x: str, unit: float = 1.0) -> str:
    """``x`` between the numbers beyond which ``2**(x / unit)`` is 0 or infinity."""
    return f.at_least(f.at_most(x, unit * (f.bias + 2)), -unit * (f.bias + f.shift + 1))


def _is_inside(f: Arithmetic, x: str, unit: float = 1.0) -> str:
    """Whether ``x``, which is `between_ends`, is not at the end where the result is 0: Intel's
    processors take ten times as long for a vector with a product that is too small. What is masked
    in attention is there."""
    return f.compare("ugt", x, -unit * (f.bias + f.shift + 1))


def _reduce(f: Arithmetic, x: str, bias: int) -> tuple[str, str, str]:
    """``n``, ``n + bias`` (in the low bits of integers) and ``r`` with ``x = n log(2) + r``, abs(r)
    below 0.3475."""
    high, low = p.LN2[f.dtype]
    whole, n = rounded(f, f.fma(x, math.log2(math.e), f.magic + bias), bias)
    r = f.fma(whole, -high, x)
    return whole, n, f.fma(whole, -low, r)


def rounded(f: Arithmetic, shifted: str, bias: int) -> tuple[str, str]:
    """``x`` plus a magic number and ``bias`` to ``rint(x)``, and that plus ``bias`` in the low bits
    of integers (see `Arithmetic.round_with_magic`)."""
    return f.sub(shifted, f.magic + bias), f.bits(shifted)


def _power_of_two(f: Arithmetic, n: str) -> str:
    """``2**n``, with the biased ``n`` in the low bits: the shift drops the bits above."""
    return f.floats(f.op("shl", n, f.shift))


def scaled(
    f: Arithmetic,
    rest: str,
    n: str,
    main: str | float = 1.0,
    whole: str = "",
    inside: str = "",
) -> str:
    """``(main + rest) * 2**n`` for an ``n`` with twice the bias; 0 in lanes that are not
    ``inside``. In two steps: 2**n itself may be too great or too small for the type, and only the
    second step rounds subnormal results. An instruction that does both takes ``n`` as a float,
    ``whole``; the result is the same."""
    if whole and f.scales:
        value = f.add(rest, main)
        return f.times_power_of_two(f.select(inside, value, 0.0) if inside else value, whole)
    half = f.op("lshr", n, 1)
    first, second = _power_of_two(f, half), _power_of_two(f, f.op("sub", n, half))
    greatest = first if main == 1.0 else f.mul(main, first)
    value = f.fma(rest, first, greatest)
    return f.mul(f.select(inside, value, 0.0) if inside else value, second)
