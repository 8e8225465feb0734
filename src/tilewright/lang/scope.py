"""The state of a function that is translated: names, place, errors, numbers in order."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.errors import KernelError
from tilewright.ir.expr import Expr
from tilewright.ir.visit import reads_memory
from tilewright.lang.emitter import Emitter
from tilewright.lang.source import Source
from tilewright.lang.values import Vector, described, is_number

if TYPE_CHECKING:
    from tilewright.lang.arithmetic import Arithmetic


class Scope(ABC):
    """One function under translation. ``names`` has the values of names at the present place."""

    def __init__(
        self, source: Source, emitter: Emitter, outside: Mapping[str, Any], translation: Any
    ) -> None:
        self.source = source
        self.emitter = emitter
        self.outside = outside
        self.translation = translation  # the kernel's `lang.translation.Translation`
        self.names: dict[str, Any] = {}
        self.node: ast.AST = source.tree
        self.arithmetic: Arithmetic = translation.arithmetic
        self.guard: Expr | None = None
        self.by_class: dict[type, Callable[[Any], Any]] = {}

    @abstractmethod
    def tuple_of(self, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
        """The values of a tuple's parts."""

    # Errors.

    def refuse(
        self, what: str, why: str | None = None, cure: str = "", at: ast.AST | None = None
    ) -> KernelError:
        """The error about ``at``, or about the present node."""
        where = self.source.span(self.node if at is None else at)
        return KernelError(what, where=where, why=why, cure=cure or None)

    def _refuse(self, what: str, why: str | None, cure: str) -> KernelError:
        return self.refuse(what, why, cure)

    # Values.

    def value(self, node: ast.expr) -> Any:
        """The value of ``node``: a number, a tuple, an array, a function, ..."""
        outer, self.node = self.node, node
        self.arithmetic.refuse = self._refuse
        translate = self.by_class.get(type(node))
        if translate is None:
            what = type(node).__name__
            raise self.refuse(
                f"a kernel has no {_WORDS.get(type(node), what)}",
                cure="write it with numbers, arrays, tuples and functions of kernels",
            )
        value = translate(node)
        self.node = outer
        self.arithmetic.refuse = self._refuse
        return value

    def number(self, node: ast.expr, what: str = "this") -> Any:
        """A number."""
        value = self.value(node)
        self._check_number(value, what, node)
        return value

    def _check_number(self, value: Any, what: str, node: ast.AST) -> None:
        if not is_number(value):
            raise self.refuse(
                f"{what} is {described(value)}",
                "a number is needed",
                "write a number, or an element of an array",
                at=node,
            )

    def condition(self, node: ast.expr) -> Any:
        """A condition: a bool, or an expression of bool."""
        value = self.number(node, "the condition")
        return self.arithmetic.condition(value)

    def numbers(self, nodes: Sequence[ast.expr], what: str = "this") -> list[Any]:
        """Numbers, evaluated in order."""
        values = self.in_order(nodes)
        for value, node in zip(values, nodes, strict=True):
            self._check_number(value, what, node)
        return values

    def in_order(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Values, evaluated in order: a value does not see what later ones store."""
        values: list[Any] = []
        places: list[tuple[int, int]] = []
        for node in nodes:
            values.append(self.value(node))
            places.append((len(self.emitter.block), self.emitter.effects))
        for i in reversed(range(len(values))):
            value = values[i]
            stored_later = self.emitter.effects > places[i][1]
            if stored_later and isinstance(value, Expr) and reads_memory(value):
                named = self.emitter.insert_let(places[i][0], "value", value)
                if value in self.arithmetic.weak:
                    self.arithmetic.weak.add(named)
                values[i] = named
        return values

    def named(self, name: str, value: Any) -> Any:
        """A name for a number, or for each of a vector; numbers that are known stay so."""
        if isinstance(value, Vector):
            return Vector(tuple(self.named(name, part) for part in value.parts))
        if not isinstance(value, Expr):
            return value
        variable = self.emitter.let(name, value)
        if value in self.arithmetic.weak:
            self.arithmetic.weak.add(variable)
        return variable


_WORDS: Mapping[type[ast.AST], str] = {
    ast.ListComp: "comprehensions",
    ast.SetComp: "comprehensions",
    ast.DictComp: "comprehensions",
    ast.GeneratorExp: "generators",
    ast.Dict: "dicts",
    ast.Set: "sets",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Await: "await",
    ast.NamedExpr: "assignments inside of expressions",
    ast.Starred: "starred expressions here",
    ast.Slice: "slices here",
}
