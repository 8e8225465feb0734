"""Nodes that calculate with sizes that calls pass: what they give is known, too, as integers that
stand for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import onnx

from tilewright.dtypes import s64
from tilewright.frontends.onnx.values import attribute_of, type_of
from tilewright.ir.expr import StandIn
from tilewright.ir.whole_numbers import quotient, remainder
from tilewright.tensor.known import is_open

Array = np.ndarray[Any, Any]


def calculated(node: onnx.NodeProto, known: Sequence[Array | None]) -> list[Array] | None:
    """The results of a node on sizes and numbers; None where it is none that calculates with
    those."""
    handler = _HANDLERS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if handler is None:
        return None
    attributes = {attribute.name: attribute_of(attribute) for attribute in node.attribute}
    values = [None if array is None else _objects(array) for array in known]
    if any(array is not None and not _is_whole(array) for array in values):
        return None
    try:
        result = handler(attributes, *values)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return None if result is None else [_plain(array) for array in result]


def _objects(array: Array) -> Array:
    return array if array.dtype == object else array.astype(object)


def _is_whole(array: Array) -> bool:
    return all(isinstance(number, int | np.bool_) for number in array.reshape(-1))


def _plain(array: Any) -> Array:
    """``array`` with a type of its own, where all of it is numbers."""
    result = np.asarray(array, object)
    if is_open(result):
        return result
    logical = result.size > 0 and all(isinstance(e, bool | np.bool_) for e in result.reshape(-1))
    return result.astype(np.bool_ if logical else np.int64)


Attributes = Mapping[str, Any]
Handler = Callable[..., Sequence[Any] | None]


def _of_elements(function: Callable[..., Any]) -> Handler:
    """An op of elements, which broadcast."""
    of_arrays = np.frompyfunc(function, function.__code__.co_argcount, 1)
    return lambda at, *values: [of_arrays(*values)]


def _rest(at: Attributes, a: Array, b: Array) -> Sequence[Any] | None:
    truncated = _of_elements(remainder)
    return (truncated if at.get("fmod", 0) else _of_elements(lambda a, b: a % b))(at, a, b)


def _folded(function: Callable[[Any, Any], Any]) -> Handler:
    """An op of any number of operands, taken two at a time."""
    of_arrays = np.frompyfunc(function, 2, 1)
    return lambda at, *values: [reduce(of_arrays, values)]


def _ints(array: Array | None, usual: Any = None) -> list[int]:
    return list(usual) if array is None else list(array.reshape(-1))


def _axes(at: Attributes, array: Array | None, usual: Any) -> tuple[int, ...]:
    return tuple(at["axes"]) if "axes" in at else tuple(_ints(array, usual))


def _reduced(function: Callable[[Sequence[int]], int]) -> Handler:
    def reduced(at: Attributes, x: Array, axes: Array | None = None) -> Sequence[Any] | None:
        if x.ndim != 1 or (at.get("noop_with_empty_axes", 0) and not _axes(at, axes, ())):
            return None
        total = np.array(function(list(x)), object)
        return [total.reshape(1) if at.get("keepdims", 1) else total]

    return reduced


def _slice(
    at: Attributes, x: Array, starts: Any = None, ends: Any = None, axes: Any = None, by: Any = None
) -> Sequence[Any] | None:
    first, last = at.get("starts", _ints(starts, ())), at.get("ends", _ints(ends, ()))
    index = [slice(None)] * x.ndim
    steps = _ints(by, [1] * len(first))
    for n, a, b, c in zip(_axes(at, axes, range(len(first))), first, last, steps, strict=True):
        if any(isinstance(operand, StandIn) for operand in (a, b, c)):
            return None
        index[n] = slice(int(a), None if c < 0 and b < -x.shape[n] else int(b), int(c))
    return [x[tuple(index)]]


def _gather(at: Attributes, x: Array, indices: Array) -> Sequence[Any] | None:
    return None if is_open(indices) else [np.take(x, indices.astype(np.int64), at.get("axis", 0))]


def _cast(at: Attributes, x: Array) -> Sequence[Any] | None:
    return [x] if type_of(at["to"]) is s64 else None


def _reshape(at: Attributes, x: Array, shape: Array | None = None) -> Sequence[Any] | None:
    return None if shape is None or is_open(shape) else [x.reshape(_ints(shape))]


def _expand(at: Attributes, x: Array, shape: Array) -> Sequence[Any] | None:
    return None if is_open(shape) else [x * np.ones(_ints(shape), object)]


def _unsqueeze(at: Attributes, x: Array, axes: Array | None = None) -> Sequence[Any]:
    return [np.expand_dims(x, _axes(at, axes, ()))]


def _squeeze(at: Attributes, x: Array, axes: Array | None = None) -> Sequence[Any]:
    gone = _axes(at, axes, ())
    return [np.squeeze(x, gone or None)]


_HANDLERS: dict[str, Handler] = {
    "Identity": lambda at, x: [x],
    "Cast": _cast,
    "Add": _of_elements(lambda a, b: a + b),
    "Sub": _of_elements(lambda a, b: a - b),
    "Mul": _of_elements(lambda a, b: a * b),
    "Div": _of_elements(quotient),
    "Mod": _rest,
    "Neg": _of_elements(lambda a: -a),
    "Abs": _of_elements(lambda a: abs(a)),
    "Not": _of_elements(lambda a: not a),
    "And": _of_elements(lambda a, b: a and b),
    "Or": _of_elements(lambda a, b: a or b),
    "Equal": _of_elements(lambda a, b: a == b),
    "Less": _of_elements(lambda a, b: a < b),
    "LessOrEqual": _of_elements(lambda a, b: a <= b),
    "Greater": _of_elements(lambda a, b: a > b),
    "GreaterOrEqual": _of_elements(lambda a, b: a >= b),
    "Where": _of_elements(lambda c, a, b: a if c else b),
    "Max": _folded(max),
    "Min": _folded(min),
    "ReduceProd": _reduced(prod),
    "ReduceSum": _reduced(sum),
    "ReduceMax": _reduced(max),
    "ReduceMin": _reduced(min),
    "Concat": lambda at, *parts: [np.concatenate(parts, at["axis"])],
    "Gather": _gather,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Expand": _expand,
}
