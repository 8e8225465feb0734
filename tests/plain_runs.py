"""Kernels run point by point with Python's numbers (`plain_values`): a second opinion on the
interpreter, for serial kernels with computes, loops and branches.

Named combiners of floats are exact until they round once; a user's combiners fold in order.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import numpy as np

from plain_values import (
    Scalar,
    bits_of,
    converted,
    evaluated,
    min_or_max,
    of_type,
    with_bits,
)
from tilewright.dtypes import DType
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.load import Load
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Combiner,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    Opaque,
    Result,
    Stmt,
    Store,
    View,
    While,
)

Place = tuple[int, ...]
# One result at one point: the places of its views (None: masked), and their values.
_Update = tuple[list[Place | None], list[Scalar]]


def plain_run(kernel: Kernel, numbers: Mapping[str, Scalar], arrays: dict[str, Any]) -> None:
    """Runs ``kernel`` on numpy arrays of the logical shapes, in place."""
    values: dict[Var, Scalar] = {p.var: numbers[p.name] for p in kernel.scalars}
    run = _Run()
    for param in kernel.arrays:
        run.memory[param.buffer] = _decoded(arrays[param.name], param.dtype)
    run.run(kernel.body, values)
    for param in kernel.arrays:
        if param.access != "in":
            _encode(run.memory[param.buffer], param.dtype, arrays[param.name])


def _decoded(array: Any, type: DType) -> dict[Place, Scalar]:
    codes = np.ascontiguousarray(array).view(f"u{type.bytes}")
    return {place: with_bits(int(codes[place]), type) for place in np.ndindex(array.shape)}


def _encode(elements: Mapping[Place, Scalar], type: DType, array: Any) -> None:
    codes = np.zeros(array.shape, f"u{type.bytes}")
    for place, value in elements.items():
        codes[place] = bits_of(value, type)
    array[...] = codes.view(array.dtype)


@dataclass
class _Run:
    memory: dict[Buffer, dict[Place, Scalar]] = field(default_factory=dict)

    def run(self, stmt: Stmt, values: dict[Var, Scalar]) -> None:
        """Runs ``stmt``; the names that it defines are added to ``values``."""
        match stmt:
            case Block():
                inner = dict(values)
                for part in stmt.body:
                    self.run(part, inner)
            case For():
                for at in range(int(self.value(stmt.extent, values))):
                    self.run(stmt.body, {**values, stmt.var: at})
            case If():
                branch = stmt.then if self.value(stmt.condition, values) else stmt.orelse
                if branch is not None:
                    self.run(branch, dict(values))
            case While():
                while self.value(stmt.condition, values):
                    self.run(stmt.body, dict(values))
            case Opaque():
                self.run(stmt.body, dict(values))
            case Call() if stmt.function in ("prefetch", "prefetch_second"):
                pass  # has no effect on values
            case Let():
                values[stmt.var] = self.value(stmt.value, values)
            case Allocate():
                self.memory[stmt.buffer] = {}
            case Store():
                place = self.place(stmt.index, values)
                self.memory[stmt.buffer][place] = self.value(stmt.value, values)
            case Compute():
                self.compute(stmt, values)
            case _:
                raise TypeError(f"no plain run of {type(stmt).__name__}")

    def value(self, expr: Expr, values: Mapping[Var, Scalar]) -> Scalar:
        return evaluated(expr, values, lambda load: self.loaded(load, values))

    def place(self, index: Sequence[Expr], values: Mapping[Var, Scalar]) -> Place:
        return tuple(int(self.value(part, values)) for part in index)

    def loaded(self, load: Load | View, values: Mapping[Var, Scalar]) -> Scalar:
        type = load.buffer.dtype
        if load.mask is not None and not self.value(load.mask, values):
            return converted(0, type)
        return self.memory[load.buffer][self.place(load.index, values)]

    def compute(self, stmt: Compute, values: dict[Var, Scalar]) -> None:
        ordered = [dim for dim in stmt.dims if dim.ordered]
        free = [dim for dim in stmt.dims if not dim.ordered]
        for before in self.points(ordered, values):
            updates: list[list[_Update]] = [[] for _ in stmt.results]
            for point in self.points(free, before):
                for operand in stmt.operands:
                    point[operand.var] = self.loaded(operand.view, point)
                for result, result_updates in zip(stmt.results, updates, strict=True):
                    result_updates.append(self.update(result, point))
            for result, result_updates in zip(stmt.results, updates, strict=True):
                self.store(result, result_updates)

    def points(self, dims: Sequence[Dim], values: dict[Var, Scalar]) -> Iterator[dict[Var, Scalar]]:
        ranges = [range(int(self.value(dim.extent, values))) for dim in dims]
        for point in itertools.product(*ranges):
            yield {**values, **dict(zip((dim.var for dim in dims), point, strict=True))}

    def update(self, result: Result, point: dict[Var, Scalar]) -> _Update:
        places: list[Place | None] = []
        for view in result.views:
            holds = view.mask is None or self.value(view.mask, point)
            places.append(self.place(view.index, point) if holds else None)
        return places, [self.value(value, point) for value in result.values]

    def store(self, result: Result, updates: Sequence[_Update]) -> None:
        if isinstance(result.combiner, Combiner):
            self.fold(result, result.combiner, updates)
            return
        (view,) = result.views
        elements = self.memory[view.buffer]
        values_at: dict[Place, list[Scalar]] = {}
        for (place,), (value,) in updates:
            if place is not None:
                values_at.setdefault(place, []).append(value)
        for place, new in values_at.items():
            if result.combiner is None:
                elements[place] = new[-1]
            else:
                before = elements[place]
                elements[place] = combined(result.combiner, [before, *new], view.buffer.dtype)

    def fold(self, result: Result, combiner: Combiner, updates: Sequence[_Update]) -> None:
        for places, new in updates:
            targets = [
                (self.memory[view.buffer], place)
                for view, place in zip(result.views, places, strict=True)
                if place is not None
            ]
            if len(targets) < len(places):
                continue
            old = [elements[place] for elements, place in targets]
            scope = dict(zip((*combiner.old, *combiner.new), (*old, *new), strict=True))
            for (elements, place), value in zip(targets, combiner.values, strict=True):
                elements[place] = self.value(value, scope)


def combined(op: str, values: Sequence[Any], type: DType) -> Scalar:
    """``values`` combined exactly by a named combiner; rounded or wrapped once."""
    if op in ("min", "max"):
        result: Scalar = reduce(partial(min_or_max, op), values)
        return result
    if type.kind == "bool":
        return any(values) if op in ("or", "add") else all(values)
    exact = list(values)
    if type.is_float and all(map(math.isfinite, values)):
        exact = [Fraction(value) for value in values]
    return of_type(reduce(_COMBINE[op], exact), type)


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
}
