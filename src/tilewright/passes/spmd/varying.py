"""Divergence: the values that differ among the work-items of a nest, or the lanes of a vector.

An expression differs where one of its variables does, or where it loads private memory that does.
Shared memory gives the same to all who load one element at one place: between two barriers, no
work-item writes an element that another one reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Expr, Var
from tilewright.ir.functions import FUNCTIONS
from tilewright.ir.stmt import Call, Compute, For, If, Let, Stmt, Store, View, While
from tilewright.ir.visit import loads_in, nested, variables


def written_by(call: Call) -> Iterator[Buffer]:
    """The memory that ``call`` writes."""
    parameters = FUNCTIONS[call.function].parameters
    for parameter, arg in zip(parameters, call.args, strict=False):
        if isinstance(arg, View) and parameter.access in ("out", "inout"):
            yield arg.buffer


class Varying:
    """The ``names`` and private ``buffers`` of ``body`` that differ where ``seeds`` do. Private
    memory that is ``shared`` belongs to all together."""

    def __init__(self, seeds: Iterable[Var], body: Stmt, shared: Collection[Buffer] = ()) -> None:
        self._shared = shared
        self.names: set[Var] = set(seeds)
        self.buffers: set[Buffer] = set()
        size = -1
        while size < len(self.names) + len(self.buffers):
            size = len(self.names) + len(self.buffers)
            self._visit(body, False)

    def of(self, expr: Expr) -> bool:
        """Whether ``expr`` differs."""
        if not variables(expr).isdisjoint(self.names):
            return True
        return any(load.buffer in self.buffers for load in loads_in(expr))

    def any_of(self, exprs: Iterable[Expr]) -> bool:
        """Whether some of ``exprs`` differ."""
        return any(map(self.of, exprs))

    def _visit(self, stmt: Stmt, apart: bool) -> None:
        """``apart``: control has diverged here."""
        match stmt:
            case Let():
                if self.of(stmt.value):
                    self.names.add(stmt.var)
            case Store():
                if apart or self.any_of((stmt.value, *stmt.index)):
                    self._stored(stmt.buffer)
            case Call():
                for buffer in written_by(stmt):
                    self._stored(buffer)
            case Compute():
                for view in stmt.outputs:
                    self._stored(view.buffer)
            case For():
                apart = apart or self.of(stmt.extent)
            case If() | While():
                apart = apart or self.of(stmt.condition)
            case _:
                pass
        for part in nested(stmt):
            self._visit(part, apart)

    def _stored(self, buffer: Buffer) -> None:
        if buffer.space is Space.PRIVATE and buffer not in self._shared:
            self.buffers.add(buffer)
