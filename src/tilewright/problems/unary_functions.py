"""Functions of one argument, each in one record: what it is, as an expression, in float64, how far
off it may be, and what PyTorch calls it.

Formulas: oneDNN's developer guide, "Eltwise", forward. Where a formula overflows on the way to a
finite result, the forms here do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.expr import Expr, binary, const, maximum, minimum, select, unary
from tilewright.problems.numbers import held

Array = np.ndarray[Any, np.dtype[np.float64]]
# What computes it in PyTorch: of the first argument, into the second.
PeerStep = Callable[[Any, Any], Any]
Build = Callable[[Expr, float, float], Expr]

# Library functions are within a few units in the last place, and formulas call several.
_UNITS = 16


@dataclass(frozen=True, slots=True)
class UnaryFunction:
    """A function of one argument ``s``. ``build``, ``reference`` and ``peer`` take alpha and beta
    behind what else they take; ``parameters`` are those of the two that the function uses.

    ``build`` gives the expression, of the type of its argument (a float); ``reference`` the numbers
    in float64. ``units`` bounds the error of the former, in roundings of the result; 0: it is made
    of additions, multiplications, comparisons and rounding, and exact where the result is.
    ``peer`` gives what computes it in the module ``torch``, or None where that has no such numbers.
    """

    name: str
    formula: str
    build: Build
    reference: Callable[[Array, float, float], Any]
    peer: Callable[[Any, float, float], PeerStep | None]
    parameters: tuple[str, ...] = ()
    units: int = _UNITS


def scaled(value: Expr, factor: float) -> Expr:
    """``value * factor``; ``value`` itself for the factor 1."""
    return value if factor == 1 else value * number(factor, value)


def number(value: float, like: Expr) -> Expr:
    """A constant of the type of ``like``. Raises `UnsupportedError` for one that is too great."""
    return const(held(value, like.type), like.type)


# Expressions.


def _exp(s: Expr) -> Expr:
    return unary("exp", s)


def _relu(s: Expr, alpha: float, beta: float) -> Expr:
    if alpha == 0:
        return maximum(s, 0.0)
    return select(s > 0.0, s, s * number(alpha, s))


def _elu(s: Expr, alpha: float, beta: float) -> Expr:
    return select(s > 0.0, s, expm1_below(s) * number(alpha, s))


def expm1_below(x: Expr) -> Expr:
    """exp(x) - 1 where ``x`` is 0 or less, exact near 0, too."""
    half = unary("tanh", x * 0.5)
    return (half + half) / (number(1.0, x) - half)


def gated(s: Expr, z: Expr) -> Expr:
    """``s / (1 + exp(-z))``, as exact where ``z`` is far below 0, and exp(-z) too great."""
    root = _exp(unary("abs", z) * -0.5)
    # A product with the square of it would have few digits where that is subnormal.
    return select(z < 0.0, s * root * root, s) / (root * root + 1.0)


def logistic(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return gated(number(1.0, x), x)


def _gelu_tanh(s: Expr, alpha: float, beta: float) -> Expr:
    inner = (s + s * s * s * number(0.044715, s)) * number(math.sqrt(8 / math.pi), s)
    return gated(s, inner)  # (1 + tanh(x)) / 2 = 1 / (1 + exp(-2 x))


def _gelu_erf(s: Expr, alpha: float, beta: float) -> Expr:
    return s * 0.5 * (unary("erf", s * number(math.sqrt(0.5), s)) + 1.0)


def _linear(s: Expr, alpha: float, beta: float) -> Expr:
    product = scaled(s, alpha)
    return product if beta == 0 else product + number(beta, s)


def _hardsigmoid(s: Expr, alpha: float, beta: float) -> Expr:
    return maximum(minimum(_linear(s, alpha, beta), 1.0), 0.0)


def _soft_plus(s: Expr) -> Expr:
    """log(1 + exp(s)), where exp never overflows."""
    return maximum(s, 0.0) + unary("log1p", _exp(-unary("abs", s)))


def _swish(s: Expr, alpha: float, beta: float) -> Expr:
    return gated(s, scaled(s, alpha))


def _mish(s: Expr, alpha: float, beta: float) -> Expr:
    """With ``e = exp(-abs(s))``, tanh(log(1 + exp(s))) is a quotient of squares of it."""
    root = _exp(unary("abs", s) * -0.5)
    e = root * root
    above, below = e * 2.0 + 1.0, s * root * root * (e + 2.0)
    negative = s < 0.0
    return select(negative, below, s * above) / select(
        negative, e * (e + 2.0) + 2.0, e * e * 2.0 + above
    )


def _soft_relu(s: Expr, alpha: float, beta: float) -> Expr:
    if alpha == 1:
        return _soft_plus(s)
    # Only where the result is too great may anything on the way be.
    tail = unary("log1p", _exp(-unary("abs", scaled(s, alpha)))) / number(alpha, s)
    return (minimum(s, 0.0) if alpha < 0 else maximum(s, 0.0)) + tail


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


def _named(op: str) -> Build:
    return lambda s, alpha, beta: unary(op, s)


# Numbers in float64.


def _erf64(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.ravel()), np.float64, x.size).reshape(x.shape)


def _logistic64(x: Array) -> Any:
    # exp of a positive number overflows: use the half of the formula that does not.
    tail = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + tail), tail / (1.0 + tail))


def _soft_plus64(x: Array) -> Any:
    return np.logaddexp(0.0, x)


def _gelu_tanh64(x: Array) -> Any:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _clip64(x: Array, alpha: float, beta: float) -> Any:
    return np.minimum(np.maximum(x, alpha), beta)


def _relu64(x: Array, alpha: float, beta: float) -> Any:
    # Of minus infinity, 0 times x is NaN.
    return np.maximum(x, 0.0) if alpha == 0 else np.where(x > 0, x, alpha * x)


def _hardsigmoid64(x: Array, alpha: float, beta: float) -> Any:
    return np.clip(alpha * x + beta, 0.0, 1.0)


# In PyTorch.


def _torch(name: str) -> Callable[[Any, float, float], PeerStep]:
    """The function of that name, which has no numbers."""
    return lambda torch, alpha, beta: lambda x, out: getattr(torch, name)(x, out=out)


def _torch_nn(
    name: str, *numbers: float, **options: Any
) -> Callable[[Any, float, float], PeerStep | None]:
    """That of torch's layers, whose alpha and beta are ``numbers``."""

    def peer(torch: Any, alpha: float, beta: float) -> PeerStep | None:
        # A number of a descriptor has few digits.
        if any(abs(own - given) > 1e-6 for own, given in zip(numbers, (alpha, beta), strict=False)):
            return None
        run = getattr(torch._C._nn, name)
        return lambda x, out: run(x, out=out, **options)

    return peer


