"""Statements of Python to statements of the IR."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.dtypes import DType, boolean
from tilewright.ir import expr as ir
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Stmt
from tilewright.lang.emitter import Emitter, element
from tilewright.lang.exits import always, exits, flagged
from tilewright.lang.expressions import Expressions, described
from tilewright.lang.loops import Loops
from tilewright.lang.names import Names, Path, names_of
from tilewright.lang.source import Source
from tilewright.lang.values import Array, Unbound, is_literal, is_number
from tilewright.lang.variables import Variable

_ZERO = (ir.const(0),)


class Translator(Expressions, Loops):
    """Translates one function: the kernel, or one that it calls. ``path`` tells calls apart."""

    def __init__(
        self,
        source: Source,
        emitter: Emitter,
        outside: Mapping[str, Any],
        whole: Any,
        path: tuple[int, ...] = (),
    ) -> None:
        super().__init__(source, emitter, outside, whole)
        self.path = path
        self.found: Names = names_of(source.tree)
        self.here: Path = ()
        self.varying = 0  # blocks around that not everybody runs, or not once
        self.returns: Buffer | None = None
        self.result: Any = None
        self.breaks: list[Buffer | None] = []
        self.continues: list[Buffer | None] = []
        self._by_stmt: dict[type, Callable[[Any], None]] = {
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.If: self._if,
            ast.For: self._for,
            ast.While: self._while,
            ast.Return: self._return,
            ast.Break: lambda node: self._leave(self.breaks[-1]),
            ast.Continue: lambda node: self._leave(self.continues[-1]),
            ast.Expr: self._expression,
            ast.Assert: self._assert,
            ast.Pass: lambda node: None,
        }

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Translates the body with values for the parameters; gives what it returns."""
        tree = self.source.tree
        for name, value in arguments.items():
            self.names[name] = value
        body = tree.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]  # its docstring
        if flagged(body, "return"):
            self.returns = self._flag("returned")
        self._simple = sum(isinstance(each, ast.Return) for each in ast.walk(tree)) == 1 and (
            isinstance(tree.body[-1], ast.Return)
        )
        self._declare(())
        self._declare_results(tree)
        for name, value in arguments.items():
            if isinstance(self.names[name], Variable):
                self._set(name, value, tree)
        self.stmts(body)
        if not self._simple and self.result is not None:
            self.result = self._results(self.result)
        return self.result

    def _declare_results(self, tree: ast.FunctionDef) -> None:
        """Memory for what is returned on several ways."""
        self._returned: dict[str, Variable] = {}
        values = [each.value for each in ast.walk(tree) if isinstance(each, ast.Return)]
        given = [each for each in values if each is not None]
        if self._simple or not given:
            return
        first = given[0]
        count = len(first.elts) if isinstance(first, ast.Tuple) else 0
        names = [f"return.{i}" for i in range(count)] if count else ["return"]
        for name in names:
            self._returned[name] = self._new_variable(name)

    # Blocks.

    def block(self, body: Sequence[ast.stmt], owner: ast.stmt, part: str) -> None:
        """The statements of a block inside of ``owner``."""
        outer, self.here = self.here, (*self.here, (id(owner), part))
        before = dict(self.names)
        self._declare(self.here)
        self.stmts(body)
        self.here = outer
        # Names of this block are gone; but for those of a branch that is known.
        self.names = before

    def _declare(self, path: Path) -> None:
        """Memory for the variables that live in this block."""
        for name in self.found.homes.get(path, ()):
            outer = self.names.get(name)
            if outer is None or is_number(outer) or isinstance(outer, Variable):
                self.names[name] = self._new_variable(name)

    def _new_variable(self, name: str) -> Variable:
        key = (self.path, name)
        known = self.whole.types.known.get(key)
        if known is None:
            return Variable(key, name, None, True)
        dtype, weak = known
        return Variable(key, name, self.emitter.private(name, dtype), weak)

    def stmts(self, body: Sequence[ast.stmt]) -> None:
        """Statements in order; behind one that may leave, only where it did not."""
        for i, stmt in enumerate(body):
            rest = body[i + 1 :]
            leaves = exits(stmt)
            if not leaves:
                self.stmt(stmt)
                continue
            if isinstance(stmt, ast.If) and self._splits(stmt, rest):
                return
            self.stmt(stmt)
            if rest and not always([stmt]):
                self._where_not_left(rest, leaves)
            return

    def stmt(self, stmt: ast.stmt) -> None:
        self.node = stmt
        self.arithmetic.refuse = self._refuse
        translate = self._by_stmt.get(type(stmt))
        if translate is None:
            word = _WORDS.get(type(stmt), type(stmt).__name__.lower())
            raise self.refuse(
                f"a kernel has no `{word}`",
                cure="write it with assignments, if, for, while, return, and calls",
            )
        outer, self.emitter.span = self.emitter.span, self.whole.place(self, stmt)
        translate(stmt)
        self.emitter.span = outer
        self.node = stmt

    def _splits(self, stmt: ast.If, rest: Sequence[ast.stmt]) -> bool:
        """Where one arm always leaves and the other never does, what is behind belongs to the
        other."""
        then, orelse = always(stmt.body), always(stmt.orelse)
        if then and not any(exits(each) for each in stmt.orelse):
            self._if(stmt, behind_else=rest)
            return True
        if orelse and not any(exits(each) for each in stmt.body):
            self._if(stmt, behind_then=rest)
            return True
        return False

    def _where_not_left(self, rest: Sequence[ast.stmt], leaves: frozenset[str]) -> None:
        flags = []
        if "return" in leaves and self.returns is not None:
            flags.append(self.returns)
        if "break" in leaves and self.breaks and self.breaks[-1] is not None:
            flags.append(self.breaks[-1])
        if "continue" in leaves and self.continues and self.continues[-1] is not None:
            flags.append(self.continues[-1])
        span = self.emitter.span
        condition = self.not_left(flags)
        with self.emitter.inside() as stmts:
            self.varying += 1
            self.stmts(rest)
            self.varying -= 1
        if condition is None:
            self.emitter.block += stmts
        else:
            self.emitter.if_(condition, stmts, [], span)

    def not_left(self, flags: Sequence[Buffer | None]) -> Expr | None:
        """Whether none of the flags is set."""
        found: Expr | None = None
        for flag in flags:
            if flag is not None:
                one = ir.unary("not", element(flag))
                found = one if found is None else found & one
        return found

    def _flag(self, name: str) -> Buffer:
        """A flag that is not set."""
        flag = self.emitter.private(name, boolean)
        self.emitter.store(flag, _ZERO, ir.const(False))
        return flag

    def _leave(self, flag: Buffer | None) -> None:
        if flag is not None:
            self.emitter.store(flag, _ZERO, ir.const(True))

    # Assignments.

    def _assign(self, node: ast.Assign) -> None:
        first = node.targets[0]
        self.whole.naming = first.id if isinstance(first, ast.Name) else None
        value = self.value(node.value)
        self.whole.naming = None
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
            self.whole.declare_type((self.path, node.target.id), dtype)
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
        # All of them are known before the first one is assigned to.
        named = [self.named("value", each) for each in value]
        for each, one in zip(target.elts, named, strict=True):
            self.assign(each, one)

    def store(self, array: Array, index: tuple[Expr, ...], value: Any, at: ast.AST) -> None:
        """Stores a number as an element of ``array``."""
        self._check_number(value, "the value", at)
        what = f"an element of {array.buffer.name}"
        converted = self.arithmetic.kept(value, array.dtype, what)
        self.whole.written(array)
        self.emitter.store(array.buffer, index, converted)

    def _set(self, name: str, value: Any, at: ast.AST) -> None:
        known = self.names.get(name)
        if not isinstance(known, Variable):
            self.names[name] = self.named(name, value)
            return
        if isinstance(value, Unbound):
            self._check_number(value, name, at)
        if not is_number(value):
            if self.varying:
                raise self.refuse(
                    f"{name} is {described(value)} on some way only",
                    "what it stands for has to be known when the kernel is compiled",
                    "give it a name of its own",
                    at=at,
                )
            self.names[name] = value
            return
        dtype = self.whole.assigned(self, known, value)
        if known.memory is None:
            # In the first translation only, whose types are what comes of it.
            known.memory = self.emitter.private(name, dtype)
        converted = self.arithmetic.convert(value, known.memory.dtype)
        self.emitter.store(known.memory, _ZERO, converted)

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
        place = [self.named("at", each) for each in self.index(array, node.target.slice)]
        amount = self.number(node.value, "the value")
        old = ir.load(array.buffer, tuple(place), None if array.private else self.guard)
        name = type(node.op).__name__
        value = self.arithmetic.binary(_operator(self, name), old, amount)
        self.store(array, tuple(place), value, node)

    # Branches, returns, and the rest.

    def _if(
        self,
        node: ast.If,
        behind_then: Sequence[ast.stmt] = (),
        behind_else: Sequence[ast.stmt] = (),
    ) -> None:
        outer, self.emitter.span = self.emitter.span, self.whole.place(self, node)
        self.node = node
        span = self.emitter.span
        condition = self.condition(node.test)
        if is_literal(condition):
            arms = (node.body, "body", behind_then), (node.orelse, "orelse", behind_else)
            body, part, behind = arms[0] if condition else arms[1]
            self._known_arm(body, node, part)
            self.stmts(behind)
            self.emitter.span = outer
            return
        self.varying += 1
        blocks: list[list[Stmt]] = []
        arms = (node.body, "body", behind_then), (node.orelse, "orelse", behind_else)
        for body, part, behind in arms:
            with self.emitter.inside() as stmts:
                self.block(body, node, part)
                kept = dict(self.names)
                self.stmts(behind)
                self.names = kept
            blocks.append(stmts)
        self.varying -= 1
        self.emitter.if_(condition, blocks[0], blocks[1], span)
        self.emitter.span = outer

    def _known_arm(self, body: Sequence[ast.stmt], owner: ast.If, part: str) -> None:
        """The arm of an `if` that is decided now: what it names goes on."""
        outer, self.here = self.here, (*self.here, (id(owner), part))
        self._declare(self.here)
        self.stmts(body)
        self.here = outer

    def _return(self, node: ast.Return) -> None:
        value = None if node.value is None else self.value(node.value)
        if self._simple:
            self.result = self._named_result(value)
        elif value is not None:
            self.result = self._keep(value, node)
        self._leave(self.returns)

    def _named_result(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._named_result(each) for each in value)
        return self.named("result", value)

    def _keep(self, value: Any, node: ast.Return) -> Any:
        """Stores what is returned on one of several ways: a number, or a tuple of numbers."""
        if isinstance(value, tuple):
            return tuple(self._keep_one(each, f"return.{i}", node) for i, each in enumerate(value))
        return self._keep_one(value, "return", node)

    def _keep_one(self, value: Any, name: str, node: ast.Return) -> Variable:
        self._check_number(value, "what is returned", node)
        variable = self._returned.get(name)
        if variable is None:
            raise self.refuse(
                "a return of a value where others return none",
                cure="return as many values on each way",
                at=node,
            )
        dtype = self.whole.assigned(self, variable, value)
        if variable.memory is None:
            variable.memory = self.emitter.private(name, dtype)
        self.emitter.store(
            variable.memory, _ZERO, self.arithmetic.convert(value, variable.memory.dtype)
        )
        return variable

    def _results(self, kept: Any) -> Any:
        if isinstance(kept, tuple):
            return tuple(self._results(each) for each in kept)
        return self.named("result", self._variable(kept))

    def _expression(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if not isinstance(node.value, ast.Call):
            raise self.refuse(
                "an expression whose value nobody uses", cure="assign it, or leave it out", at=node
            )
        self.whole.unused = node.value
        self.value(node.value)
        self.whole.unused = None

    def _assert(self, node: ast.Assert) -> None:
        condition = self.condition(node.test)
        message = "" if node.msg is None else self.value(node.msg)
        if not isinstance(message, str):
            raise self.refuse("the message of an assert is no text", cure='write assert x, "why"')
        if is_literal(condition):
            if not condition:
                raise self.refuse(
                    f"this does not hold: {ast.unparse(node.test)}", message or None, "mend it"
                )
            return
        self.whole.messages.check(self, condition, message, node)


def _operator(scope: Expressions, name: str) -> str:
    from_python = {"Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "FloorDiv": "floordiv"}
    more = {"Mod": "mod", "Pow": "pow", "LShift": "shl", "RShift": "shr"}
    bits = {"BitAnd": "and", "BitOr": "or", "BitXor": "xor"}
    found = {**from_python, **more, **bits}.get(name)
    if found is None:
        raise scope.refuse("a kernel has no operator @", cure="write the sums")
    return found


_WORDS: Mapping[type[ast.AST], str] = {
    ast.FunctionDef: "def",
    ast.AsyncFunctionDef: "async def",
    ast.ClassDef: "class",
    ast.Try: "try",
    ast.With: "with",
    ast.AsyncWith: "async with",
    ast.AsyncFor: "async for",
    ast.Delete: "del",
    ast.ImportFrom: "import",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Raise: "raise",
    ast.Match: "match",
}
