"""log and log1p of f32 and f64 on all lanes, without branches.

An argument becomes ``m 2**e`` with ``m`` from sqrt(1/2) to sqrt(2), by integer arithmetic on its
bits. The errors in ulp hold with or without FMA.
"""

from __future__ import annotations

import math

from tilewright.dtypes import f32, f64
from tilewright.targets.llvm import polynomials as p
from tilewright.targets.llvm.arithmetic import Arithmetic

ROOT_HALF = {f32: 0x3F3504F3, f64: 0x3FE6A09E667F3BCD}  # the bits of sqrt(1/2)


def log(f: Arithmetic, x: str) -> str:
    """Error below 1 ulp."""
    e, m = parts(f, x)
    result = _log_of_parts(f, e, f.sub(m, 1.0))
    return _at_the_edges(f, result, x, x)


def log1p(f: Arithmetic, x: str) -> str:
    """The part of ``x`` that is lost in ``1 + x`` joins the mantissa. Error below 1.5 ulp."""
    u, lost = f.exact_sum(x, 1.0)
    e, m = _split(f, f.bits(u))
    # 2**-e; from the greatest e on, when nothing of the 1 is left in u, it is 0.
    inverse = f.op("sub", f.one, f.op("shl", e, f.shift))
    inverse = f.floats(f.select_bits(f.compare_bits("slt", e, f.bias + 1), inverse, 0))
    result = _log_of_parts(f, e, f.fma(lost, inverse, f.sub(m, 1.0)))
    # log1p(-0) is -0.
    result = f.select(f.compare("oeq", x, 0.0), x, result)
    return _at_the_edges(f, result, u, x)


def parts(f: Arithmetic, x: str) -> tuple[str, str]:
    """``e`` (integers) and ``m`` of positive numbers, subnormal ones, too."""
    subnormal = f.compare("olt", x, 2.0 ** (1 - f.bias))
    e, m = _split(f, f.bits(f.select(subnormal, f.mul(x, 2.0**f.shift), x)))
    return f.op("sub", e, f.select_bits(subnormal, f.shift, 0)), m


def _split(f: Arithmetic, code: str) -> tuple[str, str]:
    """``e`` (integers) and ``m`` of the positive normal numbers with these bits."""
    e = f.op("ashr", f.op("sub", code, ROOT_HALF[f.dtype]), f.shift)
    return e, f.floats(f.op("sub", code, f.op("shl", e, f.shift)))


def _log_of_parts(f: Arithmetic, e: str, r: str) -> str:
    """``e log(2) + log(1 + r)``, the small terms first."""
    high, low = p.LN2[f.dtype]
    exponent = f.from_integers(e)
    square = f.mul(r, r)
    tail = f.mul(f.mul(square, r), f.pairs(p.LOG[f.dtype], r, square))
    tail = f.fma(exponent, low, tail)
    tail = f.fma(square, -0.5, tail)
    return f.fma(exponent, high, f.add(r, tail))


def _at_the_edges(f: Arithmetic, result: str, u: str, x: str) -> str:
    """log(u): -infinity at 0 and NaN below; infinity and NaN stay as they are in ``x``."""
    edge = f.select(f.compare("olt", u, 0.0), math.nan, x)
    edge = f.select(f.compare("oeq", u, 0.0), -math.inf, edge)
    inside = f.logic("and", f.compare("ogt", u, 0.0), f.compare("olt", u, math.inf))
    return f.select(inside, result, edge)