def _torch_relu(torch: Any, alpha: float, beta: float) -> PeerStep:
    if alpha == 0:
        return lambda x, out: torch.clamp_min(x, 0, out=out)
    return lambda x, out: torch._C._nn.leaky_relu(x, alpha, out=out)


def _torch_clip(torch: Any, alpha: float, beta: float) -> PeerStep:
    return lambda x, out: torch.clamp(x, alpha, beta, out=out)


def _torch_elu(torch: Any, alpha: float, beta: float) -> PeerStep:
    return lambda x, out: torch._C._nn.elu(x, alpha, out=out)


def _torch_linear(torch: Any, alpha: float, beta: float) -> PeerStep:
    return lambda x, out: torch.mul(x, alpha, out=out).add_(beta)


def _torch_pow(torch: Any, alpha: float, beta: float) -> PeerStep:
    if alpha == 1:
        return lambda x, out: torch.pow(x, beta, out=out)
    return lambda x, out: torch.pow(x, beta, out=out).mul_(alpha)


def _torch_soft_relu(torch: Any, alpha: float, beta: float) -> PeerStep:
    # Above the threshold it is taken for s, as by default there: the difference is below 2.1e-9.
    return lambda x, out: torch._C._nn.softplus(x, alpha, 20, out=out)


_A, _AB = ("alpha",), ("alpha", "beta")
_SIXTH = (1 / 6, 1 / 2)

