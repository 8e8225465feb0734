"""The operators of expressions: what each computes, and on which types it is defined.

They compute on Python numbers; it is `expr.const` that rounds or wraps what they give to a type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


def _true_div(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def _power(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.power(np.float64(a), np.float64(b)))


def _minimum(a: Any, b: Any) -> Any:
    return a if a < b or a != a else b


def _maximum(a: Any, b: Any) -> Any:
    return a if a > b or a != a else b


# What each operator computes on Python numbers. Division by zero of integers gives 0, so that
# every expression has a value and the interpreter, the simplifier and the targets agree.
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _true_div,
    "floordiv": _floordiv,
    "mod": _mod,
    "xor": lambda a, b: a ^ b,
    "min": _minimum,
    "max": _maximum,
    "pow": _power,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}
COMPARISONS = frozenset({"lt", "le", "eq", "ne"})
LOGICAL = frozenset({"and", "or"})
INTEGER_ONLY = frozenset({"floordiv", "mod", "xor"})
FLOAT_ONLY = frozenset({"div", "pow"})


def _numpy_unary(function: Callable[[Any], Any]) -> Callable[[float], float]:
    def evaluate(a: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(np.float64(a)))

    return evaluate


UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda a: -a,
    "not": lambda a: not a,
    "abs": abs,
    "exp": _numpy_unary(np.exp),
    "exp2": _numpy_unary(np.exp2),
    "log": _numpy_unary(np.log),
    "log1p": _numpy_unary(np.log1p),
    "sqrt": _numpy_unary(np.sqrt),
    "rsqrt": _numpy_unary(lambda a: 1.0 / np.sqrt(a)),
    "sin": _numpy_unary(np.sin),
    "cos": _numpy_unary(np.cos),
    "tanh": _numpy_unary(np.tanh),
    "erf": lambda a: math.erf(a),
    "floor": _numpy_unary(np.floor),
    "ceil": _numpy_unary(np.ceil),
    "round": _numpy_unary(np.rint),  # to nearest, ties to even
}
FLOAT_ONLY_UNARY = frozenset(UNARY) - {"neg", "not", "abs"}
