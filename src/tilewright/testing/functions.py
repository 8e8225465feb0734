"""Elementwise functions in float64, by the names of oneDNN's primitives."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.problems import BINARY_RECORDS, UNARY_FUNCTIONS
from tilewright.problems.unary_functions import Array


def eltwise(name: str, x: Any, alpha: float = 0.0, beta: float = 0.0) -> Array:
    """The function called ``name`` of every element; `KeyError` for an unknown one."""
    with np.errstate(all="ignore"):
        result = UNARY_FUNCTIONS[name].reference(np.asarray(x, np.float64), alpha, beta)
    return np.asarray(result, np.float64)


def binary(name: str, a: Any, b: Any) -> Array:
    """The function called ``name`` of two arrays that broadcast; comparisons give 0 and 1.

    ``prelu`` is a post-op: its second argument is the factor of elements that are not positive.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(all="ignore"):
        if name == "prelu":
            return np.asarray(np.where(a > 0, a, a * b))
        return np.asarray(BINARY_RECORDS[name].reference(a, b), np.float64)
