"""Factors of products that are integers of 8 bits, less a zero point, times a scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.dtypes import DType, s32
from tilewright.graph.passes.loaded import loaded
from tilewright.graph.passes.values import Values
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Var,
    all_of,
    cast,
    conjuncts,
    const,
)
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import loads_in, reads_memory, substitute, variables
from tilewright.schedule.queries.flow import whole
from tilewright.tensor.elementwise import is_exact
from tilewright.tensor.places import guarded

# What makes a factor lies in so many computes, one after the other, at most.
_DEPTH = 8


@dataclass(frozen=True)
class Factor:
    """``scale * (element - zero)`` where the mask of ``element`` holds, else 0. ``element`` loads
    an integer of 8 bits; ``zero`` is of s32, ``scale`` of any type, None for 1."""

    element: Load
    zero: Expr
    scale: Expr | None

    @property
    def settings(self) -> tuple[Expr, ...]:
        """The zero point and the scale."""
        return (self.zero,) if self.scale is None else (self.zero, self.scale)


class Factors:
    """Finds what factors of products in ``kernel`` are made of."""

    def __init__(self, kernel: Kernel, values: Values) -> None:
        self._values = values
        self._contents: Mapping[Buffer, Any] = {
            array.buffer: kernel.constants[array.digest]
            for array in kernel.arrays
            if array.digest is not None and array.digest in kernel.constants
        }

    def find(self, value: Expr, depth: int = _DEPTH) -> Factor | None:
        """``value`` as an integer of 8 bits with a zero point and a scale; None where it is not."""
        match value:
            case Load():
                return self._loaded(value, depth)
            case Cast():
                factor = self.find(value.a, depth)
                return factor if factor is not None and _keeps(factor, value) else None
            case Binary(op="add" | "sub"):
                return self._shifted(value, depth)
            case Binary(op="mul" | "div"):
                return self._scaled(value, depth)
            case _:
                return None

    def _loaded(self, value: Load, depth: int) -> Factor | None:
        if not self._values.is_value(value.buffer) or _looks_up(value):
            return None
        if value.type.is_integer and value.type.bits == 8:
            return Factor(value, const(0, s32), None)
        expr = self._made(value)
        factor = None if expr is None or not depth else self.find(expr, depth - 1)
        if factor is None or value.mask is None:
            return factor
        # Outside of either mask the factor is 0.
        element = factor.element
        mask = all_of(
            condition for condition in (element.mask, value.mask) if condition is not None
        )
        return Factor(
            load(element.buffer, element.index, mask),
            _where(value.mask, factor.zero),
            None if factor.scale is None else _where(value.mask, factor.scale),
        )

    def _shifted(self, value: Binary, depth: int) -> Factor | None:
        factor, zero = self.find(value.a, depth), value.b
        if factor is None and value.op == "add":
            factor, zero = self.find(value.b, depth), value.a
        number = None if factor is None else self.number(zero)
        # What is masked is 0 before something is taken away, and what is scaled no integer.
        if factor is None or number is None:
            return None
        if factor.scale is not None or factor.element.mask is not None:
            return None
        if not value.type.is_float and not _holds(value.type):
            # Such differences wrap around.
            return None
        if value.op == "add":
            return replace(factor, zero=factor.zero - number)
        return replace(factor, zero=factor.zero + number)

    def _scaled(self, value: Binary, depth: int) -> Factor | None:
        factor, scale = self.find(value.a, depth), value.b
        if factor is None and value.op == "mul":
            factor, scale = self.find(value.b, depth), value.a
        if factor is None or not value.type.is_float or not self._is_setting(scale):
            return None
        if value.op == "div":
            scale = const(1.0, scale.type) / scale
        before = factor.scale
        return replace(factor, scale=scale if before is None else cast(scale.type, before) * scale)

    def _is_setting(self, value: Expr) -> bool:
        return all(
            read.mask is None and not _looks_up(read) and self._values.is_value(read.buffer)
            for read in loads_in(value)
        )

    def number(self, value: Expr, depth: int = _DEPTH) -> Expr | None:
        """``value``, a whole number by its type or by what constants hold, as s32."""
        if not self._is_setting(value):
            return None
        if isinstance(value, Load) and value.buffer in self._contents:
            contents = np.asarray(self._contents[value.buffer], np.float64)
            if contents.size and np.all(contents == contents.flat[0]):
                return _whole(contents.flat[0])
        if value.type.is_integer:
            return cast(s32, value)
        match value:
            case Const():
                return _whole(value.value)
            case Cast():
                return self.number(value.a, depth)
            case Load() if value.buffer in self._contents:
                contents = np.asarray(self._contents[value.buffer], np.float64)
                return cast(s32, value) if all(map(_is_whole, contents.flat)) else None
            case Load():
                expr = self._made(value)
                return None if expr is None or not depth else self.number(expr, depth - 1)
            case _:
                return None

    def bounds(self, value: Expr, depth: int = _DEPTH) -> tuple[int, int] | None:
        """The least and the greatest that a zero point may be, where that is known."""
        match value:
            case Const():
                return int(value.value), int(value.value)
            case Cast():
                return self.bounds(value.a, depth)
            case Binary(op="add" | "sub"):
                a, b = self.bounds(value.a, depth), self.bounds(value.b, depth)
                if a is None or b is None:
                    return None
                return (
                    (a[0] + b[0], a[1] + b[1]) if value.op == "add" else (a[0] - b[1], a[1] - b[0])
                )
            case Select():
                a, b = self.bounds(value.a, depth), self.bounds(value.b, depth)
                return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
            case Load() if value.buffer in self._contents:
                contents = np.asarray(self._contents[value.buffer], np.float64)
                return (int(contents.min()), int(contents.max())) if contents.size else (0, 0)
            case Load() if value.type.is_integer and value.type.bits == 8:
                return int(value.type.lowest), int(value.type.highest)
            case Load():
                expr = self._made(value)
                return None if expr is None or not depth else self.bounds(expr, depth - 1)
            case _:
                return None

    def is_constant(self, value: Expr, fixed: frozenset[Buffer] = frozenset()) -> bool:
        """Whether all that ``value`` loads is made of constants, or of ``fixed`` buffers, alone."""
        left, seen = [read.buffer for read in loads_in(value)], set[Buffer]()
        while left:
            buffer = left.pop()
            if buffer in seen or buffer in self._contents or buffer in fixed:
                continue
            seen.add(buffer)
            makers = self._values.made.get(buffer, ())
            if not makers:
                return False
            left += frozenset[Buffer]().union(*(self._values.reads[n] for n in makers))
        return True

    def _made(self, value: Load) -> Expr | None:
        """What ``value`` loads, where a compute makes it element by element."""
        makers = self._values.makers(value.buffer)
        if len(makers) != 1:
            return None
        compute = makers[0]
        if not _is_elementwise(compute):
            return None
        values: dict[Var, Expr] = {
            var: index
            for var, index in zip(compute.out.index, value.index, strict=True)
            if isinstance(var, Var)
        }
        return substitute(loaded(compute)[0].values[0], values)


def _where(mask: Expr, setting: Expr) -> Expr:
    """``setting`` of a factor, 0 where ``mask`` hides the factor: it may have no place in memory
    there."""
    used = variables(setting)
    conditions = [conjunct for conjunct in conjuncts(mask) if variables(conjunct) <= used]
    inside = all_of(conditions) if used else None
    return setting if inside is None else guarded(setting, inside, const(0, setting.type))


def _whole(number: float) -> Expr | None:
    return const(int(number), s32) if _is_whole(number) else None


def _is_whole(number: float) -> bool:
    """Whether s32 has ``number``."""
    return number % 1 == 0 and s32.lowest <= number <= s32.highest


def _is_elementwise(compute: Compute) -> bool:
    if len(compute.outputs) != 1 or compute.results[0].combiner is not None or compute.is_ordered:
        return False
    order = whole(compute, compute.out)
    return order is not None and len(order) == len(compute.dims)


def _keeps(factor: Factor, value: Cast) -> bool:
    """Whether a conversion changes nothing: differences of integers of 8 bits have 9."""
    old, new = value.a.type, value.type
    if is_exact(old, new) or old is new:
        return True
    if factor.scale is not None or not old.is_integer or not old.bits > 8:
        return False
    return _holds(new)


def _holds(type_: DType) -> bool:
    if type_.is_float:
        return type_.digits >= 10
    return type_.kind == "int" and type_.bits >= 16


def _looks_up(value: Load) -> bool:
    """Whether its place depends on what memory holds."""
    places = (*value.index, *(() if value.mask is None else (value.mask,)))
    return any(map(reads_memory, places))
