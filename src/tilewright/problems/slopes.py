"""Derivatives of activations, oneDNN's of "Eltwise", backward: as expressions, and in float64.

Both take ``s``, alpha and beta; the former in forms that do not overflow on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.expr import Expr, select, unary
from tilewright.problems import activations
from tilewright.problems.functions import number, power

Array = Any
_ROOT = math.sqrt(2 / math.pi)
_CUBE = 0.044715


class Slope(NamedTuple):
    """A derivative: the expression, and the numbers."""

    build: Callable[[Expr, float, float], Expr]
    reference: Callable[[Array, float, float], Array]


def _step(s: Expr, condition: Expr, inside: float, outside: float) -> Expr:
    return select(condition, number(inside, s), number(outside, s))


def _between(s: Expr, low: Expr, high: Expr, value: Expr) -> Expr:
    """``value`` where ``low`` and ``high`` hold, else 0."""
    return select(low & high, value, number(0.0, s))


def _logistic64(x: Array) -> Array:
    return np.exp(-np.logaddexp(0, -x))


def _scaled(s: Expr, alpha: float) -> Expr:
    return activations.scaled(s, alpha)


def _hardsigmoid(s: Expr, a: float, b: float) -> Expr:
    v = activations.linear(s, a, b)
    return _between(s, v > 0.0, v < 1.0, number(a, s))


def _hardswish(s: Expr, a: float, b: float) -> Expr:
    v = activations.linear(s, a, b)
    inside = select(v < 1.0, _scaled(s, 2 * a) + number(b, s), number(1.0, s))
    return select(v > 0.0, inside, number(0.0, s))


def _gelu_erf(s: Expr, a: float, b: float) -> Expr:
    density = unary("exp", s * s * -0.5) * number(_ROOT, s)
    return (unary("erf", s * number(math.sqrt(0.5), s)) + 1.0 + s * density) * 0.5


def _gelu_tanh(s: Expr, a: float, b: float) -> Expr:
    t = unary("tanh", (s + s * s * s * number(_CUBE, s)) * number(_ROOT, s))
    inner = (s * s * number(3 * _CUBE, s) + 1.0) * number(_ROOT, s)
    return (t + 1.0) * (s * (number(1.0, s) - t) * inner + 1.0) * 0.5


def _gelu_tanh64(x: Array, a: float, b: float) -> Array:
    t = np.tanh(_ROOT * (x + _CUBE * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * _ROOT * (1 + 3 * _CUBE * x**2)


def _swish(s: Expr, a: float, b: float) -> Expr:
    x = _scaled(s, a)
    return activations.logistic(x) * (x * activations.logistic(-x) + 1.0)


def _mish(s: Expr, a: float, b: float) -> Expr:
    t = unary("tanh", activations.soft_plus(s))
    return t + s * activations.logistic(s) * (number(1.0, s) - t * t)


def _tanh(s: Expr, a: float, b: float) -> Expr:
    t = unary("tanh", s)
    return (number(1.0, s) - t) * (t + 1.0)


def _mish64(x: Array, a: float, b: float) -> Array:
    t = np.tanh(np.logaddexp(0, x))
    return t + x * _logistic64(x) * (1 - t**2)


def _swish64(x: Array, a: float, b: float) -> Array:
    v = _logistic64(a * x)
    return v + a * x * v * (1 - v)


SLOPES: Mapping[str, Slope] = {
    "abs": Slope(
        lambda s, a, b: select(s > 0.0, number(1.0, s), _step(s, s < 0.0, -1.0, 0.0)),
        lambda x, a, b: np.sign(x),
    ),
    "clip": Slope(
        lambda s, a, b: _between(s, s > number(a, s), s <= number(b, s), number(1.0, s)),
        lambda x, a, b: ((x > a) & (x <= b)) * 1.0,
    ),
    "clip_v2": Slope(
        lambda s, a, b: _between(s, s > number(a, s), s < number(b, s), number(1.0, s)),
        lambda x, a, b: ((x > a) & (x < b)) * 1.0,
    ),
    "elu": Slope(
        lambda s, a, b: select(s > 0.0, number(1.0, s), _scaled(unary("exp", s), a)),
        lambda x, a, b: np.where(x > 0, 1.0, a * np.exp(x)),
    ),
    "exp": Slope(lambda s, a, b: unary("exp", s), lambda x, a, b: np.exp(x)),
    "gelu_erf": Slope(
        _gelu_erf,
        lambda x, a, b: (
            0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)) + x * _ROOT * np.exp(-(x**2) / 2))
        ),
    ),
    "gelu_tanh": Slope(_gelu_tanh, _gelu_tanh64),
    "hardsigmoid": Slope(
        _hardsigmoid, lambda x, a, b: np.where((a * x + b > 0) & (a * x + b < 1), a, 0.0)
    ),
    "hardswish": Slope(
        _hardswish,
        lambda x, a, b: np.where(a * x + b <= 0, 0.0, np.where(a * x + b >= 1, 1.0, 2 * a * x + b)),
    ),
    "linear": Slope(lambda s, a, b: number(a, s), lambda x, a, b: np.full_like(x, a)),
    "log": Slope(lambda s, a, b: number(1.0, s) / s, lambda x, a, b: 1 / x),
    "logistic": Slope(
        lambda s, a, b: activations.logistic(s) * activations.logistic(-s),
        lambda x, a, b: _logistic64(x) * _logistic64(-x),
    ),
    "mish": Slope(_mish, _mish64),
    "pow": Slope(
        lambda s, a, b: number(0.0, s) if b == 0 else _scaled(power(s, b - 1), a * b),
        lambda x, a, b: 0 * x if b == 0 else a * b * np.power(x, b - 1),
    ),
    "relu": Slope(lambda s, a, b: _step(s, s > 0.0, 1.0, a), lambda x, a, b: np.where(x > 0, 1, a)),
    "soft_relu": Slope(
        lambda s, a, b: activations.logistic(_scaled(s, a)), lambda x, a, b: _logistic64(a * x)
    ),
    "sqrt": Slope(
        lambda s, a, b: number(0.5, s) / unary("sqrt", s), lambda x, a, b: 0.5 / np.sqrt(x)
    ),
    "square": Slope(lambda s, a, b: s * 2.0, lambda x, a, b: 2 * x),
    "swish": Slope(_swish, _swish64),
    "tanh": Slope(_tanh, lambda x, a, b: 1 / np.cosh(np.clip(x, -700, 700)) ** 2),
}
