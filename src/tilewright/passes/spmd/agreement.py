"""Values that the lanes of a subgroup agreed on, where these decide about further exchanges.

Lanes combine their values in steps (a butterfly): each takes that of its neighbour, then of the
lane whose number differs in the next bit, and so on. After the last bit all have the same, as a
commutative operation gives the same to both of a pair. Machines that run lanes as a vector have to
know: where lanes exchange values, control must be uniform.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from tilewright.errors import Span
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Binary, Const, Expr, Var, const
from tilewright.ir.load import load
from tilewright.ir.renaming import fresh
from tilewright.ir.stmt import Allocate, Block, Call, For, If, Let, Stmt, Store, View, While
from tilewright.ir.visit import (
    block,
    direct_exprs,
    nested,
    reads_memory,
    rewrite,
    walk_stmts,
    with_nested,
)
from tilewright.passes.spmd.nests import ItemNest
from tilewright.passes.spmd.shuffles import exchanges, shuffle_of
from tilewright.passes.spmd.varying import Varying, written_by

# Commutative operators: the same for both of a pair.
_UNORDERED = ("add", "mul", "max", "min", "and", "or", "xor")


def with_agreed(nest: ItemNest, taken: set[str]) -> Stmt:
    """The body of ``nest`` with the first lane's value for values that all lanes agreed on, if such
    a value decides whether, or how often, they exchange values.

        shuffle(&other[0], x, lane ^ 1)
        most = max(x, other[0])
        if most > 0:
          shuffle(...)
    ->  shuffle(&other[0], x, lane ^ 1)
        alloc agreed: s32[1] private
        shuffle(&agreed[0], max(x, other[0]), 0)
        most = agreed[0]
        if most > 0:
          shuffle(...)
    """
    lane, lanes = nest.vars[-1], nest.extents[-1]
    varying = Varying([lane], nest.body)
    control = (
        stmt
        for stmt in walk_stmts(nest.body)
        if isinstance(stmt, For | If | While) and any(map(exchanges, nested(stmt)))
    )
    is_power_of_two = lanes & (lanes - 1) == 0  # otherwise some lanes have no partner
    if not is_power_of_two or not any(varying.any_of(direct_exprs(stmt)) for stmt in control):
        return nest.body
    writes = Counter(_written(nest.body))
    agreement = _Agreement(lane, lanes, taken, {memory for memory in writes if writes[memory] == 1})
    return block(*agreement.visit(nest.body))


def _written(body: Stmt) -> Iterator[Buffer]:
    """The memory of each write in ``body``."""
    for stmt in walk_stmts(body):
        if isinstance(stmt, Store):
            yield stmt.buffer
        elif isinstance(stmt, Call):
            yield from written_by(stmt)


@dataclass
class _Agreement:
    lane: Var
    lanes: int
    taken: set[str]
    once: set[Buffer]  # memory that only one statement writes
    # Values of other lanes: the value there, and the bit by which the lane's number differs.
    others: dict[Expr, tuple[Expr, int]] = field(default_factory=dict)
    # For each name, the bits of the lane's number on which its value no longer depends.
    bits: dict[Expr, int] = field(default_factory=dict)

    def visit(self, stmt: Stmt) -> tuple[Stmt, ...]:
        """The replacement of ``stmt``."""
        match stmt:
            case Call():
                self._exchanged(stmt)
            case Let() | Store():
                before, value = self._first_of(stmt.value, stmt.span)
                if isinstance(stmt, Let) and value is stmt.value:
                    self._named(stmt)
                return (*before, replace(stmt, value=value))
            case Block():
                return (replace(stmt, body=self._inside(stmt.body)),)
            case For():
                before, extent = self._first_of(stmt.extent, stmt.span)
                return (*before, self._around(replace(stmt, extent=extent)))
            case If():
                before, condition = self._first_of(stmt.condition, stmt.span)
                return (*before, self._around(replace(stmt, condition=condition)))
            case _:
                return (self._around(stmt),)
        return (stmt,)

    def _around(self, stmt: Stmt) -> Stmt:
        return with_nested(stmt, tuple(block(*self._inside([part])) for part in nested(stmt)))

    def _inside(self, stmts: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """The replacements of ``stmts``. Values of others that they define do not hold after
        them."""
        others = dict(self.others)
        visited = tuple(chain.from_iterable(map(self.visit, stmts)))
        self.others = others
        return visited

    def _exchanged(self, call: Call) -> None:
        shuffle = shuffle_of(call)
        if shuffle is None:
            return
        to, value, lane = shuffle
        bit = self._bit(lane)
        if bit and to.buffer in self.once and not reads_memory(value):
            self.others[load(to.buffer, to.index)] = value, bit

    def _bit(self, other: Expr) -> int:
        """The bit by which the number of the lane ``other`` differs; 0 for other lanes."""
        if not isinstance(other, Binary) or other.op != "xor" or other.a is not self.lane:
            return 0
        mask = int(other.b.value) if isinstance(other.b, Const) else 0
        return mask if 0 < mask < self.lanes and mask & (mask - 1) == 0 else 0

    def _named(self, let: Let) -> None:
        if let.value in self.others:
            self.others[let.var] = self.others[let.value]
        self.bits[let.var] = self._bits(let.value)

    def _bits(self, expr: Expr) -> int:
        """The bits of the lane's number on which ``expr`` does not depend."""
        if isinstance(expr, Binary) and expr.op in _UNORDERED:
            for mine, other in ((expr.a, expr.b), (expr.b, expr.a)):
                value, bit = self.others.get(other, (None, 0))
                if value is mine:
                    return self._bits(mine) | bit
        return self.bits.get(expr, 0)

    def _first_of(self, expr: Expr, span: Span | None) -> tuple[list[Stmt], Expr]:
        """Statements that share the first lane's value of agreed parts; and ``expr`` with it."""
        stmts: list[Stmt] = []

        def change(node: Expr) -> Expr:
            if self._bits(node) != self.lanes - 1 or isinstance(node, Var):
                return node
            memory = buffer(fresh("agreed", self.taken), node.type, (1,), space=Space.PRIVATE)
            index = (const(0),)
            stmts.append(Allocate(memory))
            stmts.append(Call("shuffle", (View(memory, index), node, const(0)), span))
            return load(memory, index)

        return stmts, rewrite(expr, change)
