"""Small integers that constants give: what decides the shapes of dynamic operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add, mul, neg, sub
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.types import Element, Integer, numpy_type
from tilewright.frontends.stablehlo.values import Array
from tilewright.ir import whole_numbers
from tilewright.ir.open_sizes import OpenTruth
from tilewright.tensor.known import is_open

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
    if any(is_open(operand_known) for operand_known in values):
        if name in _BITS and not boolean:
            return None
        return _of_open(_OPEN.get(direction or name), values, result)
    with np.errstate(all="ignore"):
        values_array = np.asarray(compute(*values))
        if result == Integer(1):
            return np.asarray(values_array != 0)
        return np.asarray(values_array.astype(numpy_type(result)))


def _of_open(
    function: Compute | None, values: Sequence[Any], result: Integer
) -> NDArray[Any] | None:
    """``function`` of the elements of arrays, of which some are open, as the type of the result."""
    if function is None:
        return None

    def element(*numbers: Any) -> Any:
        number = function(*numbers)
        truth = isinstance(number, bool | OpenTruth)
        if result == Integer(1):
            return number if truth else whole_numbers.negated(whole_numbers.equal(number, 0))
        number = whole_numbers.chosen(number, 1, 0) if truth else number
        if result.bits < 64:
            return whole_numbers.wrapped(number, result.low, result.high)
        if not result.signed and whole_numbers.less(number, 0):
            raise OverflowError("beyond the sizes of arrays")
        return number

    try:
        of_arrays = np.frompyfunc(element, len(values), 1)
        return np.asarray(of_arrays(*(value.astype(object) for value in values)), object)
    except ArithmeticError:
        return None


# Those of numbers and truth values one by one.
_OPEN: Mapping[str, Compute] = {
    "abs": lambda x: whole_numbers.greatest(x, -x),
    "add": add,
    "and": whole_numbers.both,
    "clamp": lambda low, x, high: whole_numbers.least(whole_numbers.greatest(x, low), high),
    "convert": lambda x: x,
    "divide": whole_numbers.quotient,
    "maximum": whole_numbers.greatest,
    "minimum": whole_numbers.least,
    "multiply": mul,
    "negate": neg,
    "not": whole_numbers.negated,
    "or": whole_numbers.either,
    "remainder": whole_numbers.remainder,
    "select": whole_numbers.chosen,
    "sign": whole_numbers.sign,
    "subtract": sub,
    "xor": whole_numbers.differ,
    "EQ": whole_numbers.equal,
    "NE": lambda a, b: whole_numbers.negated(whole_numbers.equal(a, b)),
    "LT": whole_numbers.less,
    "LE": lambda a, b: whole_numbers.negated(whole_numbers.less(b, a)),
    "GT": lambda a, b: whole_numbers.less(b, a),
    "GE": lambda a, b: whole_numbers.negated(whole_numbers.less(a, b)),
}
_BITS = ("and", "not", "or", "xor")
_OF_TRUTH = (*_BITS, "compare", "convert", "select")
