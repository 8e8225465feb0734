"""Blocks of statements: the lifetime of variables, and statements that are skipped after an
exit."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.dtypes import boolean
from tilewright.ir import expr as ir
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.lang.assignments import Assignments
from tilewright.lang.emitter import Emitter, element
from tilewright.lang.exits import always, exits
from tilewright.lang.names import Path
from tilewright.lang.source import Source
from tilewright.lang.values import Vector, is_number
from tilewright.lang.variables import Variable

_ZERO = (ir.const(0),)


class Blocks(Assignments):
    """Translates statements in order, by the functions in ``by_stmt``."""

    def __init__(
        self,
        source: Source,
        emitter: Emitter,
        outside: Mapping[str, Any],
        translation: Any,
        path: tuple[int, ...] = (),
    ) -> None:
        super().__init__(source, emitter, outside, translation, path)
        self.by_stmt: dict[type, Callable[[Any], None]] = {}

    @abstractmethod
    def branch(
        self,
        node: ast.If,
        after_then: Sequence[ast.stmt] = (),
        after_else: Sequence[ast.stmt] = (),
    ) -> None:
        """An `if`, with the statements after it in one of its arms."""

    def block(self, body: Sequence[ast.stmt], owner: ast.stmt, part: str) -> None:
        """The statements of a block inside of ``owner``."""
        outer, self.here = self.here, (*self.here, (id(owner), part))
        before = dict(self.names)
        self._declare(self.here)
        self.stmts(body)
        self.here = outer
        # Names of this block end here; but for those of a branch that is decided at compile time.
        self.names = before

    def _declare(self, path: Path) -> None:
        """Memory for the variables that live in this block."""
        for name in self.bindings.homes.get(path, ()):
            outer = self.names.get(name)
            if outer is None or is_number(outer) or isinstance(outer, Variable | Vector):
                self.names[name] = self._new_variable(name)

    def stmts(self, body: Sequence[ast.stmt]) -> None:
        """Statements in order; after one that may leave, only where it did not."""
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
        translate = self.by_stmt.get(type(stmt))
        if translate is None:
            word = _WORDS.get(type(stmt), type(stmt).__name__.lower())
            raise self.refuse(
                f"a kernel has no `{word}`",
                cure="write it with assignments, if, for, while, return, and calls",
            )
        outer, self.emitter.span = self.emitter.span, self.source.span(stmt)
        translate(stmt)
        self.emitter.span = outer
        self.node = stmt

    def _splits(self, stmt: ast.If, rest: Sequence[ast.stmt]) -> bool:
        """Where one arm always leaves and the other never does, the statements after it become part
        of the other."""
        then, orelse = always(stmt.body), always(stmt.orelse)
        if then and not any(exits(part) for part in stmt.orelse):
            self.branch(stmt, after_else=rest)
            return True
        if orelse and not any(exits(part) for part in stmt.body):
            self.branch(stmt, after_then=rest)
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
        result: Expr | None = None
        for flag in flags:
            if flag is not None:
                one = ir.unary("not", element(flag))
                result = one if result is None else result & one
        return result

    def _flag(self, name: str) -> Buffer:
        """A flag that is not set."""
        flag = self.emitter.private(name, boolean)
        self.emitter.store(flag, _ZERO, ir.const(False))
        return flag

    def _leave(self, flag: Buffer | None, by: str) -> None:
        self.assigned.leave(by)
        if flag is not None:
            self.emitter.store(flag, _ZERO, ir.const(True))


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
