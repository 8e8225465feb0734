"""Loops of Python to loops of the IR."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tilewright.dtypes import boolean, s64
from tilewright.ir import expr as ir
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Stmt
from tilewright.lang.blocks import Blocks
from tilewright.lang.emitter import element, minus, plus, times
from tilewright.lang.exits import exits, flagged
from tilewright.lang.values import Range, described, is_literal

_ZERO = (ir.const(0),)
# More copies of a body than this are refused as a mistake.
_MOST_COPIES = 4096


class Loops(Blocks):
    """The part of a `Translator` for loops."""

    def _for(self, node: ast.For) -> None:
        if node.orelse:
            raise self.refuse(
                "a loop with an else", cure="set a variable, and test it after the loop", at=node
            )
        values = self.value(node.iter)
        if isinstance(values, tuple):
            self._copies(node, values)
        elif not isinstance(values, Range):
            raise self.refuse(
                f"a loop over {described(values)}",
                "loops count, or go through a tuple",
                "write for i in range(n), and use element i",
            )
        elif values.static:
            self._copies(node, range(values.start, values.stop, values.step))
        else:
            self._count(node, values)

    def _copies(self, node: ast.For, values: Sequence[Any]) -> None:
        """A copy of the body for each value."""
        if len(values) > _MOST_COPIES:
            raise self.refuse(
                f"{len(values)} copies of a loop's body", cure="write range: it makes a loop"
            )
        once = len(values) > 0
        with self._flags(node) as (broken, skipped), self.assigned.loop(once):
            for value in values:
                condition = self.not_left([broken, self.returns if _returns(node) else None])
                with self.emitter.inside() as stmts:
                    self._reset(skipped)
                    self._iteration(node, partial(_itself, value))
                if condition is None:
                    self.emitter.block += stmts
                else:
                    self.emitter.if_(condition, stmts, [], self.emitter.span)

    def _count(self, node: ast.For, values: Range) -> None:
        """A loop that counts."""
        if not isinstance(node.target, ast.Name):
            raise self.refuse("a loop that counts several names", cure="count one", at=node.target)
        name, span = node.target.id, self.emitter.span
        start, stop, step = values.start, values.stop, values.step
        dtype = self.arithmetic.type_of(start)
        for bound in (stop, step):
            common = self.arithmetic.common_type(start, bound)
            if common is None or not common.is_integer:
                raise self.refuse(
                    f"a range of {self.arithmetic.type_of(bound)}", cure="count in integers of s64"
                )
            dtype = common if common.bits > dtype.bits else dtype
        first, by = self.to_index(start), self.to_index(step)
        extent = self._extent(first, self.to_index(stop), by)

        def at(count: Expr) -> Any:
            wide = plus(times(count, by), first)
            if dtype is s64:
                return wide
            variable = self.emitter.let(name, ir.cast(dtype, wide))
            self.emitter.means(variable, wide)
            return variable

        leaves = "break" in _inside(node) or _returns(node)
        once = isinstance(extent, ir.Const) and extent.value > 0
        with self._flags(node) as (broken, skipped), self.assigned.loop(once):
            if leaves:
                self._count_until(node, extent, at, (broken, skipped))
                return
            counter = ir.var(self.emitter.fresh(name if dtype is s64 else f"{name}_at"), s64)
            with self.emitter.inside() as stmts:
                self._reset(skipped)
                self._iteration(node, lambda: at(counter))
            self.emitter.for_(counter, extent, stmts, span)

    def _count_until(
        self,
        node: ast.For,
        extent: Expr,
        at: Callable[[Expr], Any],
        flags: tuple[Buffer | None, Buffer | None],
    ) -> None:
        """A loop that counts, with breaks or returns."""
        span = self.emitter.span
        counter = self.emitter.private("count", s64)
        self.emitter.store(counter, _ZERO, ir.const(0))
        limit = self.emitter.let("times", extent)
        going = element(counter) < limit
        condition = self.not_left([flags[0], self.returns if _returns(node) else None])
        with self.emitter.inside() as stmts:
            now = self.emitter.let("now", element(counter))
            self._reset(flags[1])
            self._iteration(node, lambda: at(now))
            self.emitter.store(counter, _ZERO, now + 1)
        self.emitter.while_(going if condition is None else going & condition, stmts, span)

    def _extent(self, first: Expr, stop: Expr, by: Expr) -> Expr:
        """The number of iterations of a loop."""
        if isinstance(by, ir.Const):
            if by.value == 0:
                raise self.refuse("a range in steps of 0", cure="give a step that is not 0")
            if by.value < 0:
                return self._steps(minus(first, stop), ir.const(-by.value))
            return self._steps(minus(stop, first), by)
        up, down = (
            self._steps(minus(stop, first), by),
            self._steps(first - stop, ir.unary("neg", by)),
        )
        return ir.select(ir.const(0) < by, up, down)

    def _steps(self, distance: Expr, by: Expr) -> Expr:
        if isinstance(by, ir.Const) and by.value == 1:
            return distance
        return (distance + (by - 1)) // by

    def _iteration(self, node: ast.For, value: Callable[[], Any]) -> None:
        """One run of the body, with a value for the loop's name."""
        outer, self.here = self.here, (*self.here, (id(node), "body"))
        before = dict(self.names)
        self.varying += 1
        with self.assigned.iteration():
            self._declare(self.here)
            self.assign(node.target, value())
            self.stmts(node.body)
        self.varying -= 1
        self.here = outer
        self.names = before

    def _while(self, node: ast.While) -> None:
        if node.orelse:
            raise self.refuse(
                "a loop with an else", cure="set a variable, and test it after the loop", at=node
            )
        span = self.emitter.span
        with self._flags(node) as (broken, skipped):
            go_on = self.not_left([broken, self.returns if _returns(node) else None])
            with self.emitter.inside() as before:
                condition = self.condition(node.test)
            if is_literal(condition) and not condition:
                return
            with self.assigned.loop(once=False, ends=not is_literal(condition)):
                if before:
                    self._while_computed(node, (before, condition), go_on, skipped)
                    return
                both = self.arithmetic.both(go_on, condition)
                with self.emitter.inside() as stmts:
                    self._while_body(node, skipped)
                if is_literal(both):
                    both = ir.const(True)
                self.emitter.while_(both, stmts, span)

    def _while_body(self, node: ast.While, skipped: Buffer | None) -> None:
        self.varying += 1
        with self.assigned.iteration():
            self._reset(skipped)
            self.block(node.body, node, "body")
        self.varying -= 1

    def _while_computed(
        self,
        node: ast.While,
        tested: tuple[list[Stmt], Any],
        go_on: Expr | None,
        skipped: Buffer | None,
    ) -> None:
        """A loop whose condition takes statements: they stand before it and at its end."""
        before, condition = tested
        span = self.emitter.span
        flag = self.emitter.private("go", boolean)
        self.emitter.block += before
        self.emitter.store(flag, _ZERO, self.arithmetic.convert(condition, boolean))
        both = element(flag) if go_on is None else element(flag) & go_on
        with self.emitter.inside() as stmts:
            self._while_body(node, skipped)
            self.varying += 1
            with self.emitter.inside() as again:
                result = self.arithmetic.convert(self.condition(node.test), boolean)
                self.emitter.store(flag, _ZERO, result)
            if go_on is None:
                self.emitter.block += again
            else:
                self.emitter.if_(go_on, again, [], span)
            self.varying -= 1
        self.emitter.while_(both, stmts, span)

    @contextmanager
    def _flags(self, node: ast.For | ast.While) -> Iterator[tuple[Buffer | None, Buffer | None]]:
        """The flags of a loop: that it was left, and that the rest of an iteration is skipped."""
        broken = self._flag("broken") if "break" in _inside(node) else None
        skipped = None
        if flagged(node.body, "continue"):
            skipped = self._flag("skipped")
        self.breaks.append(broken)
        self.continues.append(skipped)
        yield broken, skipped
        self.breaks.pop()
        self.continues.pop()

    def _reset(self, flag: Buffer | None) -> None:
        if flag is not None:
            self.emitter.store(flag, _ZERO, ir.const(False))


def _inside(node: ast.For | ast.While) -> frozenset[str]:
    return frozenset[str]().union(*map(exits, node.body))


def _returns(node: ast.For | ast.While) -> bool:
    return "return" in _inside(node)


def _itself(value: Any) -> Any:
    return value
