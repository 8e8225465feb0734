"""What a work-item does at each point of a box: a structured op, where it comes to one store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir.expr import Expr, Load, Var, all_of, load
from tilewright.ir.stmt import Block, Compute, Dim, If, Let, Result, Stmt, Store, View
from tilewright.ir.visit import loads_in, reads_memory, rewrite_loads, substitute, walk
from tilewright.lang.emitter import Emitter
from tilewright.schedule.queries.flow import with_operands

# A value of more operations than this stays statements, whose names are evaluated once.
_MOST = 200


def over(emitter: Emitter, name: str, dims: Sequence[Dim], stmts: Sequence[Stmt]) -> None:
    """Emits ``stmts`` at all points of ``dims``: as a structured op like ``name``; or as loops,
    where control flow, calls or several stores are among them."""
    made = _compute(name, dims, stmts)
    if made is not None:
        emitter.emit(replace(made, name=emitter.fresh(name), span=emitter.span))
        return
    body = list(stmts)
    for dim in reversed(dims):
        with emitter.inside() as around:
            emitter.for_(dim.var, dim.extent, body, emitter.span)
        body = around
    emitter.block += body


def _compute(name: str, dims: Sequence[Dim], stmts: Sequence[Stmt]) -> Compute | None:
    """The op that the statements are: names, conditions around the rest of them, and one store."""
    names: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    left = list(stmts)
    while left:
        stmt = left.pop(0)
        if isinstance(stmt, Let):
            names[stmt.var] = substitute(stmt.value, names)
        elif isinstance(stmt, Block) and not left:
            left = list(stmt.body)
        elif isinstance(stmt, If) and stmt.orelse is None and not left:
            conditions.append(substitute(stmt.condition, names))
            left = [stmt.then]
        elif isinstance(stmt, Store) and not left:
            return _stored(name, dims, stmt, names, conditions)
        else:
            return None
    return None


def _stored(
    name: str,
    dims: Sequence[Dim],
    stmt: Store,
    names: dict[Var, Expr],
    conditions: Sequence[Expr],
) -> Compute | None:
    index = tuple(substitute(each, names) for each in stmt.index)
    value, mask = substitute(stmt.value, names), all_of(conditions)
    places = [*index, *conditions, *(i for node in loads_in(value) for i in node.index)]
    if any(map(reads_memory, places)) or sum(1 for _ in walk(value)) > _MOST:
        return None

    def masked(node: Load) -> Expr:
        both = [each for each in (mask, node.mask) if each is not None]
        return load(node.buffer, node.index, all_of(both))

    result = Result((View(stmt.buffer, index, mask),), (rewrite_loads(value, masked),))
    return with_operands(Compute(name, tuple(dims), (), (result,)))
