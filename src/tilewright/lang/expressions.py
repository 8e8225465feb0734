"""Expressions of Python to expressions of the IR, with the statements that they need in front."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

from tilewright.dtypes import DType, boolean, s64
from tilewright.errors import KernelError, one_of
from tilewright.ir import expr as ir
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Let
from tilewright.ir.visit import reads_memory
from tilewright.lang.arithmetic import OPERATORS, Arithmetic
from tilewright.lang.builtin import Builtin, Site, known_builtin
from tilewright.lang.emitter import Emitter, element
from tilewright.lang.source import Source
from tilewright.lang.values import (
    Array,
    Lambda,
    Range,
    Unbound,
    is_literal,
    is_number,
)
from tilewright.lang.variables import Variable

_READABLE = (bool, int, float, str, tuple, DType, type(None))


class Expressions:
    """Translates expressions of one function. ``names`` has the values of names there."""

    def __init__(
        self, source: Source, emitter: Emitter, outside: Mapping[str, Any], whole: Any
    ) -> None:
        self.source = source
        self.emitter = emitter
        self.outside = outside
        self.whole = whole  # the kernel that it becomes: a `lang.translation.Translation`
        self.names: dict[str, Any] = {}
        self.node: ast.AST = source.tree
        self.arithmetic: Arithmetic = whole.arithmetic
        self.guard: Expr | None = None
        self._by_class: dict[type, Callable[[Any], Any]] = {
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
            ast.Tuple: self._tuple,
            ast.List: self._tuple,
            ast.Lambda: lambda node: Lambda(node, self),
            ast.JoinedStr: self._joined,
        }

    # Errors.

    def refuse(
        self, what: str, why: str | None = None, cure: str = "", at: ast.AST | None = None
    ) -> KernelError:
        """The error about ``at``, or about what is translated now."""
        where = self.source.span(self.node if at is None else at)
        return KernelError(what, where=where, why=why, cure=cure or None)

    def _refuse(self, what: str, why: str | None, cure: str) -> KernelError:
        return self.refuse(what, why, cure)

    # Values.

    def value(self, node: ast.expr) -> Any:
        """What ``node`` stands for: a number, a tuple, an array, a function, ..."""
        outer, self.node = self.node, node
        self.arithmetic.refuse = self._refuse
        found = self._by_class.get(type(node))
        if found is None:
            what = type(node).__name__
            raise self.refuse(
                f"a kernel has no {_WORDS.get(type(node), what)}",
                cure="write it with numbers, arrays, tuples and functions of kernels",
            )
        value = found(node)
        self.node = outer
        self.arithmetic.refuse = self._refuse
        return value

    def number(self, node: ast.expr, what: str = "this") -> Any:
        """A number."""
        value = self.value(node)
        self._check_number(value, what, node)
        return value

    def _check_number(self, value: Any, what: str, node: ast.AST) -> None:
        if isinstance(value, Unbound):
            raise self.refuse(
                f"{value.name} may have no value here",
                "not every way to this place gives it one",
                "give it a value before",
                at=node,
            )
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
        found = self.in_order(nodes)
        for value, node in zip(found, nodes, strict=True):
            self._check_number(value, what, node)
        return found

    def in_order(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Values, evaluated in order: what one of them stores, the ones in front don't see."""
        found: list[Any] = []
        places: list[tuple[int, int]] = []
        for node in nodes:
            found.append(self.value(node))
            places.append((len(self.emitter.block), self.emitter.effects))
        for i in reversed(range(len(found))):
            value = found[i]
            late = self.emitter.effects > places[i][1]
            if late and isinstance(value, Expr) and reads_memory(value):
                named = self.emitter.insert_let(places[i][0], "value", value)
                if value in self.arithmetic.weak:
                    self.arithmetic.weak.add(named)
                found[i] = named
        return found

    def named(self, name: str, value: Any) -> Any:
        """A name for a number; what is known stays known."""
        if not isinstance(value, Expr):
            return value
        found = self.emitter.let(name, value)
        if value in self.arithmetic.weak:
            self.arithmetic.weak.add(found)
        return found

    # By kind.

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, complex | bytes) or node.value is ...:
            raise self.refuse(f"{node.value!r} is no number of a kernel", cure="use real numbers")
        return node.value

    def _name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            found = self.names[node.id]
            if isinstance(found, Variable):
                return self._variable(found)
            if isinstance(found, Unbound):
                self._check_number(found, node.id, node)
            return found
        if node.id in self.outside:
            return self.whole.captured(self, node.id, self.outside[node.id])
        raise self.refuse(
            f"{node.id} has no value here",
            "nothing in the kernel or around it gives it one",
            one_of(node.id, sorted({*self.names, *self.outside})),
        )

    def _variable(self, found: Variable) -> Any:
        if found.memory is None:
            raise self.refuse(
                f"{found.name} may have no value here",
                "not every way to this place gives it one",
                "give it a value before",
            )
        value = element(found.memory)
        if found.weak:
            self.arithmetic.weak.add(value)
        return value

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self.value(node.value)
        name = node.attr
        if isinstance(value, Array) and name in ("shape", "dtype", "ndim", "size"):
            if name == "size":
                total: Any = 1
                for each in value.sizes:
                    total = self.arithmetic.binary("mul", total, each)
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
        found = known_builtin(module.__name__, name)
        if found is None:
            try:
                found = getattr(module, name)
            except AttributeError as error:
                raise self.refuse(
                    str(error), cure=f"use what {module.__name__} has, or define it in the kernel"
                ) from None
        return self.whole.captured(self, f"{module.__name__}.{name}", found)

    def _tuple(self, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
        values: list[Any] = []
        for each in node.elts:
            if isinstance(each, ast.Starred):
                found = self.value(each.value)
                if not isinstance(found, tuple):
                    raise self.refuse(f"* of {described(found)}", cure="unpack a tuple", at=each)
                values += found
            else:
                values.append(self.value(each))
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
        if any(isinstance(each, tuple) for each in values):
            return self._of_tuples(op, *values)
        for value, each in zip(values, (node.left, node.right), strict=True):
            self._check_number(value, "an operand", each)
        return self.arithmetic.binary(op, *values)

    def _of_tuples(self, op: str, a: Any, b: Any) -> Any:
        if op == "add" and isinstance(a, tuple) and isinstance(b, tuple):
            return a + b
        if op == "mul" and isinstance(a, tuple) and isinstance(b, int):
            return a * b
        raise self.refuse("an operator on tuples", cure="take their elements, such as t[0]")

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self.number(node.operand, "the operand")
        match node.op:
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
        if len(nodes) == 2 and all(isinstance(each, _READABLE) for each in values):
            return self._known_comparison(node.ops[0], *values)
        for value, each in zip(values, nodes, strict=True):
            self._check_number(value, "an operand", each)
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

    # What is evaluated only where a condition holds.

    def _logic(self, node: ast.BoolOp) -> Any:
        ends = isinstance(node.op, ast.Or)
        result = self.condition(node.values[0])
        for each in node.values[1:]:
            if is_literal(result):
                if bool(result) == ends:
                    return result
                result = self.condition(each)
                continue
            go_on = self.arithmetic.negated(result) if ends else result
            value, stmts = self.guarded(go_on, lambda each=each: self.condition(each))
            if stmts is None:
                if is_literal(value):
                    result = (value or result) if ends else (result if value else False)
                else:
                    result = (result | value) if ends else (result & value)
                continue
            result = self._stored(go_on, result, value, stmts, boolean)
        return result

    def guarded(self, condition: Expr, make: Callable[[], Any]) -> tuple[Any, list[Any] | None]:
        """What ``make`` gives where ``condition`` holds, and the statements that have to run there;
        None where they may run anywhere: then they are there already."""
        outer = self.guard
        self.guard = self.arithmetic.both(outer, condition)
        with self.emitter.inside() as stmts:
            value = make()
        self.guard = outer
        if all(isinstance(each, Let) for each in stmts):
            self.emitter.block += stmts
            return value, None
        return value, stmts

    def _stored(
        self, condition: Expr, otherwise: Any, value: Any, stmts: list[Any], dtype: DType
    ) -> Expr:
        """``value``, which ``stmts`` compute where ``condition`` holds, or else ``otherwise``."""
        memory = self.emitter.private("chosen", dtype)
        self.emitter.store(memory, [ir.const(0)], self.arithmetic.convert(otherwise, dtype))
        with self.emitter.inside() as then:
            then += stmts
            self.emitter.store(memory, [ir.const(0)], self.arithmetic.convert(value, dtype))
        self.emitter.if_(condition, then, [], self.emitter.span)
        return self.emitter.let("chosen", element(memory))

    def _conditional(self, node: ast.IfExp) -> Any:
        condition = self.condition(node.test)
        if is_literal(condition):
            return self.value(node.body if condition else node.orelse)
        against = self.arithmetic.negated(condition)
        a, then = self.guarded(condition, lambda: self.number(node.body, "the value"))
        b, orelse = self.guarded(against, lambda: self.number(node.orelse, "the value"))
        if then is None and orelse is None:
            weak = (is_literal(a) or a in self.arithmetic.weak) and (
                is_literal(b) or b in self.arithmetic.weak
            )
            x, y = self.arithmetic.common(a, b, "if else")
            result = ir.select(condition, x, y)
            if weak:
                self.arithmetic.weak.add(result)
            return result
        dtype = self.arithmetic.common_type(a, b)
        if dtype is None:
            self.arithmetic.common(a, b, "if else")
        assert dtype is not None
        first = self._stored(condition, 0, a, then or [], dtype)
        return self._stored(against, first, b, orelse or [], dtype)

    # Arrays.

    def _subscript(self, node: ast.Subscript) -> Any:
        value = self.value(node.value)
        if isinstance(value, Array):
            index = self.index(value, node.slice)
            guard = None if value.private else self.guard
            return ir.load(value.buffer, index, guard)
        if isinstance(value, tuple):
            if isinstance(node.slice, ast.Slice):
                parts = (node.slice.lower, node.slice.upper, node.slice.step)
                known = [None if each is None else self.known(each) for each in parts]
                return value[slice(*known)]
            at = self.known(node.slice)
            if not -len(value) <= at < len(value):
                raise self.refuse(
                    f"element {at} of a tuple of {len(value)}", cure="stay inside of the tuple"
                )
            return value[at]
        raise self.refuse(f"{described(value)} has no elements", cure="index an array or a tuple")

    def known(self, node: ast.expr, what: str = "it") -> int:
        """An integer that is known when the kernel is compiled."""
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
        """The place in ``array``, one expression for each dim."""
        given = node.elts if isinstance(node, ast.Tuple) else [node]
        values: list[Any] = []
        if len(given) == 1 and not isinstance(given[0], ast.Slice | ast.Starred):
            one = self.value(given[0])
            values = list(one) if isinstance(one, tuple) else [one]
        elif any(isinstance(each, ast.Slice) for each in given):
            raise self.refuse(
                "a kernel has no slices of arrays",
                "each work-item accesses elements",
                "write a loop over the elements",
                at=node,
            )
        else:
            values = (
                list(self._tuple(ast.Tuple(list(given))))
                if any(isinstance(each, ast.Starred) for each in given)
                else self.numbers(given, "the index")
            )
        return self.place(array, values, node)

    def place(self, array: Array, values: Sequence[Any], node: ast.AST) -> tuple[Expr, ...]:
        """The place in ``array`` that numbers say."""
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
                f"the index is {dtype}", cure="index by integers: tw.s32(...)", at=node
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
            return self.whole.call_lambda(function, site.values(), self)
        if callable(function) and hasattr(function, "in_kernel"):
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
        value = self.number(node.args[0], "the value")
        return self.arithmetic.convert(value, dtype)


def described(value: object) -> str:
    """``value`` in words."""
    if isinstance(value, Array):
        return f"the array {value.buffer.name}"
    if isinstance(value, Expr):
        return f"a {value.type} that work-items compute"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, Range):
        return "a range"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, Builtin):
        return f"the function tw.{value.name}"
    if isinstance(value, str | bool | int | float) or value is None:
        text = repr(value)
        return text if len(text) < 40 else f"{text[:36]}..."
    return f"a {type(value).__name__}"


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
