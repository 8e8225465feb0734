"""Assignments: to names, to elements of arrays, to several at once."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tilewright.dtypes import DType
from tilewright.errors import KernelError
from tilewright.ir import expr as ir
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.load import load
from tilewright.lang.emitter import Emitter
from tilewright.lang.expressions import Expressions
from tilewright.lang.names import Path
from tilewright.lang.source import Source
from tilewright.lang.values import Array, Vector, described, is_number
from tilewright.lang.variables import Key, Variable

_ZERO = (ir.const(0),)


class Assignments(Expressions):
    """Assigns to names and elements. ``path`` distinguishes calls of one function."""

    def __init__(
        self,
        source: Source,
        emitter: Emitter,
        outside: Mapping[str, Any],
        translation: Any,
        path: tuple[int, ...] = (),
    ) -> None:
        super().__init__(source, emitter, outside, translation)
        self.path = path
        self.here: Path = ()
        self.varying = 0  # the number of blocks around that run conditionally or repeatedly
        self.returns: Buffer | None = None
        self.result: Any = None
        self.breaks: list[Buffer | None] = []
        self.continues: list[Buffer | None] = []

    def _new_variable(self, name: str) -> Variable:
        key = (self.path, name)
        settled = self.translation.types.initial.get(key)
        length = 0
        while _element_key(key, length) in self.translation.types.initial:
            length += 1
        if length:
            parts = (self._new_variable(_element_key(key, n)[1]) for n in range(length))
            return Variable(key, name, None, True, tuple(parts))
        if settled is None:
            return Variable(key, name, None, True)
        dtype, weak = settled
        variable = Variable(key, name, None, weak)
        variable.memory = self._memory_of(variable, dtype)
        return variable

    def _memory_of(self, variable: Variable, dtype: DType) -> Buffer:
        memory = self.emitter.private(variable.name.replace(".", "_"), dtype)
        self.translation.variables[id(memory)] = variable
        return memory

    def _assign(self, node: ast.Assign) -> None:
        first = node.targets[0]
        self.translation.naming = first.id if isinstance(first, ast.Name) else None
        value = self.value(node.value)
        self.translation.naming = None
        if len(node.targets) > 1 and isinstance(value, Expr):
            value = self.named("value", value)
        for target in node.targets:
            self.assign(target, value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        dtype = self.value(node.annotation)
        if not isinstance(dtype, DType):
            raise self.refuse(
                f"a variable is annotated with {described(dtype)}", cure="write a type: x: tw.f32"
            )
        if node.value is None:
            raise self.refuse("a name without a value", cure="give it one: x: tw.f32 = 0")
        value = self.number(node.value, "the value")
        if isinstance(node.target, ast.Name):
            self.translation.declare_type((self.path, node.target.id), dtype)
        self.assign(node.target, self.arithmetic.kept(value, dtype, ast.unparse(node.target)))

    def assign(self, target: ast.expr, value: Any) -> None:
        """Gives ``target`` a value."""
        if isinstance(target, ast.Name):
            self._set(target.id, value, target)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, value)
        elif isinstance(target, ast.Subscript):
            array = self.value(target.value)
            if not isinstance(array, Array):
                raise self.refuse(
                    f"{described(array)} has no elements to assign to",
                    cure="assign to elements of arrays",
                    at=target,
                )
            self.store(array, self.index(array, target.slice), value, target)
        else:
            raise self.refuse(
                "an assignment to what is neither a name nor an element",
                cure="assign to names and to elements of arrays",
                at=target,
            )

    def _unpack(self, target: ast.Tuple | ast.List, value: Any) -> None:
        if not isinstance(value, tuple) or len(value) != len(target.elts):
            raise self.refuse(
                f"{described(value)} for {len(target.elts)} names",
                cure="give each name a value",
                at=target,
            )
        # All of them are evaluated before the first one is assigned to.
        named = [self.named("value", part) for part in value]
        for element, part in zip(target.elts, named, strict=True):
            self.assign(element, part)

    def store(self, array: Array, index: tuple[Expr, ...], value: Any, at: ast.AST) -> None:
        """Stores a number as an element of ``array``."""
        self._check_number(value, "the value", at)
        what = f"an element of {array.buffer.name}"
        converted = self.arithmetic.kept(value, array.dtype, what)
        self.translation.written(self, array)
        self.emitter.store(array.buffer, index, converted)

    def _set(self, name: str, value: Any, at: ast.AST) -> None:
        self.assigned.give(name)
        old = self.names.get(name)
        if not isinstance(old, Variable):
            if self.varying and old is not None and not self.bindings.once(name):
                raise self._conditional_value(name, value, at)
            self.names[name] = self.named(name, value)
            return
        if isinstance(value, Vector) or old.parts is not None:
            self._set_vector(old, value, at)
            return
        if not is_number(value):
            if self.varying:
                raise self._conditional_value(name, value, at)
            self.names[name] = value
            return
        self._set_number(old, value)

    def _set_number(self, variable: Variable, value: Any) -> None:
        dtype = self.translation.assigned(self, variable, value)
        if variable.memory is None:
            # In the first translation only, which finds the types.
            variable.memory = self._memory_of(variable, dtype)
            variable.weak = self.translation.types.settling[variable.key][1]
        converted = self.arithmetic.convert(value, variable.memory.dtype)
        self.emitter.store(variable.memory, _ZERO, converted)

    def _set_vector(self, variable: Variable, value: Any, at: ast.AST) -> None:
        if variable.parts is None and variable.memory is None and isinstance(value, Vector):
            keys = [_element_key(variable.key, n) for n in range(len(value.parts))]
            variable.parts = tuple(Variable(key, key[1], None, True) for key in keys)
        same = isinstance(value, Vector) and variable.parts is not None
        if not same or len(value.parts) != len(variable.parts or ()):
            was = "a number" if variable.parts is None else f"a vector of {len(variable.parts)}"
            raise self.refuse(
                f"{variable.name} is {was} on one path, and {described(value)} here",
                cure="give it a name of its own",
                at=at,
            )
        # All of them are evaluated before the first one is assigned to.
        named = self.named(variable.name, value)
        for part, number in zip(variable.parts or (), named.parts, strict=True):
            self._set_number(part, number)

    def _conditional_value(self, name: str, value: Any, at: ast.AST) -> KernelError:
        return self.refuse(
            f"{name} is {described(value)} on some path only",
            "the meaning of a name has to be known when the kernel is compiled",
            "give it a name of its own",
            at=at,
        )

    def _augmented(self, node: ast.AugAssign) -> None:
        op = type(node.op)
        as_expression: ast.expr
        if isinstance(node.target, ast.Name):
            read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
            as_expression = ast.copy_location(ast.BinOp(read, op(), node.value), node)
            self.assign(node.target, self.value(as_expression))
            return
        if not isinstance(node.target, ast.Subscript):
            raise self.refuse(
                "an update of what is neither a name nor an element", cure="name it first"
            )
        array = self.value(node.target.value)
        if not isinstance(array, Array):
            raise self.refuse(
                f"{described(array)} has no elements", cure="update elements of arrays"
            )
        place = [self.named("at", index) for index in self.index(array, node.target.slice)]
        amount = self.number(node.value, "the value")
        old = load(array.buffer, tuple(place), None if array.private else self.guard)
        name = type(node.op).__name__
        value = self.arithmetic.binary(_operator(self, name), old, amount)
        self.store(array, tuple(place), value, node)


def _element_key(key: Key, number: int) -> Key:
    """The variable of an element of a vector, by a name that none in Python can have."""
    return key[0], f"{key[1]}.{number}"


def _operator(scope: Expressions, name: str) -> str:
    from_python = {"Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "FloorDiv": "floordiv"}
    more = {"Mod": "mod", "Pow": "pow", "LShift": "shl", "RShift": "shr"}
    bits = {"BitAnd": "and", "BitOr": "or", "BitXor": "xor"}
    op = {**from_python, **more, **bits}.get(name)
    if op is None:
        raise scope.refuse("a kernel has no operator @", cure="write the sums")
    return op
