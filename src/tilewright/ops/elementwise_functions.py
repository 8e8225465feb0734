"""Functions of one and of two arguments as expressions: those of oneDNN.

Formulas: oneDNN's developer guide, "Eltwise" and "Binary", forward; `problems.UNARY_FUNCTIONS` has
them in words. Where a formula overflows on the way to a finite result, the form here does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.ir.expr import Expr, binary, cast, const, maximum, minimum, select, unary
from tilewright.problems import Unary

UnaryBuilder = Callable[[Expr, float, float], Expr]


def apply_unary(function: Unary, s: Expr) -> Expr:
    """``scale * function(s)``, of the type of ``s`` (a float)."""
    value = _UNARY[function.function](s, function.alpha, function.beta)
    return scaled(value, function.scale)


def apply_binary(function: str, a: Expr, b: Expr) -> Expr:
    """``function(a, b)`` of two floats of one type; comparisons give 1 or 0."""
    return _BINARY[function](a, b)


def scaled(value: Expr, factor: float) -> Expr:
    """``value * factor``; ``value`` itself for the factor 1."""
    return value if factor == 1 else value * number(factor, value)


def number(value: float, like: Expr) -> Expr:
    """A constant of the type of ``like``."""
    return const(value, like.type)


def _exp(s: Expr) -> Expr:
    return unary("exp", s)


def _relu(s: Expr, alpha: float, beta: float) -> Expr:
    if alpha == 0:
        return maximum(s, 0.0)
    return select(s > 0.0, s, s * number(alpha, s))


def _elu(s: Expr, alpha: float, beta: float) -> Expr:
    return select(s > 0.0, s, (_exp(s) - 1.0) * number(alpha, s))


def _gelu_tanh(s: Expr, alpha: float, beta: float) -> Expr:
    inner = (s + s * s * s * number(0.044715, s)) * number(math.sqrt(2 / math.pi), s)
    return s * (unary("tanh", inner) + 1.0) * number(0.5, s)


def _gelu_erf(s: Expr, alpha: float, beta: float) -> Expr:
    return s * (unary("erf", s * number(math.sqrt(0.5), s)) + 1.0) * number(0.5, s)


def _linear(s: Expr, alpha: float, beta: float) -> Expr:
    product = scaled(s, alpha)
    return product if beta == 0 else product + number(beta, s)


def _hardsigmoid(s: Expr, alpha: float, beta: float) -> Expr:
    return maximum(minimum(_linear(s, alpha, beta), 1.0), 0.0)


def _soft_plus(s: Expr) -> Expr:
    """log(1 + exp(s)), where exp never overflows."""
    return maximum(s, 0.0) + unary("log1p", _exp(-unary("abs", s)))


def _logistic(s: Expr) -> Expr:
    return number(1.0, s) / (_exp(-s) + 1.0)


def _swish(s: Expr, alpha: float, beta: float) -> Expr:
    return s / (_exp(s * number(-alpha, s)) + 1.0)


def _soft_relu(s: Expr, alpha: float, beta: float) -> Expr:
    value = _soft_plus(scaled(s, alpha))
    return value if alpha == 1 else value / number(alpha, s)


def _clip(s: Expr, alpha: float, beta: float) -> Expr:
    return minimum(maximum(s, number(alpha, s)), number(beta, s))


def _pow(s: Expr, alpha: float, beta: float) -> Expr:
    """``alpha * s^beta``; without a call of pow for the exponents that need none."""
    plain: dict[float, Callable[[], Expr]] = {
        0.0: lambda: number(1.0, s),
        0.5: lambda: unary("sqrt", s),
        1.0: lambda: s,
        2.0: lambda: s * s,
        3.0: lambda: s * s * s,
        -1.0: lambda: number(1.0, s) / s,
    }
    power = plain.get(beta, lambda: binary("pow", s, number(beta, s)))()
    return scaled(power, alpha)


def _named(op: str) -> UnaryBuilder:
    return lambda s, alpha, beta: unary(op, s)


_UNARY: dict[str, UnaryBuilder] = {
    "abs": _named("abs"),
    "clip": _clip,
    "clip_v2": _clip,
    "elu": _elu,
    "exp": _named("exp"),
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda s, alpha, beta: s * _hardsigmoid(s, alpha, beta),
    "linear": _linear,
    "log": _named("log"),
    "logistic": lambda s, alpha, beta: _logistic(s),
    "mish": lambda s, alpha, beta: s * unary("tanh", _soft_plus(s)),
    "pow": _pow,
    "relu": _relu,
    "round": _named("round"),
    "soft_relu": _soft_relu,
    "sqrt": _named("sqrt"),
    "square": lambda s, alpha, beta: s * s,
    "swish": _swish,
    "tanh": _named("tanh"),
}


def _comparison(op: str) -> Callable[[Expr, Expr], Expr]:
    return lambda a, b: cast(a.type, binary(op, a, b))


_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": maximum,
    "min": minimum,
    "eq": _comparison("eq"),
    "ne": _comparison("ne"),
    "lt": _comparison("lt"),
    "le": _comparison("le"),
    "gt": lambda a, b: cast(a.type, b < a),
    "ge": lambda a, b: cast(a.type, b <= a),
}
