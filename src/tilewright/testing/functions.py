"""Elementwise functions in float64, by the names of oneDNN's primitives.

The formulas are those of oneDNN's developer guide ("Eltwise", "Binary", "PReLU").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def _erf(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.ravel()), np.float64, x.size).reshape(x.shape)


def _logistic(x: Array) -> Any:
    # exp of a positive number overflows: use the half of the formula that does not.
    tail = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + tail), tail / (1.0 + tail))


def _soft_relu(x: Array) -> Any:
    return np.logaddexp(0.0, x)


def _gelu_tanh(x: Array) -> Any:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _hardsigmoid(x: Array, alpha: float, beta: float) -> Any:
    return np.clip(alpha * x + beta, 0.0, 1.0)


# Each takes x, alpha and beta.
ELTWISE: dict[str, Callable[[Array, float, float], Any]] = {
    "abs": lambda x, a, b: np.abs(x),
    "clip": lambda x, a, b: np.minimum(np.maximum(x, a), b),
    "clip_v2": lambda x, a, b: np.minimum(np.maximum(x, a), b),
    "elu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0.0))),
    "exp": lambda x, a, b: np.exp(x),
    "gelu_erf": lambda x, a, b: 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))),
    "gelu_tanh": lambda x, a, b: _gelu_tanh(x),
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x, a, b: x * _hardsigmoid(x, a, b),
    "linear": lambda x, a, b: a * x + b,
    "log": lambda x, a, b: np.log(x),
    "logistic": lambda x, a, b: _logistic(x),
    "mish": lambda x, a, b: x * np.tanh(_soft_relu(x)),
    "pow": lambda x, a, b: a * np.power(x, b),
    "relu": lambda x, a, b: np.where(x > 0, x, a * x),
    "round": lambda x, a, b: np.rint(x),
    "soft_relu": lambda x, a, b: _soft_relu(a * x) / a,
    "sqrt": lambda x, a, b: np.sqrt(x),
    "square": lambda x, a, b: x * x,
    "swish": lambda x, a, b: x * _logistic(a * x),
    "tanh": lambda x, a, b: np.tanh(x),
}

BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "max": np.maximum,
    "min": np.minimum,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "eq": np.equal,
    "ne": np.not_equal,
    "prelu": lambda x, slope: np.where(x > 0, x, x * slope),
}


def eltwise(name: str, x: Any, alpha: float = 0.0, beta: float = 0.0) -> Array:
    """The function called ``name`` of every element; `KeyError` for an unknown one."""
    with np.errstate(all="ignore"):
        result = ELTWISE[name](np.asarray(x, np.float64), alpha, beta)
    return np.asarray(result, np.float64)


def binary(name: str, a: Any, b: Any) -> Array:
    """The function called ``name`` of two arrays that broadcast; comparisons give 0 and 1."""
    with np.errstate(all="ignore"):
        result = BINARY[name](np.asarray(a, np.float64), np.asarray(b, np.float64))
    return np.asarray(result, np.float64)
