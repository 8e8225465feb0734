"""Conditional evaluation: the operands of `and` and `or`, and the sides of a conditional
expression. Loads there are masked; statements are put into an `if`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.dtypes import DType, boolean
from tilewright.ir import expr as ir
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Let
from tilewright.lang.emitter import element
from tilewright.lang.scope import Scope
from tilewright.lang.values import is_literal


class Guards(Scope):
    """The part of `Expressions` for conditions."""

    def condition(self, node: ast.expr) -> Any:
        """A condition: a bool, or an expression of bool."""
        if isinstance(node, ast.BoolOp):
            return self._holds(node, as_value=False)
        return super().condition(node)

    def _logic(self, node: ast.BoolOp) -> Any:
        """`and` and `or` as values: in Python that is one of the operands, which makes no
        difference for bools."""
        return self._holds(node, as_value=True)

    def _holds(self, node: ast.BoolOp, as_value: bool) -> Any:
        """Whether all operands hold, or one; ``as_value``: only bools are allowed."""
        ends = isinstance(node.op, ast.Or)
        part = partial(self._operand, node, as_value)
        result = part(node.values[0])
        for operand in node.values[1:]:
            if is_literal(result):
                if bool(result) == ends:
                    return result
                result = part(operand)
                continue
            go_on = self.arithmetic.negated(result) if ends else result
            value, stmts = self.guarded(go_on, partial(part, operand))
            if stmts is None:
                if is_literal(value):
                    result = (value or result) if ends else (result if value else False)
                else:
                    result = (result | value) if ends else (result & value)
                continue
            result = self._stored(go_on, result, value, stmts, boolean)
        return result

    def _operand(self, whole: ast.BoolOp, as_value: bool, node: ast.expr) -> Any:
        """An operand of ``whole`` as a condition."""
        if not as_value:
            return self.condition(node)
        value = self.number(node, "the condition")
        if self.arithmetic.type_of(value) is not boolean:
            word, instead = (
                ("and", "y if x != 0 else x")
                if isinstance(whole.op, ast.And)
                else ("or", "x if x != 0 else y")
            )
            raise self.refuse(
                f"`{word}` of {self.arithmetic.type_of(value)}, whose value is used",
                f"in Python, `x {word} y` is one of the two, and here a condition",
                f"write {instead}; or, for the condition, x != 0",
                at=node,
            )
        return value

    def guarded(self, condition: Expr, make: Callable[[], Any]) -> tuple[Any, list[Any] | None]:
        """The value of ``make`` where ``condition`` holds, and the statements that must run only
        there; None where they may run anywhere, and are emitted."""
        outer = self.guard
        self.guard = self.arithmetic.both(outer, condition)
        with self.emitter.inside() as stmts:
            value = make()
        self.guard = outer
        if all(isinstance(stmt, Let) for stmt in stmts):
            self.emitter.block += stmts
            return value, None
        return value, stmts

    def _stored(
        self,
        condition: Expr,
        otherwise: Any,
        value: Any,
        stmts: list[Any],
        dtype: DType,
    ) -> Expr:
        """``value``, which ``stmts`` compute where ``condition`` holds; elsewhere ``otherwise``."""
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
