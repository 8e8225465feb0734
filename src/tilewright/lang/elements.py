"""Elements of arrays and of tuples: checks of indices."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dtypes import s64
from tilewright.ir import expr as ir
from tilewright.ir.expr import Expr
from tilewright.ir.load import load
from tilewright.lang.scope import Scope
from tilewright.lang.values import Array, Vector, described, is_literal


class Elements(Scope):
    """The part of `Expressions` for indices."""

    def _subscript(self, node: ast.Subscript) -> Any:
        value = self.value(node.value)
        if isinstance(value, Array):
            index = self.index(value, node.slice)
            guard = None if value.private else self.guard
            return load(value.buffer, index, guard)
        if isinstance(value, Vector):
            element = self._of_tuple(value.parts, node, "a vector")
            if not isinstance(element, tuple):
                return element
            if not element:
                raise self.refuse("a vector of 0", cure="take a slice of 1 element or more")
            return Vector(element)
        if isinstance(value, tuple):
            if value and not isinstance(node.slice, ast.Slice) and all(map(is_literal, value)):
                position = self.value(node.slice)
                if isinstance(position, Expr):
                    table = self.translation.tables.of_numbers(self.refuse, value)
                    place = self.place(table, [position], node.slice)
                    return load(table.buffer, place, self.guard)
                constant = ast.copy_location(ast.Constant(position), node.slice)
                node = ast.copy_location(ast.Subscript(node.value, constant), node)
            return self._of_tuple(value, node, "a tuple")
        raise self.refuse(f"{described(value)} has no elements", cure="index an array or a tuple")

    def by_elements(self, act: Callable[..., Any], values: Sequence[Any]) -> Vector:
        """A vector of the results of ``act`` for the elements of several vectors; numbers count for
        each element."""
        lengths = {len(value.parts) for value in values if isinstance(value, Vector)}
        if len(lengths) > 1:
            several = " and ".join(map(str, sorted(lengths)))
            raise self.refuse(f"vectors of {several}", cure="take vectors of one length")
        for value in values:
            if not isinstance(value, Vector):
                self._check_number(value, "an operand beside a vector", self.node)
        (length,) = lengths
        rows = [value.parts if isinstance(value, Vector) else (value,) * length for value in values]
        return Vector(tuple(act(*row) for row in zip(*rows, strict=True)))

    def _of_tuple(self, value: tuple[Any, ...], node: ast.Subscript, what: str) -> Any:
        if isinstance(node.slice, ast.Slice):
            parts = (node.slice.lower, node.slice.upper, node.slice.step)
            bounds = [None if part is None else self.static_integer(part) for part in parts]
            if bounds[2] == 0:
                raise self.refuse("a slice by steps of 0", cure="take steps of 1 or more, or of -1")
            return value[slice(*bounds)]
        position = self.static_integer(node.slice)
        if not -len(value) <= position < len(value):
            raise self.refuse(
                f"element {position} of {what} of {len(value)}", cure=f"stay inside of {what}"
            )
        return value[position]

    def static_integer(self, node: ast.expr, what: str = "it") -> int:
        """An integer that is known at compile time."""
        value = self.value(node)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(
                f"{what} is {described(value)}",
                "it has to be known when the kernel is compiled",
                "write a whole number, a parameter declared as tw.constant, or tw.static_range",
                at=node,
            )
        return value

    def index(self, array: Array, node: ast.expr) -> tuple[Expr, ...]:
        """The index of an element of ``array``, one expression for each dim."""
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        values: list[Any] = []
        if len(parts) == 1 and not isinstance(parts[0], ast.Slice | ast.Starred):
            one = self.value(parts[0])
            values = list(one) if isinstance(one, tuple) else [one]
        elif any(isinstance(part, ast.Slice) for part in parts):
            raise self.refuse(
                "a kernel has no slices of arrays",
                "each work-item accesses elements",
                "write a loop over the elements",
                at=node,
            )
        else:
            values = (
                list(self.tuple_of(ast.Tuple(list(parts))))
                if any(isinstance(part, ast.Starred) for part in parts)
                else self.numbers(parts, "the index")
            )
        return self.place(array, values, node)

    def place(self, array: Array, values: Sequence[Any], node: ast.AST) -> tuple[Expr, ...]:
        """The index of an element of ``array`` from ``values``, numbers for each dim."""
        if len(values) != array.rank:
            raise self.refuse(
                f"{array.buffer.name} has {array.rank} dims, and {len(values)} indices are given",
                cure="give an index for each dim",
                at=node,
            )
        return tuple(self._one_index(array, dim, value, node) for dim, value in enumerate(values))

    def _one_index(self, array: Array, dim: int, value: Any, node: ast.AST) -> Expr:
        self._check_number(value, "the index", node)
        dtype = self.arithmetic.type_of(value)
        if not dtype.is_integer:
            raise self.refuse(
                f"the index is {dtype}",
                self.arithmetic.why_typed(value) or None,
                "index by integers: tw.s32(...)",
                at=node,
            )
        size = array.sizes[dim]
        if isinstance(value, int):
            if value < 0:
                value = self.arithmetic.binary("add", size, value)
            if isinstance(value, int) and isinstance(size, int) and not 0 <= value < size:
                raise self.refuse(
                    f"index {value} of dim {dim} of {array.buffer.name}, which is {size} long",
                    cure="stay inside of the array",
                    at=node,
                )
        return self.to_index(value)

    def to_index(self, value: Any) -> Expr:
        """An integer as an index, of s64."""
        if isinstance(value, Expr):
            return self.emitter.widened(value)
        return ir.const(int(value), s64)
