"""Functions of numbers that the IR has no operator for, as kernels call them: their formulas are
those of `problems`, which front ends use, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.dtypes import DType, dtype, f32, f64, s32
from tilewright.ir import expr as ir
from tilewright.ir.expr import Expr
from tilewright.lang.builtin import Site, elementwise
from tilewright.lang.values import is_literal
from tilewright.problems import error_functions, functions, special_functions
from tilewright.problems.unary_functions import UNARY_FUNCTIONS
from tilewright.tensor.sharing import named_parts

# Those with a record, and what they are in words.
_RECORDED: Mapping[str, str] = {
    "tan": "The tangent of ``x`` in radians.",
    "asin": "The arc sine of ``x``, in [-pi/2, pi/2]; NaN outside of [-1, 1].",
    "acos": "The arc cosine of ``x``, in [0, pi]; NaN outside of [-1, 1].",
    "atan": "The arc tangent of ``x``, in [-pi/2, pi/2].",
    "sinh": "The hyperbolic sine of ``x``.",
    "cosh": "The hyperbolic cosine of ``x``.",
    "asinh": "The inverse of the hyperbolic sine of ``x``.",
    "acosh": "The inverse of the hyperbolic cosine of ``x``; NaN below 1.",
    "atanh": "The inverse of the hyperbolic tangent of ``x``; NaN outside of [-1, 1].",
    "log2": "The logarithm of ``x`` to base 2.",
    "log10": "The logarithm of ``x`` to base 10.",
    "expm1": "e to the power of ``x``, less 1; exact near 0.",
    "cbrt": "The real cube root of ``x``.",
    "trunc": "The whole number next to ``x`` towards 0, as a float.",
}


def _computed(site: Site, build: Callable[..., Expr], least: DType | None, *arguments: Any) -> Expr:
    """A function of floats of one type: narrower ones than ``least`` (f32 without) are computed in
    that, and rounded once."""
    values = [site.typed(argument) for argument in arguments]
    for other in values[1:]:
        values[0], _ = site.arithmetic.common(values[0], other, f"tw.{site.name}")
    type_ = values[0].type
    if not type_.is_float:
        raise site.refuse(
            f"tw.{site.name} of {type_}",
            "it is a function of floats",
            f"write tw.{site.name}(tw.f32(...))",
        )
    least = least or f32
    wide = type_ if type_.bits >= least.bits else least
    named = [site.let("x", ir.cast(wide, ir.cast(type_, expr))) for expr in values]
    (value,) = named_parts([build(*named)], lambda part: site.let("part", part))
    return ir.cast(type_, value)


def _function(
    name: str,
    doc: str,
    build: Callable[..., Expr],
    of_literal: Callable[..., Any],
    least: DType | None,
) -> Callable[..., Any]:
    def run(site: Site, x: Any) -> Any:
        site.number(x, "the argument")
        return _of_numbers(site, build, of_literal, least, x)

    run.__name__, run.__doc__ = name, doc
    run.__module__ = __name__
    return elementwise(run)


def _of_numbers(
    site: Site,
    build: Callable[..., Expr],
    of_literal: Callable[..., Any],
    least: DType | None,
    *numbers: Any,
) -> Any:
    if not all(map(is_literal, numbers)):
        return _computed(site, build, least, *numbers)
    try:
        with np.errstate(all="ignore"):
            number = float(of_literal(*(np.float64(literal) for literal in numbers)))
    except (ArithmeticError, ValueError) as error:
        number = math.nan
        reason: str | None = str(error)
    else:
        reason = None
    if math.isnan(number):
        shown = ", ".join(map(str, numbers))
        raise site.refuse(f"tw.{site.name}({shown}) is no number", reason, "correct the number")
    return number


def _recorded(name: str) -> Callable[..., Any]:
    record = UNARY_FUNCTIONS[name]
    return _function(
        name,
        _RECORDED[name],
        record.of,
        lambda x: record.reference(x, 0.0, 0.0),
        record.least,
    )


tan = _recorded("tan")
asin = _recorded("asin")
acos = _recorded("acos")
atan = _recorded("atan")
sinh = _recorded("sinh")
cosh = _recorded("cosh")
asinh = _recorded("asinh")
acosh = _recorded("acosh")
atanh = _recorded("atanh")
log2 = _recorded("log2")
log10 = _recorded("log10")
expm1 = _recorded("expm1")
cbrt = _recorded("cbrt")
trunc = _recorded("trunc")
lgamma = _function(
    "lgamma",
    "The logarithm of the gamma function's absolute value.",
    special_functions.lgamma,
    math.lgamma,
    f64,
)
erfc = _function(
    "erfc", "1 - erf(``x``), exact where that is small.", error_functions.erfc, math.erfc, f64
)


@elementwise
def atan2(site: Site, y: Any, x: Any) -> Any:
    """The angle of the point (``x``, ``y``), in [-pi, pi]."""
    return _of_numbers(site, functions.atan2, math.atan2, f64, site.number(y), site.number(x))


@elementwise
def ldexp(site: Site, x: Any, exponent: Any) -> Any:
    """``x`` times 2 to the power of ``exponent``, an integer; exact where the result is no
    subnormal number."""
    power = site.typed(exponent, s32 if is_literal(exponent) else None)
    if not power.type.is_integer:
        raise site.refuse(f"tw.ldexp with an exponent of {power.type}", cure="give an integer")
    return _computed(site, lambda value: functions.scaled(value, power), None, site.number(x))


@elementwise
def isinf(site: Site, x: Any) -> Any:
    """Whether ``x`` is infinite."""
    value = _float(site, x)
    return ir.binary("eq", ir.unary("abs", value), functions.number(math.inf, value))


@elementwise
def isfinite(site: Site, x: Any) -> Any:
    """Whether ``x`` is neither infinite nor NaN."""
    return functions.is_finite(_float(site, x))


def _float(site: Site, x: Any) -> Expr:
    value = site.typed(x)
    if not value.type.is_float:
        raise site.refuse(f"tw.{site.name} of {value.type}", "integers are finite", "leave it out")
    return value


# Of integers: bits.


def _bits(site: Site, x: Any) -> tuple[Expr, Expr]:
    """An integer, and its bits as an unsigned one."""
    value = site.typed(x)
    if not value.type.is_integer or value.type.bits < 8:
        raise site.refuse(f"tw.{site.name} of {value.type}", cure="give an integer")
    return value, site.let("bits", ir.bitcast(dtype(f"u{value.type.bits}"), value))


@elementwise
def ctz(site: Site, x: Any) -> Any:
    """The number of trailing zero bits of an integer; all of them for 0."""
    value, bits = _bits(site, x)
    below = ir.unary("not", bits) & functions.wrapping("sub", bits, ir.const(1, bits.type))
    return ir.cast(value.type, ir.unary("popcount", below))


@elementwise
def bit_reverse(site: Site, x: Any) -> Any:
    """The bits of an integer in reverse."""
    value, bits = _bits(site, x)
    distance = bits.type.bits // 2
    mask = (1 << bits.type.bits) - 1
    while distance:
        mask ^= (mask << distance) & ((1 << bits.type.bits) - 1)
        low, by = ir.const(mask, bits.type), ir.const(distance, bits.type)
        swapped = ((bits >> by) & low) | ((bits & low) << by)
        bits, distance = site.let("bits", swapped), distance // 2
    return ir.bitcast(value.type, bits)


@elementwise
def rotate(site: Site, x: Any, distance: Any) -> Any:
    """The bits of an integer moved to the left by ``distance``; those that leave come in at the
    right."""
    value, bits = _bits(site, x)
    width = bits.type.bits
    by = site.typed(distance, bits.type if is_literal(distance) else None)
    if not by.type.is_integer:
        raise site.refuse(f"tw.rotate by {by.type}", cure="give an integer")
    left = site.let("by", ir.cast(bits.type, by) & ir.const(width - 1, bits.type))
    right = functions.wrapping("sub", ir.const(0, bits.type), left) & ir.const(width - 1, bits.type)
    return ir.bitcast(value.type, (bits << left) | (bits >> right))
