"""Small integers that constants give: what decides the shapes of dynamic operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.types import Element, Integer, numpy_type
from tilewright.frontends.stablehlo.values import Array

Compute = Callable[..., Any]


def _quotient(a: NDArray[Any], b: NDArray[Any]) -> Any:
    safe = np.where(b == 0, 1, b)
    size = np.abs(a) // np.abs(safe)
    return np.where(b == 0, -1, np.where((a < 0) != (b < 0), -size, size))


def _rest(a: NDArray[Any], b: NDArray[Any]) -> Any:
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))


_FUNCTIONS: Mapping[str, Compute] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "convert": lambda x: x,
    "divide": _quotient,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negate": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "remainder": _rest,
    "select": np.where,
    "sign": np.sign,
    "subtract": np.subtract,
    "xor": np.bitwise_xor,
}
_COMPARISONS: Mapping[str, Compute] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def elementwise(
    operation: Operation, operands: Sequence[Array], result: Element, direction: str = ""
) -> NDArray[Any] | None:
    """What an operation gives of known integers; None where it is not known.

    Truth values and integers of 8 bits and more only.
    """
    values = [operand.known for operand in operands]
    if any(value is None for value in values) or not isinstance(result, Integer):
        return None
    narrow = [*(operand.element for operand in operands), result]
    if any(
        isinstance(operand_type, Integer) and operand_type.bits in (2, 4) for operand_type in narrow
    ):
        return None
    name = operation.name.partition(".")[2]
    compute = _COMPARISONS.get(direction) if name == "compare" else _FUNCTIONS.get(name)
    boolean = operands[0].element == Integer(1)
    if compute is None or (boolean and name not in _OF_TRUTH):
        return None
    with np.errstate(all="ignore"):
        values_array = np.asarray(compute(*values))
        if result == Integer(1):
            return np.asarray(values_array != 0)
        return np.asarray(values_array.astype(numpy_type(result)))


_OF_TRUTH = ("and", "compare", "convert", "not", "or", "select", "xor")
