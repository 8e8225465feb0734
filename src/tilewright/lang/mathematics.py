"""Functions of numbers that kernels call, as expressions of the IR."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.ir import expr as ir
from tilewright.ir.expr import Expr
from tilewright.lang.builtin import Site, builtin, elementwise
from tilewright.lang.values import is_literal

_OF_LITERALS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log": math.log,
    "log1p": math.log1p,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "exp2": lambda a: 2.0**a,
    "floor": math.floor,
    "ceil": math.ceil,
    "rsqrt": lambda a: 1 / math.sqrt(a),
}


def _function(name: str, doc: str) -> Callable[..., Any]:
    def run(site: Site, x: Any) -> Any:
        site.number(x, "the argument")
        if is_literal(x):
            try:
                return float(_OF_LITERALS[name](x))
            except (ArithmeticError, ValueError) as error:
                raise site.refuse(f"tw.{name}({x}): {error}", cure="correct the number") from None
        return site.arithmetic.function(name, x)

    run.__name__, run.__doc__ = name, doc
    run.__module__ = __name__
    return elementwise(run)


exp = _function("exp", "e to the power of ``x``, in the float type of ``x``.")
exp2 = _function("exp2", "2 to the power of ``x``, in the float type of ``x``.")
log = _function("log", "The natural logarithm of ``x``; NaN below 0, minus infinity at 0.")
log1p = _function("log1p", "The natural logarithm of 1 + ``x``, exact near 0.")
sqrt = _function("sqrt", "The square root of ``x``, rounded once.")
rsqrt = _function("rsqrt", "1 / sqrt(``x``).")
sin = _function("sin", "The sine of ``x`` in radians.")
cos = _function("cos", "The cosine of ``x`` in radians.")
tanh = _function("tanh", "The hyperbolic tangent of ``x``.")
erf = _function("erf", "The error function of ``x``.")
floor = _function("floor", "The greatest whole number that is not above ``x``, as a float.")
ceil = _function("ceil", "The least whole number that is not below ``x``, as a float.")


@elementwise
def fma(site: Site, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of floats, computed exactly and rounded once: by an instruction where the
    machine has one, else, but for f64, in f64. Of integers it is just that."""
    if all(is_literal(site.number(operand)) for operand in (a, b, c)):
        return site.arithmetic.binary("add", site.arithmetic.binary("mul", a, b), c)
    first, *others = sorted((a, b, c), key=is_literal)
    for other in others:
        first, _ = site.arithmetic.common(first, other, "tw.fma")
    x, y, z = (site.arithmetic.convert(operand, first.type) for operand in (a, b, c))
    return ir.fma(x, y, z) if z.type.is_float else x * y + z


@elementwise
def where(site: Site, condition: Any, a: Any, b: Any) -> Any:
    """``a`` where ``condition`` holds, else ``b``; both are evaluated. (``a if condition else b``
    guards the loads inside its branches.)"""
    for operand in (condition, a, b):
        site.number(operand)
    holds = site.arithmetic.condition(condition)
    if is_literal(holds):
        return a if holds else b
    x, y = site.arithmetic.common(a, b, "tw.where")
    return ir.select(holds, x, y)


@elementwise
def divide(site: Site, a: Any, b: Any) -> Any:
    """The quotient of integers, rounded towards 0 as C does; 0 where ``b`` is 0. (``a // b`` rounds
    down.)"""
    x, y = _integers(site, a, b)
    return _truncated(x, y)


@elementwise
def remainder(site: Site, a: Any, b: Any) -> Any:
    """The remainder of `divide`: it has the sign of ``a``, as in C. (``a % b`` has that of
    ``b``.)"""
    x, y = _integers(site, a, b)
    return x - _truncated(x, y) * y


def _integers(site: Site, a: Any, b: Any) -> tuple[Expr, Expr]:
    x, y = site.arithmetic.common(site.number(a), site.number(b), f"tw.{site.name}")
    if not x.type.is_integer:
        raise site.refuse(f"tw.{site.name} of {x.type}", cure="give integers; floats divide by /")
    return x, y


def _truncated(x: Expr, y: Expr) -> Expr:
    if x.type.kind == "uint":
        return x // y
    zero = ir.const(0, x.type)
    down = x // y
    exact = ir.binary("eq", down * y, x)
    opposite = (x < zero) ^ (y < zero)
    return ir.select(opposite & ir.unary("not", exact) & (y != zero), down + 1, down)


@elementwise
def mulhi(site: Site, a: Any, b: Any) -> Any:
    """The upper half of the bits of the product of two integers."""
    x, y = _integers(site, a, b)
    return ir.binary("mulhi", x, y)


@elementwise
def clz(site: Site, x: Any) -> Any:
    """The number of leading zero bits of an integer; all of them for 0."""
    return site.arithmetic.unary("clz", site.typed(x))


@elementwise
def popcount(site: Site, x: Any) -> Any:
    """The number of bits of an integer that are 1."""
    return site.arithmetic.unary("popcount", site.typed(x))


@builtin
def bitcast(site: Site, dtype: Any, x: Any) -> Any:
    """The bits of ``x`` as another type of as many."""
    target, value = site.element_type(dtype), site.typed(x)
    try:
        return ir.bitcast(target, value)
    except TypeError as error:
        raise site.refuse(f"tw.bitcast: {error}", cure="take a type of as many bits") from None


@elementwise
def isnan(site: Site, x: Any) -> Any:
    """Whether ``x`` is NaN."""
    value = site.typed(x)
    return ir.binary("ne", value, value)


@builtin
def common_type(site: Site, a: Any, b: Any) -> Any:
    """The common type of two numbers, in which operators compute."""
    x, _ = site.arithmetic.common(site.number(a), site.number(b), "tw.common_type")
    return x.type
