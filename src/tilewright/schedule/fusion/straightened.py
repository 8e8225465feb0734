"""Straight-line code of several members as if it were written as one: no name twice for a value, no
condition twice."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Block, If, Let, Stmt
from tilewright.ir.visit import (
    block,
    loads_in,
    map_exprs,
    nested,
    reads_memory,
    substitute,
    variables,
    with_nested,
)
from tilewright.schedule.queries.access import buffers_written
from tilewright.schedule.queries.place import sequence


def straightened(stmt: Stmt) -> Stmt:
    """``stmt``, in which no two names are equal, with each value named once and neighbouring
    branches of one condition as one.

        if i < n:
          at = i * 2
          t[0] = x[at]
        if i < n:
          at_2 = i * 2
          y[at_2] = t[0]
    ->  if i < n:
          at = i * 2
          t[0] = x[at]
          y[at] = t[0]
    """
    return _with_shared_lets(_with_merged_branches(stmt), {}, {})


def flat(*stmts: Stmt) -> Stmt:
    """``stmts`` as one block without blocks in it; no two names in them are equal."""
    parts: list[Stmt] = []
    for stmt in stmts:
        for part in sequence(stmt):
            parts += sequence(flat(part)) if isinstance(part, Block) else (part,)
    return parts[0] if len(parts) == 1 else Block(tuple(parts))


def _with_merged_branches(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Block):
        stmt = flat(stmt)
    if not isinstance(stmt, Block):
        return with_nested(stmt, tuple(map(_with_merged_branches, nested(stmt))))
    pure: list[Stmt] = []
    rest: list[Stmt] = []
    named: set[Var] = set()
    values: dict[Expr, Var] = {}
    names: dict[Var, Expr] = {}
    for part in stmt.body:
        part = _substituted(part, names)
        if not isinstance(part, Let):
            rest.append(part)
        elif reads_memory(part.value) or variables(part.value) & named:
            named.add(part.var)
            rest.append(part)
        elif part.value in values and values[part.value].type is part.var.type:
            names[part.var] = values[part.value]
        else:
            values[part.value] = part.var
            pure.append(part)
    merged: list[Stmt] = []
    for part in rest:
        last = merged[-1] if merged else None
        if isinstance(part, If) and isinstance(last, If) and _same_condition(last, part):
            merged[-1] = _both(last, part)
        else:
            merged.append(part)
    return block(*pure, *map(_with_merged_branches, merged))


def _same_condition(first: If, second: If) -> bool:
    if first.condition is not second.condition:
        return False
    read: set[Buffer] = {load.buffer for load in loads_in(first.condition)}
    return not read & buffers_written(first)


def _both(first: If, second: If) -> If:
    branches = [stmt for stmt in (first.orelse, second.orelse) if stmt is not None]
    then = flat(first.then, second.then)
    return replace(first, then=then, orelse=flat(*branches) if branches else None)


def _substituted(stmt: Stmt, names: dict[Var, Expr]) -> Stmt:
    if not names:
        return stmt
    stmt = map_exprs(stmt, lambda expr: substitute(expr, names))
    return with_nested(stmt, tuple(_substituted(part, names) for part in nested(stmt)))


def _with_shared_lets(stmt: Stmt, values: dict[Expr, Var], names: dict[Var, Expr]) -> Stmt:
    """``stmt`` where ``values`` have names; ``names`` are those that are gone."""
    stmt = map_exprs(stmt, lambda expr: substitute(expr, names))
    if not isinstance(stmt, Block):
        parts = (_with_shared_lets(part, dict(values), dict(names)) for part in nested(stmt))
        return with_nested(stmt, tuple(parts))
    kept: list[Stmt] = []
    for part in stmt.body:
        part = _with_shared_lets(part, values, names)
        if isinstance(part, Let) and not reads_memory(part.value):
            other = values.get(part.value)
            if other is not None and other.type is part.var.type:
                names[part.var] = other
                continue
            values[part.value] = part.var
        kept.append(part)
    return block(*kept)
