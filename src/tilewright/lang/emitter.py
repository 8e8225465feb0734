"""Emission of a kernel's statements, each with its place in the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilewright.dtypes import DType, s32, s64
from tilewright.errors import Span
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Binary, Cast, Const, Expr, Select, Var, as_expr, cast, var
from tilewright.ir.expr import binary as binary_expr
from tilewright.ir.expr import select as select_expr
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    For,
    If,
    Let,
    LoopKind,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.visit import reads_memory

_WIDENED = frozenset({"add", "sub", "mul", "floordiv", "mod", "min", "max"})


class Emitter:
    """Emits statements to the open block; gives new names, and memory that a workgroup shares.

    ``span`` is the place of the Python statement under translation.
    """

    def __init__(self, taken: Sequence[str]) -> None:
        self.block: list[Stmt] = []
        self.span: Span | None = None
        self.shared: list[Allocate] = []
        self.effects = 0  # the number of statements other than lets
        self._taken = set(taken)
        # The s64 values of variables of s32, as indices are computed in s64.
        self._wide: dict[Expr, Expr] = {}

    def fresh(self, name: str) -> str:
        """A name that is new in the kernel, like ``name``."""
        unused, count = name, 1
        while unused in self._taken:
            count += 1
            unused = f"{name}_{count}"
        self._taken.add(unused)
        return unused

    def emit(self, stmt: Stmt) -> None:
        """Appends ``stmt`` to the block."""
        self.block.append(stmt)
        if not isinstance(stmt, Let):
            self.effects += 1

    def let(self, name: str, value: Expr) -> Expr:
        """A name for ``value``: it is evaluated here, once."""
        if isinstance(value, Const | Var):
            return value
        variable = var(self.fresh(name), value.type)
        self.emit(Let(variable, value, self.span))
        if value.type is s32 and not isinstance(value, Load):
            wide = self.widened(value)
            if not isinstance(wide, Cast) and not reads_memory(wide):
                self._wide[variable] = wide
        return variable

    def insert_let(self, place: int, name: str, value: Expr) -> Expr:
        """As `let`, before the statement ``place`` of the block."""
        variable = var(self.fresh(name), value.type)
        self.block.insert(place, Let(variable, value, self.span))
        return variable

    def store(self, memory: Buffer, index: Sequence[Expr], value: Expr) -> None:
        self.emit(Store(memory, tuple(index), value, self.span))

    def call(self, function: str, *args: View | Expr) -> None:
        self.emit(Call(function, args, self.span))

    def private(self, name: str, dtype: DType, sizes: Sequence[int] = (1,)) -> Buffer:
        """Private memory of the work-item, from here to the end of the block."""
        memory = buffer(self.fresh(name), dtype, sizes, space=Space.PRIVATE)
        self.emit(Allocate(memory, self.span))
        return memory

    def local(self, name: str, dtype: DType, sizes: Sequence[int]) -> Buffer:
        """Memory that the work-items of a workgroup share."""
        memory = buffer(self.fresh(name), dtype, sizes, space=Space.WORKGROUP)
        self.shared.append(Allocate(memory, self.span))
        return memory

    @contextmanager
    def inside(self) -> Iterator[list[Stmt]]:
        """Redirects statements to a new block, which it gives."""
        outside, self.block = self.block, []
        try:
            yield self.block
        finally:
            self.block = outside

    def if_(self, condition: Expr, then: list[Stmt], orelse: list[Stmt], span: Span | None) -> None:
        if then or orelse:
            other = Block(tuple(orelse)) if orelse else None
            self.emit(If(condition, Block(tuple(then)), other, span))

    def while_(self, condition: Expr, body: list[Stmt], span: Span | None) -> None:
        self.emit(While(condition, Block(tuple(body)), span))

    def for_(self, counter: Var, extent: Expr, body: list[Stmt], span: Span | None) -> None:
        if body:
            self.emit(For(counter, extent, Block(tuple(body)), LoopKind.SERIAL, span))

    def means(self, variable: Expr, wide: Expr) -> None:
        """Notes that ``variable``, of s32, has the value ``wide``, of s64, which fits."""
        self._wide[variable] = wide

    def widened(self, value: Expr) -> Expr:
        """``value``, of s32, computed in s64: an index beyond s32 is still right."""
        wide = self._wide.get(value)
        if wide is not None:
            return wide
        if value.type is s32 and isinstance(value, Binary) and value.op in _WIDENED:
            return binary_expr(value.op, self.widened(value.a), self.widened(value.b))
        if value.type is s32 and isinstance(value, Select):
            return select_expr(value.condition, self.widened(value.a), self.widened(value.b))
        return cast(s64, value)


def element(memory: Buffer, at: Expr | int = 0) -> Load:
    """An element of memory with one dim."""
    return load(memory, (at,))


def plus(a: Expr, b: Expr | int) -> Expr:
    """``a + b``, simplified for 0."""
    if isinstance(b, Const | int) and int(b) == 0:
        return a
    return as_expr(b, a) if isinstance(a, Const) and a.value == 0 else a + b


def times(a: Expr, b: Expr | int) -> Expr:
    """``a * b``, simplified for 1."""
    if isinstance(b, Const | int) and int(b) == 1:
        return a
    return as_expr(b, a) if isinstance(a, Const) and a.value == 1 else a * b


def minus(a: Expr, b: Expr) -> Expr:
    """``a - b``, simplified for 0."""
    return a if isinstance(b, Const) and b.value == 0 else a - b
