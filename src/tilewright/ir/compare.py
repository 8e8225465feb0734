"""Structural equality of statements and kernels.

Expressions are interned, so equal ones are one object, unless they load from different buffers.
Buffers count as the same here when all that describes them agrees. Spans and notes don't count,
nor does a block around a single statement.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Bitcast, Cast, Const, Expr, Fma, Select, Unary, Var
from tilewright.ir.load import Load
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Combiner,
    Compute,
    For,
    If,
    Kernel,
    Let,
    Opaque,
    Param,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.visit import children

Comparable = Kernel | Stmt | View | Expr | Buffer


def same(a: Comparable, b: Comparable) -> bool:
    """Whether ``a`` and ``b`` are structurally equal."""
    return difference(a, b) is None


def difference(a: Comparable, b: Comparable) -> str | None:
    """The first difference between ``a`` and ``b`` in program order; None when they are the same.

    It names the path to the place, and both sides.
    """
    return _Comparison().difference(a, b)


class _Comparison:
    def __init__(self) -> None:
        # Pairs of expressions that compared equal: expressions share their parts.
        self.seen: set[tuple[int, int]] = set()

    def difference(self, a: Comparable, b: Comparable) -> str | None:
        if isinstance(a, Kernel) and isinstance(b, Kernel):
            for part, left, right in (("name", a.name, b.name), ("params", _params(a), _params(b))):
                if not self.same(left, right):
                    return _say(part, left, right)
            return self.stmts(a.body, b.body, "")
        if isinstance(a, Stmt) and isinstance(b, Stmt):
            return self.stmts(a, b, "")
        return None if self.same(a, b) else _say("value", a, b)

    def stmts(self, a: Stmt, b: Stmt, path: str) -> str | None:
        """The first difference of two statement trees below ``path``."""
        left, right = _statements(a), _statements(b)
        for one, other in zip(left, right, strict=False):
            difference = self.stmt(one, other, path)
            if difference is not None:
                return difference
        if len(left) == len(right):
            return None
        shorter, longer = sorted((left, right), key=len)
        side = "second" if longer is right else "first"
        extra = headline(longer[len(shorter)])
        return f"{path}only the {side} has `{extra}`"

    def stmt(self, a: Stmt, b: Stmt, path: str) -> str | None:
        if a is b:
            return None
        if type(a) is not type(b):
            return path + _say("statement", a, b)
        here = f"{path}`{headline(a)}`: "
        for (part, left), (_, right) in zip(_fields(a), _fields(b), strict=True):
            if not self.same(left, right):
                return here + _say(part, left, right)
        if isinstance(a, If) and isinstance(b, If):
            return self.stmts(a.then, b.then, here) or self.orelse(a.orelse, b.orelse, here)
        if isinstance(a, For | While | Opaque) and isinstance(b, For | While | Opaque):
            return self.stmts(a.body, b.body, here)
        return self.stmts(a, b, here) if isinstance(a, Block) else None

    def orelse(self, a: Stmt | None, b: Stmt | None, path: str) -> str | None:
        path = f"{path}`else:`: "
        if a is None or b is None:
            return None if a is b else f"{path}only the {'second' if a is None else 'first'} has it"
        return self.stmts(a, b, path)

    def same(self, a: Any, b: Any) -> bool:
        """Whether two fields of nodes are the same."""
        if isinstance(a, Expr) and isinstance(b, Expr):
            return self.exprs(a, b)
        if isinstance(a, tuple) and isinstance(b, tuple):
            return len(a) == len(b) and all(map(self.same, a, b))
        if isinstance(a, Buffer) and isinstance(b, Buffer):
            return a is b or _described(a) == _described(b)
        if isinstance(a, View) and isinstance(b, View):
            return self.same((a.buffer, a.index, a.mask), (b.buffer, b.index, b.mask))
        return type(a) is type(b) and bool(a == b)

    def exprs(self, a: Expr, b: Expr) -> bool:
        stack = [(a, b)]
        while stack:
            one, other = stack.pop()
            if one is other or (id(one), id(other)) in self.seen:
                continue
            parts, others = children(one), children(other)
            if len(parts) != len(others) or not self.nodes(one, other):
                return False
            self.seen.add((id(one), id(other)))
            stack.extend(zip(parts, others, strict=True))
        return True

    def nodes(self, a: Expr, b: Expr) -> bool:
        """Whether two expressions agree, apart from their sub-expressions."""
        if type(a) is not type(b) or a.type is not b.type:
            return False
        match a, b:
            case Binary(), Binary():
                return a.op == b.op
            case Unary(), Unary():
                return a.op == b.op
            case Load(), Load():
                return self.same(a.buffer, b.buffer) and (a.mask is None) == (b.mask is None)
            case ((Const() | Var()), _):
                return False  # interned: the same ones were one object
            case Fma(), Fma():
                return a.exact == b.exact
            case ((Select() | Cast() | Bitcast()), _):
                return True
        return False


def _described(buffer: Buffer) -> tuple[Any, ...]:
    return (buffer.name, buffer.dtype, buffer.sizes, buffer.layout, buffer.space)


def _params(kernel: Kernel) -> tuple[Any, ...]:
    return tuple(
        (p.access, p.buffer, *([] if p.digest is None else [p.digest]))
        if isinstance(p, Param)
        else (p.var, p.low, p.high, p.divisor)
        for p in kernel.params
    )


def _statements(stmt: Stmt) -> tuple[Stmt, ...]:
    while isinstance(stmt, Block):
        if len(stmt.body) != 1:
            return stmt.body
        stmt = stmt.body[0]
    return (stmt,)


def _fields(stmt: Stmt) -> list[tuple[str, Any]]:
    """The fields of ``stmt``, by name, without nested statements."""
    match stmt:
        case For():
            return [("var", stmt.var), ("extent", stmt.extent), ("kind", stmt.kind)]
        case If() | While():
            return [("condition", stmt.condition)]
        case Opaque():
            return [("name", stmt.name), ("reads", stmt.reads), ("writes", stmt.writes)]
        case Let():
            return [("var", stmt.var), ("value", stmt.value)]
        case Allocate():
            return [("buffer", stmt.buffer)]
        case Store():
            return [
                ("buffer", stmt.buffer),
                ("index", stmt.index),
                ("value", stmt.value),
                ("stream", stmt.stream),
            ]
        case Call():
            return [("function", stmt.function), ("args", stmt.args)]
        case Compute():
            return [
                ("name", stmt.name),
                ("dims", tuple((d.var, d.extent) for d in stmt.dims)),
                ("ordered", tuple(d.ordered for d in stmt.dims)),
                ("operands", tuple((o.var, o.view) for o in stmt.operands)),
                ("out", stmt.outputs),
                ("combiner", tuple(_combiner(r.combiner) for r in stmt.results)),
                ("unique", tuple(r.unique for r in stmt.results)),
                ("body", tuple(value for r in stmt.results for value in r.values)),
                ("instruction", stmt.instruction),
                ("completion", stmt.completion),
            ]
        case _:
            return []


def _combiner(combiner: str | Combiner | None) -> Any:
    if isinstance(combiner, Combiner):
        return (combiner.name, combiner.old, combiner.new, combiner.identity, combiner.values)
    return combiner


def _say(part: str, a: Any, b: Any) -> str:
    return f"{part} differs: `{_text(a)}` and `{_text(b)}`"


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, Stmt):
        return headline(value)
    return to_text(value) if isinstance(value, Expr | View | Buffer) else str(value)
