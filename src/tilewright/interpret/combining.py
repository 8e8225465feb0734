"""How the values of many points become one element: what a result of a compute combines by.

Named operators reduce floats in f64 and integers exactly (modulo the width of the type), and round
once into the type of the output: ``out = round(out + sum(values))``. A user's combiner rounds to
its types at every operation; its tuples are folded in pairs of neighbours, in the order of the
points (the last dim fastest), and what comes of that is combined with what was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tilewright.conversions import convert
from tilewright.dtypes import DType, boolean, f64, s64, u64
from tilewright.errors import UnsupportedError
from tilewright.interpret.lanes import Frame, spread
from tilewright.interpret.values import Evaluator
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
    """What a result does with several values for one element."""

    def reduce(self, values: Values, mask: Any, shape: tuple[int, ...], axes: Any) -> Values:
        """``values`` over ``shape``, where ``mask`` holds, with ``axes`` combined (and kept)."""

    def merge(self, values: Values, others: Values) -> Values:
        """Two reduced values for each element as one."""

    def segments(self, values: Values, starts: Any) -> Values:
        """Reduced values in a row, those between two ``starts`` as one."""

    def onto(self, before: Values, values: Values) -> Values:
        """Reduced ``values`` on what was there ``before``, in the types that memory has."""


def combining(stmt: Compute, result: Result, evaluator: Evaluator) -> Combining | None:
    """How ``result`` combines; None where it assigns."""
    if result.combiner is None:
        return None
    if isinstance(result.combiner, Combiner):
        return _Own(stmt, result.combiner, evaluator)
    return _Named(stmt.name, result.combiner, result.views[0].buffer.dtype)


class _Named:
    """By one of the binary operators."""

    def __init__(self, stmt: str, combiner: str, type: DType) -> None:
        self._type = type
        self._combiner = combiner
        operators = {**_ACCUMULATE, **_ACCUMULATE_BOOL} if type is boolean else _ACCUMULATE
        found = operators.get(combiner)
        if found is None:
            raise UnsupportedError(
                f"{combiner!r} of the op {stmt!r} does not combine",
                why="the order of a reduction is free, so its combiner must be associative",
                cure="choose one of " + ", ".join(_ACCUMULATE),
            )
        self._accumulate = found

    def reduce(self, values: Values, mask: Any, shape: tuple[int, ...], axes: Any) -> Values:
        wide = self._widened(values[0])
        if mask is not None:
            wide = np.where(mask, wide, self._identity(wide.dtype))
        wide = spread(wide, shape)
        if not axes:
            return [wide]
        found = self._accumulate.reduce(wide, axis=axes, dtype=wide.dtype, keepdims=True)
        return [self._signed(found, wide, lambda x: x.any(axis=axes, keepdims=True))]

    def merge(self, values: Values, others: Values) -> Values:
        found = self._accumulate(values[0], others[0])
        if self._combiner not in ("min", "max"):
            return [found]
        both = np.stack(np.broadcast_arrays(values[0], others[0]))
        return [self._signed(found, both, lambda x: x.any(axis=0))]

    def segments(self, values: Values, starts: Any) -> Values:
        found = self._accumulate.reduceat(values[0], starts)
        return [self._signed(found, values[0], lambda x: np.logical_or.reduceat(x, starts))]

    def onto(self, before: Values, values: Values) -> Values:
        return [self._rounded(self.merge([self._widened(before[0])], values)[0])]

    def _signed(self, found: Any, values: Any, occurs: Callable[[Any], Any]) -> Any:
        """``found`` of ``values`` with the right zeros: to min, -0.0 is less than 0.0; numpy gives
        either. ``occurs`` says whether there is a true one among those that were combined."""
        if self._combiner not in ("min", "max") or not self._type.is_float:
            return found
        if not np.any(found == 0):
            return found
        negative = self._combiner == "min"
        wins = occurs((values == 0) & (np.signbit(values) == negative))
        zero = np.where(wins == negative, -0.0, 0.0)
        return np.where(found == 0, zero, found)

    def _identity(self, dtype: np.dtype[Any]) -> Any:
        """What leaves the other operand as it is."""
        if dtype == np.bool_:
            return self._accumulate is np.bitwise_and
        if dtype == np.float64:
            return {"add": 0.0, "mul": 1.0, "min": np.inf, "max": -np.inf}[self._combiner]
        bounds = np.iinfo(dtype)
        ones = bounds.max if dtype == np.uint64 else -1
        least, most = bounds.min, bounds.max
        identities = {"add": 0, "mul": 1, "min": most, "max": least, "and": ones, "or": 0}
        return identities[self._combiner]

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


class _Own:
    """By a combiner that the compute declares."""

    def __init__(self, stmt: Compute, combiner: Combiner, evaluator: Evaluator) -> None:
        self._stmt = stmt
        self._combiner = combiner
        self._evaluator = evaluator
        self._types = [variable.type.numpy for variable in combiner.old]

    def reduce(self, values: Values, mask: Any, shape: tuple[int, ...], axes: Any) -> Values:
        whole: Values = []
        for value, identity, type_ in zip(
            values, self._combiner.identity, self._types, strict=True
        ):
            array = np.asarray(value).astype(type_, copy=False)
            if mask is not None:
                neutral = self._evaluator.evaluate(identity, Frame({}), self._stmt)
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
