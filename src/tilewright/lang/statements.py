"""Statements of Python to statements of the IR: whole functions."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import KernelError
from tilewright.ir.stmt import Stmt
from tilewright.lang.emitter import Emitter
from tilewright.lang.exits import flagged
from tilewright.lang.loops import Loops
from tilewright.lang.source import Source
from tilewright.lang.values import is_literal
from tilewright.lang.variables import Variable


class Translator(Loops):
    """Translates one function: the kernel, or one that it calls."""

    def __init__(
        self,
        source: Source,
        emitter: Emitter,
        outside: Mapping[str, Any],
        translation: Any,
        path: tuple[int, ...] = (),
    ) -> None:
        super().__init__(source, emitter, outside, translation, path)
        self.by_stmt = {
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.If: self.branch,
            ast.For: self._for,
            ast.While: self._while,
            ast.Return: self._return,
            ast.Break: lambda node: self._leave(self.breaks[-1], "break"),
            ast.Continue: lambda node: self._leave(self.continues[-1], "continue"),
            ast.Expr: self._expression,
            ast.Assert: self._assert,
            ast.Pass: lambda node: None,
        }

    def run(self, arguments: Mapping[str, Any]) -> Any:
        """Translates the body with values for the parameters; returns the function's result."""
        tree = self.source.tree
        for name, value in arguments.items():
            self.names[name] = value
        body = tree.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]  # its docstring
        if flagged(body, "return"):
            self.returns = self._flag("returned")
        self._simple = sum(isinstance(node, ast.Return) for node in ast.walk(tree)) == 1 and (
            isinstance(tree.body[-1], ast.Return)
        )
        self._declare(())
        self._declare_results(tree)
        for name, value in arguments.items():
            if isinstance(self.names[name], Variable):
                self._set(name, value, tree)
        self.stmts(body)
        if not self._simple and self.result is not None:
            if self.assigned.now is not None:
                raise self._returns_none(tree)
            self.result = self._results(self.result)
        return self.result

    def _declare_results(self, tree: ast.FunctionDef) -> None:
        """Memory for a result that is returned on several paths."""
        self._returned: dict[str, Variable] = {}
        self._gives: set[bool] = set()  # whether returns have a value
        values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
        with_value = [value for value in values if value is not None]
        if self._simple or not with_value:
            return
        first = with_value[0]
        count = len(first.elts) if isinstance(first, ast.Tuple) else 0
        names = [f"return.{i}" for i in range(count)] if count else ["return"]
        for name in names:
            self._returned[name] = self._new_variable(name)

    # Branches, returns, and the rest.

    def branch(
        self,
        node: ast.If,
        after_then: Sequence[ast.stmt] = (),
        after_else: Sequence[ast.stmt] = (),
    ) -> None:
        outer, self.emitter.span = self.emitter.span, self.source.span(node)
        self.node = node
        span = self.emitter.span
        condition = self.condition(node.test)
        if is_literal(condition):
            arms = (node.body, "body", after_then), (node.orelse, "orelse", after_else)
            body, part, after = arms[0] if condition else arms[1]
            self._known_arm(body, node, part)
            self.stmts(after)
            self.emitter.span = outer
            return
        self.varying += 1
        blocks: list[list[Stmt]] = []
        arms = (node.body, "body", after_then), (node.orelse, "orelse", after_else)
        before, ends = self.assigned.now, {}
        holding = (condition, self.arithmetic.negated(condition))
        for (body, part, after), holds in zip(arms, holding, strict=True):
            self.assigned.begin_arm(before, holds)
            with self.emitter.inside() as stmts:
                self.block(body, node, part)
                names = dict(self.names)
                self.stmts(after)
                self.names = names
            blocks.append(stmts)
            ends[holds] = self.assigned.now
        self.assigned.end_arms(ends)
        self.varying -= 1
        self.emitter.if_(condition, blocks[0], blocks[1], span)
        self.emitter.span = outer

    def _known_arm(self, body: Sequence[ast.stmt], owner: ast.If, part: str) -> None:
        """The arm of an `if` that is decided at compile time: its names stay defined."""
        outer, self.here = self.here, (*self.here, (id(owner), part))
        self._declare(self.here)
        self.stmts(body)
        self.here = outer

    def _return(self, node: ast.Return) -> None:
        value = None if node.value is None else self.value(node.value)
        self._gives.add(value is not None)
        if len(self._gives) > 1:
            raise self._returns_none(node)
        if self._simple:
            self.result = self._named_result(value)
        elif value is not None:
            self.result = self._keep(value, node)
        self._leave(self.returns, "return")

    def _returns_none(self, at: ast.AST) -> KernelError:
        return self.refuse(
            f"{self.source.tree.name} returns a value on some paths only",
            "callers may use the result",
            "return a value on each path, also at the end",
            at=at,
        )

    def _named_result(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._named_result(part) for part in value)
        return self.named("result", value)

    def _keep(self, value: Any, node: ast.Return) -> Any:
        """Stores what is returned on one of several paths: a number, or a tuple of numbers."""
        if isinstance(value, tuple):
            return tuple(self._keep_one(part, f"return.{i}", node) for i, part in enumerate(value))
        return self._keep_one(value, "return", node)

    def _keep_one(self, value: Any, name: str, node: ast.Return) -> Variable:
        self._check_number(value, "what is returned", node)
        variable = self._returned.get(name)
        if variable is None:
            raise self.refuse(
                "a return of a value where others return none",
                cure="return as many values on each path",
                at=node,
            )
        self._set_number(variable, value)
        return variable

    def _results(self, variable: Any) -> Any:
        if isinstance(variable, tuple):
            return tuple(self._results(part) for part in variable)
        return self.named("result", self._variable(variable))

    def _expression(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if not isinstance(node.value, ast.Call):
            self.value(node.value)
            raise self.refuse(
                "an expression whose value is not used", cure="assign it, or leave it out", at=node
            )
        self.translation.unused = node.value
        self.value(node.value)
        self.translation.unused = None

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
        self.translation.messages.check(self, condition, message, node)
