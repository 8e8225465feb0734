"""Activations, as expressions: formulas of oneDNN's developer guide, "Eltwise", forward, in forms
that do not overflow on the way to a finite result. ``alpha`` and ``beta`` are its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.ir.expr import Expr, binary, maximum, minimum, select, unary
from tilewright.problems.functions import expm1_below, number


def scaled(value: Expr, factor: float) -> Expr:
    """``value * factor``; ``value`` itself for the factor 1."""
    return value if factor == 1 else value * number(factor, value)


def gated(s: Expr, z: Expr) -> Expr:
    """``s / (1 + exp(-z))``, as exact where ``z`` is far below 0, and exp(-z) too great."""
    root = unary("exp", unary("abs", z) * -0.5)
    # A product with the square of it would have few digits where that is subnormal.
    return select(z < 0.0, s * root * root, s) / (root * root + 1.0)


def logistic(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return gated(number(1.0, x), x)


def softsign(x: Expr) -> Expr:
    """``x / (1 + |x|)``."""
    return x / (number(1.0, x) + unary("abs", x))


def relu(s: Expr, alpha: float, beta: float) -> Expr:
    """``s`` above 0, else ``alpha * s``."""
    if alpha == 0:
        return maximum(s, 0.0)
    return select(s > 0.0, s, s * number(alpha, s))


def elu(s: Expr, alpha: float, beta: float) -> Expr:
    """``s`` above 0, else ``alpha * (exp(s) - 1)``."""
    return select(s > 0.0, s, expm1_below(s) * number(alpha, s))


def gelu_tanh(s: Expr, alpha: float, beta: float) -> Expr:
    """The product of ``s`` and about the normal distribution's integral up to it."""
    inner = (s + s * s * s * number(0.044715, s)) * number(math.sqrt(8 / math.pi), s)
    return gated(s, inner)  # (1 + tanh(x)) / 2 = 1 / (1 + exp(-2 x))


def gelu_erf(s: Expr, alpha: float, beta: float) -> Expr:
    """The product of ``s`` and the normal distribution's integral up to it."""
    return s * 0.5 * (unary("erf", s * number(math.sqrt(0.5), s)) + 1.0)


def linear(s: Expr, alpha: float, beta: float) -> Expr:
    """``alpha * s + beta``."""
    product = scaled(s, alpha)
    return product if beta == 0 else product + number(beta, s)


def hardsigmoid(s: Expr, alpha: float, beta: float) -> Expr:
    """``alpha * s + beta`` within 0 and 1."""
    return maximum(minimum(linear(s, alpha, beta), 1.0), 0.0)


def soft_plus(s: Expr) -> Expr:
    """log(1 + exp(s)), where exp never overflows."""
    return maximum(s, 0.0) + unary("log1p", unary("exp", -unary("abs", s)))


def swish(s: Expr, alpha: float, beta: float) -> Expr:
    """``s / (1 + exp(-alpha * s))``."""
    return gated(s, scaled(s, alpha))


def mish(s: Expr, alpha: float, beta: float) -> Expr:
    """``s * tanh(log(1 + exp(s)))``: of ``e = exp(-abs(s))``, a quotient of squares."""
    root = unary("exp", unary("abs", s) * -0.5)
    e = root * root
    above, below = e * 2.0 + 1.0, s * root * root * (e + 2.0)
    negative = s < 0.0
    return select(negative, below, s * above) / select(
        negative, e * (e + 2.0) + 2.0, e * e * 2.0 + above
    )


def soft_relu(s: Expr, alpha: float, beta: float) -> Expr:
    """``log(1 + exp(alpha * s)) / alpha``."""
    if alpha == 1:
        return soft_plus(s)
    # Only where the result is too great may anything on the way be.
    tail = unary("log1p", unary("exp", -unary("abs", scaled(s, alpha)))) / number(alpha, s)
    return (minimum(s, 0.0) if alpha < 0 else maximum(s, 0.0)) + tail


def clip(s: Expr, alpha: float, beta: float) -> Expr:
    """``s`` within alpha and beta."""
    return minimum(maximum(s, number(alpha, s)), number(beta, s))


def pow(s: Expr, alpha: float, beta: float) -> Expr:
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
