"""Expressions of Python to expressions of the IR, with the statements that they need before
them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NoReturn

from tilewright.dtypes import DType
from tilewright.errors import KernelError, one_of
from tilewright.ir.expr import Expr
from tilewright.lang.arithmetic import OPERATORS
from tilewright.lang.assigned import Assigned
from tilewright.lang.builtin import Builtin, Site, known_builtin
from tilewright.lang.elements import Elements
from tilewright.lang.emitter import Emitter, element
from tilewright.lang.guards import Guards
from tilewright.lang.names import names_of
from tilewright.lang.source import Source
from tilewright.lang.values import (
    Array,
    Lambda,
    Vector,
    described,
    is_number,
)
from tilewright.lang.variables import Variable

_READABLE = (bool, int, float, str, tuple, DType, type(None))


class Expressions(Guards, Elements):
    """Translates expressions of one function."""

    def __init__(
        self, source: Source, emitter: Emitter, outside: Mapping[str, Any], translation: Any
    ) -> None:
        super().__init__(source, emitter, outside, translation)
        self.bindings = names_of(source.tree)
        self.assigned = Assigned()
        self.by_class = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.Compare: self._compare,
            ast.BoolOp: self._logic,
            ast.IfExp: self._conditional,
            ast.Subscript: self._subscript,
            ast.Call: self._call,
            ast.Tuple: self.tuple_of,
            ast.List: self.tuple_of,
            ast.Lambda: lambda node: Lambda(node, self),
            ast.JoinedStr: self._joined,
        }

    # By kind.

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, complex | bytes) or node.value is ...:
            raise self.refuse(f"{node.value!r} is no number of a kernel", cure="use real numbers")
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            value = self.names[node.id]
            if not isinstance(value, Variable):
                return value
            if not self.assigned.has(node.id):
                raise self._unassigned(node.id)
            return self._variable(value)
        if self.bindings.binds(node.id):
            raise self._unassigned(node.id)
        if node.id in self.outside:
            return self.translation.captured(self, node.id, self.outside[node.id])
        raise self.refuse(
            f"{node.id} has no value here",
            "nothing in the kernel or around it gives it one",
            one_of(node.id, sorted({*self.names, *self.outside})),
        )

    def _variable(self, variable: Variable) -> Any:
        if variable.parts is not None:
            return Vector(tuple(map(self._variable, variable.parts)))
        if variable.memory is None:
            raise self._unassigned(variable.name)
        value = element(variable.memory)
        if variable.weak:
            self.arithmetic.weak.add(value)
        return value

    def _unassigned(self, name: str) -> KernelError:
        return self.refuse(
            f"{name} may have no value here",
            "not every path to this place gives it one",
            f"give it a value on each path, or one before: {name} = 0",
        )

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self.value(node.value)
        name = node.attr
        if isinstance(value, Array) and name in ("shape", "dtype", "ndim", "size"):
            if name == "size":
                total: Any = 1
                for size in value.sizes:
                    total = self.arithmetic.binary("mul", total, size)
                return total
            return {"shape": value.sizes, "dtype": value.dtype, "ndim": value.rank}[name]
        if isinstance(value, Expr) and name == "dtype":
            return value.type
        if isinstance(value, ModuleType):
            return self._of_module(value, name)
        method = getattr(value, "method", None)
        if method is not None:
            return method(self, name)
        raise self.refuse(
            f"{described(value)} has no attribute {name}",
            cure="arrays have shape, dtype, ndim and size; modules what they define",
        )

    def _of_module(self, module: ModuleType, name: str) -> Any:
        member = known_builtin(module.__name__, name)
        if member is None:
            try:
                member = getattr(module, name)
            except AttributeError as error:
                raise self.refuse(
                    str(error), cure=f"use what {module.__name__} has, or define it in the kernel"
                ) from None
        return self.translation.captured(self, f"{module.__name__}.{name}", member)

    def tuple_of(self, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
        """The values of a tuple's parts."""
        values: list[Any] = []
        for part in node.elts:
            if isinstance(part, ast.Starred):
                unpacked = self.value(part.value)
                if not isinstance(unpacked, tuple):
                    raise self.refuse(f"* of {described(unpacked)}", cure="unpack a tuple", at=part)
                values += unpacked
            else:
                values.append(self.value(part))
        return tuple(values)

    def _joined(self, node: ast.JoinedStr) -> NoReturn:
        raise self.refuse(
            "a kernel has no strings with values in them",
            cure='write tw.printf("i is {}", i)',
            at=node,
        )

    def _binary(self, node: ast.BinOp) -> Any:
        op = OPERATORS.get(type(node.op).__name__)
        if op is None:
            raise self.refuse(
                "a kernel has no operator @", cure="write the sums, or use tw.joint_matrix"
            )
        values = self.in_order([node.left, node.right])
        if any(isinstance(value, Vector) for value in values):
            return self.by_elements(lambda *pair: self.arithmetic.binary(op, *pair), values)
        if any(isinstance(value, tuple) for value in values):
            return self._of_tuples(op, *values)
        for value, operand in zip(values, (node.left, node.right), strict=True):
            self._check_number(value, "an operand", operand)
        return self.arithmetic.binary(op, *values)

    def _of_tuples(self, op: str, a: Any, b: Any) -> Any:
        if op == "add" and isinstance(a, tuple) and isinstance(b, tuple):
            return a + b
        if op == "mul" and isinstance(a, tuple) and isinstance(b, int):
            return a * b
        raise self.refuse("an operator on tuples", cure="take their elements, such as t[0]")

    def _unary(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.BoolOp):
            return self.arithmetic.negated(self.condition(node.operand))
        value = self.value(node.operand)
        if isinstance(value, Vector):
            return self.by_elements(lambda element: self._negated(node.op, element), [value])
        self._check_number(value, "the operand", node.operand)
        return self._negated(node.op, value)

    def _negated(self, op: ast.unaryop, value: Any) -> Any:
        match op:
            case ast.USub():
                return self.arithmetic.unary("neg", value)
            case ast.UAdd():
                return value
            case ast.Invert():
                return self.arithmetic.unary("not", value)
            case _:
                return self.arithmetic.negated(self.arithmetic.condition(value))

    def _compare(self, node: ast.Compare) -> Any:
        nodes = [node.left, *node.comparators]
        for op in node.ops:
            if isinstance(op, ast.Is | ast.IsNot) and len(nodes) == 2:
                same = self.value(nodes[0]) is self.value(nodes[1])
                return same == isinstance(op, ast.Is)
            if type(op).__name__ not in OPERATORS:
                raise self.refuse("a kernel has no `in`", cure="compare with each value")
        values = self.in_order(nodes)
        if len(nodes) == 2 and any(isinstance(value, Vector) for value in values):
            sign = OPERATORS[type(node.ops[0]).__name__]
            return self.by_elements(lambda *pair: self.arithmetic.binary(sign, *pair), values)
        if len(nodes) == 2 and all(isinstance(value, _READABLE) for value in values):
            return self._known_comparison(node.ops[0], *values)
        for value, operand in zip(values, nodes, strict=True):
            self._check_number(value, "an operand", operand)
        result: Any = True
        for op, a, b in zip(node.ops, values, values[1:], strict=False):
            one = self.arithmetic.binary(OPERATORS[type(op).__name__], a, b)
            result = self.arithmetic.both(result, one)
        return result

    def _known_comparison(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        if is_number(a) and is_number(b):
            return self.arithmetic.binary(OPERATORS[type(op).__name__], a, b)
        if not isinstance(op, ast.Eq | ast.NotEq):
            raise self.refuse(
                f"{described(a)} and {described(b)} have no order", cure="compare numbers"
            )
        return (a == b) == isinstance(op, ast.Eq)

    # Calls.

    def _call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        site = Site(self, node)
        if isinstance(function, Builtin):
            return function.run(site)
        if isinstance(function, DType):
            return self._conversion(function, node)
        inline = getattr(function, "inline", None)
        if inline is not None:
            return inline(site)
        if isinstance(function, Lambda):
            return self.translation.call_lambda(function, site.values(), self)
        if hasattr(function, "in_kernel"):
            return function.in_kernel(site)
        name = ast.unparse(node.func)
        raise self.refuse(
            f"{name} is no function of kernels",
            "a kernel calls what tilewright has for kernels, and functions with @tw.function",
            f"decorate it with @tw.function, if {name} is yours",
            at=node,
        )

    def _conversion(self, dtype: DType, node: ast.Call) -> Any:
        if len(node.args) != 1 or node.keywords:
            raise self.refuse(f"tw.{dtype} takes one value", cure=f"write tw.{dtype}(x)", at=node)
        value = self.value(node.args[0])
        if isinstance(value, Vector):
            return self.by_elements(
                lambda element: self.arithmetic.convert(element, dtype), [value]
            )
        self._check_number(value, "the value", node.args[0])
        converted = self.arithmetic.convert(value, dtype)
        # A weak value that has the type already keeps it from here on.
        weak = converted in self.arithmetic.weak
        return self.emitter.let("value", converted) if weak else converted
