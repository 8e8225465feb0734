"""Messages of work-items: `tw.printf`, and assertions that fail.

Both are records in an array that the launch passes, reads afterwards, and prints or raises: the
same on every target.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.dtypes import DType, boolean, f64, s64, u32, u64
from tilewright.errors import Span
from tilewright.ir import expr as ir
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Block, If, Param, View
from tilewright.lang.emitter import Emitter, element

if TYPE_CHECKING:
    from tilewright.lang.expressions import Expressions
    from tilewright.lang.identities import Identities

# Words of the array; the first one counts the words that are written.
ROOM = 1 << 16


@dataclass(frozen=True)
class Message:
    """The message of a record: a text with `{}` for each value, of these types. ``failed``: of an
    assertion."""

    text: str
    types: tuple[DType, ...]
    span: Span | None
    failed: bool


class Messages:
    """Writes records: the number of the message, the work-item's ids, the bits of its values."""

    def __init__(self, emitter: Emitter, identities: Identities) -> None:
        self._emitter = emitter
        self._identities = identities
        self.kinds: list[Message] = []
        self._array: Buffer | None = None

    @property
    def parameters(self) -> list[Param]:
        """The array of the records, if there are any."""
        return [] if self._array is None else [Param(self._array, "inout")]

    def check(self, scope: Expressions, condition: Expr, text: str, node: ast.Assert) -> None:
        """Records a failure where the condition of an assertion does not hold."""
        message = text or ast.unparse(node.test)
        outer = self._emitter.span
        with self._emitter.inside() as stmts:
            self._record(Message(message, (), scope.source.span(node), True), [])
        failed = ir.unary("not", condition)
        self._emitter.emit(If(failed, Block(tuple(stmts)), span=outer))

    def say(self, text: str, values: list[Expr], span: Span | None) -> None:
        """Prints ``text`` with these values."""
        types = tuple(value.type for value in values)
        self._record(Message(text, types, span, False), values)

    def _record(self, message: Message, values: list[Expr]) -> None:
        if self._array is None:
            self._array = buffer(self._emitter.fresh("messages"), u32, (ROOM,))
        number = len(self.kinds)
        self.kinds.append(message)
        dims, most = self._identities.shape.dims, self._identities.most_dim
        ids = [self._emitter.widened(self._identities.number("global_id", d)) for d in range(dims)]
        self._identities.most_dim = most  # the kernel itself asks for no more
        words: list[Expr] = [ir.const(number, u32)]
        for value in [*ids, *values]:
            words += _bits(value)
        emitter = self._emitter
        position = emitter.private("at", u32)
        emitter.call(
            "fetch_add",
            View(position, (ir.const(0),)),
            View(self._array, (ir.const(0),)),
            ir.const(len(words), u32),
        )
        first = emitter.let("first", ir.cast(s64, element(position)) + 1)
        with emitter.inside() as stmts:
            for i, word in enumerate(words):
                emitter.store(self._array, (first + i,), word)
        emitter.if_(first + len(words) <= ROOM, stmts, [], emitter.span)


def _bits(value: Expr) -> list[Expr]:
    """The bits of a number as two words."""
    if value.type is boolean:
        return [ir.cast(u32, value), ir.const(0, u32)]
    if value.type.is_float:
        value = ir.cast(f64, value)
        bits = ir.bitcast(u64, value)
    else:
        bits = ir.cast(u64, ir.cast(s64, value))
    return [ir.cast(u32, bits), ir.cast(u32, bits >> ir.const(32, u64))]
