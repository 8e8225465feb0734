"""Reduction of the values of many points to one element: by operators and by users' combiners.

Named operators reduce floats in f64 and integers exactly (modulo the width of the type), and round
once into the type of the output: ``out = round(out + sum(values))``. A user's combiner rounds to
its types at every operation; its tuples are folded in pairs of neighbours, in the order of the
points (the last dim fastest), and the result is combined with the old value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tilewright.conversions import convert
from tilewright.dtypes import DType, boolean, dtype, f64, s64, u64
from tilewright.errors import UnsupportedError
from tilewright.interpret.lanes import Frame, spread
from tilewright.interpret.values import Evaluator
from tilewright.ir.operators import identity
from tilewright.ir.stmt import Combiner, Compute, Result

# One array (or scalar) for each of a result's views.
Values = list[Any]

_ACCUMULATE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}
_ACCUMULATE_BOOL: dict[str, np.ufunc] = {
    "add": np.bitwise_or,
    "mul": np.bitwise_and,
    "min": np.bitwise_and,
}


class Combining(Protocol):
    """The way in which a result reduces values."""

    def reduce(self, values: Values, mask: Any, shape: tuple[int, ...], axes: Any) -> Values:
        """``values`` over ``shape``, where ``mask`` holds, with ``axes`` combined (and kept)."""

    def merge(self, values: Values, others: Values) -> Values:
        """Two reduced values for each element as one."""

    def segments(self, values: Values, starts: Any) -> Values:
        """Reduces consecutive values: those from one of ``starts`` to the next become one."""

    def onto(self, before: Values, values: Values) -> Values:
        """Reduced ``values`` combined with the old ones, ``before``, in the types of memory."""


def combining(stmt: Compute, result: Result, evaluator: Evaluator) -> Combining | None:
    """The way in which ``result`` combines; None for an assignment."""
    if result.combiner is None:
        return None
    if isinstance(result.combiner, Combiner):
        return _UserCombining(stmt, result.combiner, evaluator)
    return _OperatorCombining(stmt.name, result.combiner, result.views[0].buffer.dtype)


class _OperatorCombining:
    """By one of the binary operators."""

    def __init__(self, stmt: str, combiner: str, type: DType) -> None:
        self._type = type
        self._combiner = combiner
        operators = {**_ACCUMULATE, **_ACCUMULATE_BOOL} if type is boolean else _ACCUMULATE
        accumulate = operators.get(combiner)
        if accumulate is None:
            raise UnsupportedError(
                f"{combiner!r} of the op {stmt!r} does not combine",
                why="the order of a reduction is free, so its combiner must be associative",
                cure="choose one of " + ", ".join(_ACCUMULATE),
            )
        self._accumulate = accumulate

    def reduce(self, values: Values, mask: Any, shape: tuple[int, ...], axes: Any) -> Values:
        wide = self._widened(values[0])
        if mask is not None:
            nothing = identity(self._combiner, dtype(wide.dtype))
            wide = np.where(mask, wide, np.asarray(nothing).astype(wide.dtype))
        wide = spread(wide, shape)
        if not axes:
            return [wide]
        reduced = self._accumulate.reduce(wide, axis=axes, dtype=wide.dtype, keepdims=True)
        return [self._with_signed_zeros(reduced, wide, lambda x: x.any(axis=axes, keepdims=True))]

    def merge(self, values: Values, others: Values) -> Values:
        merged = self._accumulate(values[0], others[0])
        if self._combiner not in ("min", "max"):
            return [merged]
        both = np.stack(np.broadcast_arrays(values[0], others[0]))
        return [self._with_signed_zeros(merged, both, lambda x: x.any(axis=0))]

    def segments(self, values: Values, starts: Any) -> Values:
        reduced = self._accumulate.reduceat(values[0], starts)
        return [
            self._with_signed_zeros(reduced, values[0], lambda x: np.logical_or.reduceat(x, starts))
        ]

    def onto(self, before: Values, values: Values) -> Values:
        return [self._rounded(self.merge([self._widened(before[0])], values)[0])]

    def _with_signed_zeros(self, result: Any, values: Any, occurs: Callable[[Any], Any]) -> Any:
        """``result``, reduced from ``values``, with the right zeros: to min, -0.0 is less than 0.0,
        and numpy gives either. ``occurs`` reduces a condition on the values by "any" alike."""
        if self._combiner not in ("min", "max") or not self._type.is_float:
            return result
        if not np.any(result == 0):
            return result
        negative = self._combiner == "min"
        wins = occurs((values == 0) & (np.signbit(values) == negative))
        zero = np.where(wins == negative, -0.0, 0.0)
        return np.where(result == 0, zero, result)

    def _widened(self, values: Any) -> Any:
        """Values as their accumulator: f64, 64-bit integers (which wrap), or bool."""
        wide: Any = np.uint64 if self._type is u64 else np.int64
        if self._type.is_float or self._type is boolean:
            wide = np.float64 if self._type.is_float else np.bool_
        return np.asarray(values).astype(wide, copy=False)

    def _rounded(self, values: Any) -> Any:
        if self._type is boolean:
            return values
        return convert(values, f64 if self._type.is_float else s64, self._type)


class _UserCombining:
    """By a combiner that the compute declares."""

    def __init__(self, stmt: Compute, combiner: Combiner, evaluator: Evaluator) -> None:
        self._stmt = stmt
        self._combiner = combiner
        self._evaluator = evaluator
        self._types = [variable.type.numpy for variable in combiner.old]

    def reduce(self, values: Values, mask: Any, shape: tuple[int, ...], axes: Any) -> Values:
        whole: Values = []
        for value, start, type_ in zip(values, self._combiner.identity, self._types, strict=True):
            array = np.asarray(value).astype(type_, copy=False)
            if mask is not None:
                neutral = self._evaluator.evaluate(start, Frame({}), self._stmt)
                array = np.where(mask, array, np.asarray(neutral).astype(type_))
            whole.append(spread(array, shape))
        if not axes:
            return whole
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        last = range(-len(axes), 0)
        rows = [np.moveaxis(array, axes, last) for array in whole]
        outer = rows[0].shape[: len(shape) - len(axes)]
        rows = [row.reshape(*outer, -1) for row in rows]
        while rows[0].shape[-1] > 1:
            even = rows[0].shape[-1] // 2 * 2
            pairs = self.merge(
                [row[..., 0:even:2] for row in rows], [row[..., 1:even:2] for row in rows]
            )
            rows = [
                np.concatenate((pair, row[..., even:]), axis=-1)
                for pair, row in zip(pairs, rows, strict=True)
            ]
        return [row.reshape(kept) for row in rows]

    def merge(self, values: Values, others: Values) -> Values:
        names = (*self._combiner.old, *self._combiner.new)
        frame = Frame(dict(zip(names, (*values, *others), strict=True)))
        shape = np.broadcast_shapes(*(np.shape(v) for v in (*values, *others)))
        return [
            np.broadcast_to(self._evaluator.evaluate(value, frame, self._stmt), shape).astype(type_)
            for value, type_ in zip(self._combiner.values, self._types, strict=True)
        ]

    def segments(self, values: Values, starts: Any) -> Values:
        count = len(values[0])
        first = np.zeros(count, np.bool_)
        first[starts] = True
        number = np.cumsum(first) - 1
        while count > len(starts):
            begin = np.flatnonzero(first)
            left = np.flatnonzero((np.arange(count) - begin[number]) % 2 == 0)
            left_with = left[(left + 1 < count) & ~first[np.minimum(left + 1, count - 1)]]
            pairs = self.merge([v[left_with] for v in values], [v[left_with + 1] for v in values])
            values = [v.copy() for v in values]
            for value, pair in zip(values, pairs, strict=True):
                value[left_with] = pair
            values = [v[left] for v in values]
            first, number = first[left], number[left]
            count = len(left)
        return values

    def onto(self, before: Values, values: Values) -> Values:
        return self.merge(before, values)
