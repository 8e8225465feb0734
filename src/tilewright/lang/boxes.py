"""Statements at each point of a box, as a structured op if they make one store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir.expr import Expr, Var, all_of
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Block, Compute, Dim, If, Let, Result, Stmt, Store, View
from tilewright.ir.visit import loads_in, reads_memory, rewrite_loads, substitute, walk
from tilewright.lang.emitter import Emitter
from tilewright.schedule.queries.flow import with_operands

# A value of more operations than this stays statements, so that names are evaluated once.
_MOST = 200


def emit_box(emitter: Emitter, name: str, dims: Sequence[Dim], stmts: Sequence[Stmt]) -> None:
    """Emits ``stmts`` at all points of ``dims``: as a structured op with a name like ``name``; or
    as loops, if there are control flow, calls or several stores among them."""
    compute = _compute(name, dims, stmts)
    if compute is not None:
        emitter.emit(replace(compute, name=emitter.fresh(name), span=emitter.span))
        return
    body = list(stmts)
    for dim in reversed(dims):
        with emitter.inside() as around:
            emitter.for_(dim.var, dim.extent, body, emitter.span)
        body = around
    emitter.block += body


def _compute(name: str, dims: Sequence[Dim], stmts: Sequence[Stmt]) -> Compute | None:
    """The op with these names, conditions around the rest, and one store; None for others."""
    names: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    pending = list(stmts)
    while pending:
        stmt = pending.pop(0)
        if isinstance(stmt, Let):
            names[stmt.var] = substitute(stmt.value, names)
        elif isinstance(stmt, Block) and not pending:
            pending = list(stmt.body)
        elif isinstance(stmt, If) and stmt.orelse is None and not pending:
            conditions.append(substitute(stmt.condition, names))
            pending = [stmt.then]
        elif isinstance(stmt, Store) and not pending:
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
    index = tuple(substitute(i, names) for i in stmt.index)
    value, mask = substitute(stmt.value, names), all_of(conditions)
    places = [*index, *conditions, *(i for node in loads_in(value) for i in node.index)]
    if any(map(reads_memory, places)) or sum(1 for _ in walk(value)) > _MOST:
        return None

    def masked(node: Load) -> Expr:
        both = [part for part in (mask, node.mask) if part is not None]
        return load(node.buffer, node.index, all_of(both))

    result = Result((View(stmt.buffer, index, mask),), (rewrite_loads(value, masked),))
    return with_operands(Compute(name, tuple(dims), (), (result,)))
