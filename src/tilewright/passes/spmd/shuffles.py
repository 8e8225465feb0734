"""Shuffles of subgroups, lowered to stores and loads of workgroup or private memory."""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import s64
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Expr, cast
from tilewright.ir.functions import FUNCTIONS, Shuffle
from tilewright.ir.load import load
from tilewright.ir.renaming import fresh
from tilewright.ir.stmt import Block, Call, LoopKind, Stmt, Store, View
from tilewright.ir.visit import rewrite_stmts, walk_stmts
from tilewright.passes.spmd.nests import ItemNest

# Subgroups of more lanes are no vectors: their values would spill.
_MOST_LANES = 64


def exchanges(body: Stmt) -> bool:
    """Whether lanes of a subgroup exchange values."""
    return any(shuffle_of(stmt) is not None for stmt in walk_stmts(body))


def is_vector(nest: ItemNest) -> bool:
    """Whether the lanes of a subgroup can be the lanes of one vector."""
    kinds = [loop.kind for loop in nest.loops[-2:]]
    return kinds == [LoopKind.SUBGROUP, LoopKind.LANE] and 1 < nest.extents[-1] <= _MOST_LANES


def shuffled(nest: ItemNest, taken: set[str], space: Space) -> tuple[ItemNest, list[Buffer]]:
    """``nest`` without shuffles, and the memory that replaces them: of the workgroup, or private,
    where the nest is one subgroup.

        subgroup for s in 2:
          lane for l in 16:
            shuffle(&y[0], x[0], 15 - l)
    ->  alloc shuffle: f32[2, 16] workgroup
        subgroup for s in 2:
          lane for l in 16:
            shuffle[s, l] = x[0]
            barrier()
            y[0] = shuffle[s, 15 - l]
    """
    memory: list[Buffer] = []
    meet = "barrier" if space is Space.WORKGROUP else "subgroup_barrier"

    def change(stmt: Stmt) -> Stmt:
        exchange = shuffle_of(stmt)
        if exchange is None:
            return stmt
        to, value, lane = exchange
        name = fresh("shuffle", taken)
        exchanged = buffer(name, value.type, nest.extents, space=space)
        memory.append(exchanged)
        received = load(exchanged, (*nest.vars[:-1], cast(s64, lane)))
        return Block(
            (
                Store(exchanged, nest.vars, value, stmt.span),
                Call(meet, (), stmt.span),
                Store(to.buffer, to.index, received, stmt.span),
            )
        )

    body = rewrite_stmts(nest.body, change)
    return (nest if body is nest.body else replace(nest, body=body)), memory


def shuffle_of(stmt: Stmt) -> tuple[View, Expr, Expr] | None:
    """The destination, the value and the source lane of a shuffle; None for other statements."""
    if not isinstance(stmt, Call):
        return None
    function = FUNCTIONS[stmt.function]
    effect = next((e for e in function.effects if isinstance(e, Shuffle)), None)
    if effect is None:
        return None
    to, value, lane = (
        stmt.args[function.position(name)]
        for name in (effect.destination, effect.value, effect.lane)
    )
    assert isinstance(to, View) and isinstance(value, Expr) and isinstance(lane, Expr)
    return to, value, lane
