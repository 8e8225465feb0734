"""Shuffles of subgroups through memory of their workgroup."""

from __future__ import annotations

from dataclasses import replace

from tilewright.dtypes import s64
from tilewright.ir.buffer import Buffer, Space, buffer
from tilewright.ir.expr import Expr, cast, load
from tilewright.ir.functions import FUNCTIONS, Shuffle
from tilewright.ir.stmt import Block, Call, Stmt, Store, View
from tilewright.ir.visit import rewrite_stmts
from tilewright.passes.spmd.nests import ItemNest, fresh


def shuffled(nest: ItemNest, taken: set[str]) -> tuple[ItemNest, list[Buffer]]:
    """``nest`` without shuffles, and the memory that it needs for them.

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

    def change(stmt: Stmt) -> Stmt:
        effect = _shuffle(stmt)
        if effect is None or not isinstance(stmt, Call):
            return stmt
        function = FUNCTIONS[stmt.function]
        to, value, lane = (
            stmt.args[function.position(name)]
            for name in (effect.destination, effect.value, effect.lane)
        )
        assert isinstance(to, View) and isinstance(value, Expr) and isinstance(lane, Expr)
        name = fresh("shuffle", taken)
        between = buffer(name, value.type, nest.extents, space=Space.WORKGROUP)
        memory.append(between)
        found = load(between, (*nest.vars[:-1], cast(s64, lane)))
        return Block(
            (
                Store(between, nest.vars, value, stmt.span),
                Call("barrier", (), stmt.span),
                Store(to.buffer, to.index, found, stmt.span),
            )
        )

    body = rewrite_stmts(nest.body, change)
    return (nest if body is nest.body else replace(nest, body=body)), memory


def _shuffle(stmt: Stmt) -> Shuffle | None:
    if not isinstance(stmt, Call):
        return None
    effects = FUNCTIONS[stmt.function].effects
    return next((each for each in effects if isinstance(each, Shuffle)), None)
