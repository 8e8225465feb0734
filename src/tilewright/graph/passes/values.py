"""Which buffers of a graph hold one value, who makes it and who reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import view_exprs
from tilewright.ir.functions import FUNCTIONS
from tilewright.ir.opaque import buffers_touched
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    Kernel,
    Opaque,
    Stmt,
    Store,
    View,
)
from tilewright.ir.visit import direct_exprs, loads_in, nested, walk_stmts, with_nested


def statements(kernel: Kernel) -> tuple[Stmt, ...]:
    """Those at the top of ``kernel``, in order."""
    return kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)


def reads_of(stmt: Stmt) -> frozenset[Buffer]:
    """What is loaded in ``stmt``, at any depth. A result that is combined is not in it."""
    if isinstance(stmt, Compute):
        return frozenset(_loaded_by(stmt))
    return frozenset(buffer for node in walk_stmts(stmt) for buffer in _reads(node))


def writes_of(stmt: Stmt) -> frozenset[Buffer]:
    """What is stored or combined into in ``stmt``, at any depth."""
    if isinstance(stmt, Compute):
        return frozenset(view.buffer for view in stmt.outputs)
    return frozenset(buffer for node in walk_stmts(stmt) for buffer in _writes(node))


def _loaded_by(stmt: Compute) -> Iterator[Buffer]:
    views = [operand.view for operand in stmt.operands]
    yield from (view.buffer for view in views)
    for result in stmt.results:
        for value in result.values:
            yield from (part.buffer for part in loads_in(value))
        views += result.views
    for view in views:
        for expr in view_exprs(view):
            yield from (part.buffer for part in loads_in(expr))


def _reads(node: Stmt) -> Iterator[Buffer]:
    match node:
        case Compute():
            yield from _loaded_by(node)
            return
        case Call():
            yield from (view.buffer for view, access in _arguments(node) if access != "out")
        case Opaque():
            yield from buffers_touched(node)
        case _:
            pass
    for expr in direct_exprs(node):
        yield from (part.buffer for part in loads_in(expr))


def _writes(node: Stmt) -> Iterator[Buffer]:
    match node:
        case Store():
            yield node.buffer
        case Compute():
            yield from (view.buffer for view in node.outputs)
        case Call():
            yield from (view.buffer for view, access in _arguments(node) if access != "in")
        case _:
            pass


def _arguments(node: Call) -> Iterator[tuple[View, str]]:
    for arg, parameter in zip(node.args, FUNCTIONS[node.function].parameters, strict=True):
        if isinstance(arg, View):
            yield arg, parameter.access


class Values:
    """The statements of a block, by the buffers that they touch.

    A buffer is a *value* once it is written: where only computes of the block write it, all of them
    before anything else reads it, or where nothing writes it at all (``buffers``). ``kept`` are
    those of the others that the block may leave to who is outside, but are values in it.
    """

    def __init__(
        self,
        stmts: tuple[Stmt, ...],
        buffers: frozenset[Buffer] = frozenset(),
        kept: frozenset[Buffer] = frozenset(),
    ) -> None:
        self.stmts, self.given, self._kept = stmts, buffers, kept
        self.reads = [reads_of(stmt) for stmt in stmts]
        self.writes = [writes_of(stmt) for stmt in stmts]
        self.writers: dict[Buffer, list[int]] = {}
        self.readers: dict[Buffer, list[int]] = {}
        for n, (reads, writes) in enumerate(zip(self.reads, self.writes, strict=True)):
            for write in writes:
                self.writers.setdefault(write, []).append(n)
            for read in reads:
                self.readers.setdefault(read, []).append(n)

    @classmethod
    def of(cls, kernel: Kernel) -> Values:
        """The statements at the top of ``kernel``."""
        buffers = frozenset(array.buffer for array in kernel.arrays if array.access == "in")
        outs = frozenset(array.buffer for array in kernel.arrays if array.access == "out")
        return cls(statements(kernel), buffers, outs)

    def inside(self, position: int, stmts: tuple[Stmt, ...]) -> Values:
        """A block in the statement at ``position``: what was a value before it is one in it."""
        before = (b for b, writers in self.made.items() if writers[-1] < position)
        return Values(stmts, self.given.union(before))

    @cached_property
    def allocated(self) -> dict[Buffer, None]:
        """The buffers that are allocated in the block itself, in order."""
        return {stmt.buffer: None for stmt in self.stmts if isinstance(stmt, Allocate)}

    @cached_property
    def made(self) -> dict[Buffer, tuple[int, ...]]:
        """The buffers that are values, in the order in which they are, with those who make them."""
        written = []
        for buffer, writers in self.writers.items():
            if buffer not in self.allocated and buffer not in self._kept:
                continue
            if not all(isinstance(self.stmts[n], Compute) for n in writers):
                continue
            others = [n for n in self.readers.get(buffer, ()) if n not in writers]
            if not others or min(others) > writers[-1]:
                written.append((buffer, tuple(writers)))
        return dict(sorted(written, key=lambda entry: entry[1][-1]))

    def is_value(self, buffer: Buffer) -> bool:
        """Whether all who read ``buffer`` after those who make it find the same in it."""
        return buffer in self.given or buffer in self.made

    def makers(self, buffer: Buffer) -> list[Compute]:
        """The computes that make a value."""
        kept = []
        for n in self.made.get(buffer, ()):
            stmt = self.stmts[n]
            assert isinstance(stmt, Compute)
            kept.append(stmt)
        return kept


def with_blocks(stmt: Stmt, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """``stmt``, a loop or a condition, with ``change`` applied to the statements of each block
    directly in it; opaque nests stay."""
    if isinstance(stmt, Opaque):
        return stmt
    if isinstance(stmt, Block):
        new = change(stmt.body)
        return stmt if new is stmt.body else Block(new, stmt.span)
    parts: list[Stmt] = []
    for part in nested(stmt):
        old = part.body if isinstance(part, Block) else (part,)
        new = change(old)
        parts.append(part if new is old else Block(new))
    return with_nested(stmt, tuple(parts))
