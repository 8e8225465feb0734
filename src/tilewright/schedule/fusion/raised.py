"""Work-items that store an element each as computes over the range: beside other computes, they
become a part of what these do."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Space, row_major
from tilewright.ir.expr import Binary, Const, Expr, Var, as_expr, const, var
from tilewright.ir.stmt import Compute, Dim, If, Let, Stmt, Store, View
from tilewright.ir.visit import block, loads_in, substitute, substitute_stmt, walk_stmts
from tilewright.schedule.fusion.launched import Launched
from tilewright.schedule.fusion.names import variables_in
from tilewright.schedule.fusion.widened import widened
from tilewright.schedule.queries.flow import with_operands
from tilewright.schedule.queries.place import sequence
from tilewright.simplify import simplify, simplify_stmt

_NAMES = ("i", "j", "k")


def raised(nest: Launched, name: str) -> Stmt | None:
    """What the work-items of ``nest`` do as computes called ``name``; None where it is more than to
    store elements at their ids, one after the other.

        grid for group in 4:
          workgroup for item in 64:
            if group*64 + item < 250:
              x = src[group*64 + item]
              dst[group*64 + item] = x * 2.0
    ->  compute name(i in 250):
          x = src[i]
          dst[i] = x * 2.0
    """
    body, dims, facts = _over_range(nest)
    if body is None or nest.shared:
        return None
    body, dims, facts = _over_elements(body, dims, facts)
    values: dict[Var, Expr] = {}
    loaded: dict[Var, set[Buffer]] = {}
    computes: list[Stmt] = []
    for stmt in sequence(body):
        if isinstance(stmt, Let):
            value = substitute(stmt.value, values)
            values[stmt.var] = value
            loaded[stmt.var] = {load.buffer for load in loads_in(value)}
            continue
        compute = _stored(stmt, name, dims, values, facts)
        if compute is None or variables_in(compute) & (loaded.keys() - values.keys()):
            return None
        computes.append(compute)
        stored = compute.out.buffer
        # What was loaded before the store is not what would be loaded after it.
        values = {v: value for v, value in values.items() if stored not in loaded[v]}
    return block(*computes)


def _over_range(nest: Launched) -> tuple[Stmt | None, list[Dim], Facts]:
    """The body of ``nest`` by the ids of the range, and these; no body where ids are not all that
    tells work-items apart."""
    facts = Facts.empty()
    if len(nest.grid) != len(nest.items):
        return None, [], facts
    body = nest.body
    sizes = [group.extent * item.extent for group, item in zip(nest.grid, nest.items, strict=True)]
    number = nest.grid[-1].var * nest.items[-1].extent + nest.items[-1].var
    if isinstance(body, If) and body.orelse is None and isinstance(body.condition, Binary):
        condition = body.condition
        inside = facts
        for loop in nest.owners:
            inside = inside.loop(loop.var, loop.extent)
        if condition.op == "lt" and inside.prove(condition.a == number) is True:
            sizes[-1], body = condition.b, body.then
    dims = [
        Dim(var(name), simplify(as_expr(size), facts))
        for name, size in zip(_NAMES, sizes, strict=False)
    ]
    values: dict[Var, Expr] = {}
    for dim, group, item in zip(dims, nest.grid, nest.items, strict=True):
        values |= {group.var: dim.var // item.extent, item.var: dim.var % item.extent}
        facts = facts.loop(dim.var, dim.extent)
    return simplify_stmt(substitute_stmt(body, values), facts), dims, facts


def _over_elements(body: Stmt, dims: list[Dim], facts: Facts) -> tuple[Stmt, list[Dim], Facts]:
    """The ``body`` of a range of one dim by the dims of what it stores first, where that is all of
    memory of several dims, element by element."""
    store = next((stmt for stmt in walk_stmts(body) if isinstance(stmt, Store)), None)
    if store is None or len(dims) != 1 or store.buffer.rank == 1 or store.buffer.symbols:
        return body, dims, facts
    ((number, extent),) = ((dim.var, dim.extent) for dim in dims)
    shape, layout = store.buffer.shape, store.buffer.layout
    offset = simplify(widened(layout.offset_of(store.index), facts), facts)
    whole = isinstance(extent, Const) and extent.value == prod(shape) == layout.extent
    if offset is not number or not whole or layout != row_major(shape):
        return body, dims, facts
    parts = [Dim(var(f"{number.name}{n}"), const(s)) for n, s in enumerate(shape) if s > 1]
    value: Expr = const(0)
    facts = Facts.empty()
    for part in parts:
        value = value * part.extent + part.var
        facts = facts.loop(part.var, part.extent)
    return simplify_stmt(substitute_stmt(body, {number: value}), facts), parts, facts


def _stored(
    stmt: Stmt, name: str, dims: Sequence[Dim], values: dict[Var, Expr], facts: Facts
) -> Compute | None:
    """The store ``stmt`` as a compute, where each work-item has an element of its own."""
    if not isinstance(stmt, Store) or stmt.buffer.space is not Space.GLOBAL:
        return None
    *index, value = (
        simplify(widened(substitute(expr, values), facts), facts)
        for expr in (*stmt.index, stmt.value)
    )
    variables_here = {dim.var for dim in dims}
    places = [expr for expr in index if not isinstance(expr, Const)]
    if {*places} != variables_here or len(places) != len(variables_here):
        return None
    plain = Compute.single(name, tuple(dims), View(stmt.buffer, tuple(index)), (), value)
    return with_operands(plain)