UNARY_FUNCTIONS = {
    function.name: function
    for function in (
        UnaryFunction(
            "abs", "|s|", _named("abs"), lambda x, a, b: np.abs(x), _torch("abs"), units=0
        ),
        UnaryFunction(
            "clip", "min(max(s, alpha), beta)", _clip, _clip64, _torch_clip, _AB, units=0
        ),
        UnaryFunction(
            "clip_v2", "min(max(s, alpha), beta)", _clip, _clip64, _torch_clip, _AB, units=0
        ),
        UnaryFunction(
            "elu",
            "s if s > 0 else alpha * (exp(s) - 1)",
            _elu,
            lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0.0))),
            _torch_elu,
            _A,
        ),
        UnaryFunction("exp", "exp(s)", _named("exp"), lambda x, a, b: np.exp(x), _torch("exp")),
        UnaryFunction(
            "gelu_erf",
            "0.5 * s * (1 + erf(s / sqrt(2)))",
            _gelu_erf,
            lambda x, a, b: 0.5 * x * (1.0 + _erf64(x / math.sqrt(2.0))),
            _torch_nn("gelu"),
        ),
        UnaryFunction(
            "gelu_tanh",
            "0.5 * s * (1 + tanh(sqrt(2 / pi) * (s + 0.044715 * s^3)))",
            _gelu_tanh,
            lambda x, a, b: _gelu_tanh64(x),
            _torch_nn("gelu", approximate="tanh"),
        ),
        UnaryFunction(
            "hardsigmoid",
            "max(0, min(1, alpha * s + beta))",
            _hardsigmoid,
            _hardsigmoid64,
            _torch_nn("hardsigmoid", *_SIXTH),
            _AB,
            units=0,
        ),
        UnaryFunction(
            "hardswish",
            "s * max(0, min(1, alpha * s + beta))",
            lambda s, alpha, beta: s * _hardsigmoid(s, alpha, beta),
            lambda x, a, b: x * _hardsigmoid64(x, a, b),
            _torch_nn("hardswish", *_SIXTH),
            _AB,
            units=0,
        ),
        UnaryFunction(
            "linear",
            "alpha * s + beta",
            _linear,
            lambda x, a, b: a * x + b,
            _torch_linear,
            _AB,
            units=0,
        ),
        UnaryFunction("log", "log(s)", _named("log"), lambda x, a, b: np.log(x), _torch("log")),
        UnaryFunction(
            "logistic",
            "1 / (1 + exp(-s))",
            lambda s, alpha, beta: logistic(s),
            lambda x, a, b: _logistic64(x),
            _torch("sigmoid"),
        ),
        UnaryFunction(
            "mish",
            "s * tanh(log(1 + exp(s)))",
            _mish,
            lambda x, a, b: x * np.tanh(_soft_plus64(x)),
            _torch_nn("mish"),
        ),
        UnaryFunction(
            "pow", "alpha * s^beta", _pow, lambda x, a, b: a * np.power(x, b), _torch_pow, _AB
        ),
        UnaryFunction(
            "relu", "s if s > 0 else alpha * s", _relu, _relu64, _torch_relu, _A, units=0
        ),
        UnaryFunction(
            "round",
            "s rounded to the nearest whole number, ties to even",
            _named("round"),
            lambda x, a, b: np.rint(x),
            _torch("round"),
            units=0,
        ),
        UnaryFunction(
            "soft_relu",
            "log(1 + exp(alpha * s)) / alpha",
            _soft_relu,
            lambda x, a, b: _soft_plus64(a * x) / a,
            _torch_soft_relu,
            _A,
        ),
        UnaryFunction(
            "sqrt", "sqrt(s)", _named("sqrt"), lambda x, a, b: np.sqrt(x), _torch("sqrt")
        ),
        UnaryFunction(
            "square",
            "s^2",
            lambda s, alpha, beta: s * s,
            lambda x, a, b: x * x,
            _torch("square"),
            units=0,
        ),
        UnaryFunction(
            "swish",
            "s / (1 + exp(-alpha * s))",
            _swish,
            lambda x, a, b: x * _logistic64(a * x),
            _torch_nn("silu", 1.0),
            _A,
        ),
        UnaryFunction(
            "tanh", "tanh(s)", _named("tanh"), lambda x, a, b: np.tanh(x), _torch("tanh")
        ),
    )
}

# Names that PyTorch and JAX have for some of them, and the alpha that these mean.
UNARY_ALIASES = {
    "gelu": ("gelu_erf", 0.0),
    "sigmoid": ("logistic", 0.0),
    "silu": ("swish", 1.0),
    "softplus": ("soft_relu", 1.0),
}
