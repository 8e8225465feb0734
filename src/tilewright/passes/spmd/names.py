"""Names for the values of private memory, so that later stages see values instead of memory.

A front end keeps a variable that is assigned several times in memory of one element. Where one
assignment must have been the last, its value replaces loads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Expr, Var, var
from tilewright.ir.load import Load
from tilewright.ir.renaming import DistinctNames, fresh
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    For,
    If,
    Kernel,
    Let,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.visit import (
    block,
    direct_exprs,
    loads_in,
    map_exprs,
    map_kernel,
    nested,
    rewrite_exprs,
    rewrite_loads,
    rewrite_stmts,
    substitute,
    variables,
    walk_stmts,
    with_nested,
)
from tilewright.passes.spmd.nests import ItemNest, map_nests, names_of

# An element of private memory at an index of numbers.
Place = tuple[Buffer, tuple[int, ...]]


def name_values(kernel: Kernel) -> Kernel:
    """Names the values that work-items assign to private memory, and defines each name once.

        workgroup for t in 64:
          alloc x: s64[1] private
          x[0] = t * 2
          y[x[0]] = 1.0
          x[0] = x[0] + 1
          if a[t] < 1.0:
            x[0] = 7
          z[x[0]] = 1.0
    ->  workgroup for t in 64:
          alloc x: s64[1] private
          x_2 = t * 2
          y[x_2] = 1.0
          x_3 = x_2 + 1
          x[0] = x_3
          if a[t] < 1.0:
            x[0] = 7
          z[x[0]] = 1.0

    Loads of read-only memory in the extent of a loop get a name before the loop, whose body mostly
    uses them, too: ``for k in end[t] - start[t]: sum[0] = sum[0] + a[start[t] + k]``.
    """
    taken = names_of(kernel)
    read_only = {param.buffer for param in kernel.arrays if param.access == "in"}

    def change(nest: ItemNest) -> Stmt:
        body = without_dead_stores(_Namer(nest.body, taken).run(nest.body))
        return nest.around(_with_named_extents(_stored_directly(body), read_only, taken))

    return map_kernel(kernel, lambda body: map_nests(body, change))


class _Namer:
    def __init__(self, body: Stmt, taken: set[str]) -> None:
        self._taken = taken
        self._buffers = constant_places(body)
        self._distinct = DistinctNames(taken)

    def run(self, body: Stmt) -> Stmt:
        return self._visit(body, {}, {})

    def _visit(self, stmt: Stmt, values: dict[Place, Expr], names: dict[Var, Expr]) -> Stmt:
        """``stmt`` where places have ``values``; ``names`` are renamed variables."""
        if isinstance(stmt, Block):
            return self._block(stmt, values, names)
        if isinstance(stmt, For | While):
            for place in _stored(stmt.body, self._buffers):
                values.pop(place, None)
        stmt = map_exprs(stmt, lambda expr: _with_values(substitute(expr, names), values))
        match stmt:
            case For():
                variable = self._distinct.of(stmt.var)
                inside = {**names, stmt.var: variable}
                body = self._visit(stmt.body, dict(values), inside)
                return replace(stmt, var=variable, body=body)
            case While():
                return with_nested(stmt, (self._visit(stmt.body, dict(values), dict(names)),))
            case If():
                return self._if(stmt, values, names)
            case Store() if stmt.buffer in self._buffers:
                values[place_of(stmt.buffer, stmt.index)] = stmt.value
                if not isinstance(stmt.value, Var | Const):
                    del values[place_of(stmt.buffer, stmt.index)]
                return stmt
            case _:
                return stmt

    def _if(self, stmt: If, values: dict[Place, Expr], names: dict[Var, Expr]) -> If:
        branches = [dict(values), dict(values)]
        then = self._visit(stmt.then, branches[0], dict(names))
        orelse = stmt.orelse and self._visit(stmt.orelse, branches[1], dict(names))
        values.clear()
        values.update({p: v for p, v in branches[0].items() if branches[1].get(p) is v})
        return replace(stmt, then=then, orelse=orelse)

    def _block(self, stmt: Block, values: dict[Place, Expr], names: dict[Var, Expr]) -> Block:
        names = dict(names)
        body: list[Stmt] = []
        defined: set[Expr] = set()
        for part in stmt.body:
            new = self._visit(part, values, names)
            match new:
                case Let():
                    variable = self._distinct.of(new.var)
                    names[new.var] = variable
                    body.append(replace(new, var=variable))
                    defined.add(variable)
                case Store() if new.buffer in self._buffers:
                    value = new.value
                    if not isinstance(value, Var | Const):
                        value = var(fresh(new.buffer.name, self._taken), value.type)
                        body.append(Let(value, new.value, new.span))
                        defined.add(value)
                        new = replace(new, value=value)
                    body.append(new)
                    values[place_of(new.buffer, new.index)] = value
                case Allocate():
                    for place in [place for place in values if place[0] is new.buffer]:
                        del values[place]
                    body.append(new)
                case _:
                    body.append(new)
        for place in [place for place, value in values.items() if value in defined]:
            del values[place]
        return Block(tuple(body), stmt.span)


def _with_values(expr: Expr, values: Mapping[Place, Expr]) -> Expr:
    def change(load: Load) -> Expr:
        if load.mask is not None or not all(isinstance(i, Const) for i in load.index):
            return load
        return values.get(place_of(load.buffer, load.index), load)

    return rewrite_loads(expr, change)


def place_of(buffer: Buffer, index: tuple[Expr, ...]) -> Place:
    """The place at an ``index`` of constants."""
    return buffer, tuple(int(i.value) for i in index if isinstance(i, Const))


def constant_places(body: Stmt) -> set[Buffer]:
    """The private buffers of ``body`` that only loads and stores with constant indices access."""
    buffers = {
        s.buffer
        for s in walk_stmts(body)
        if isinstance(s, Allocate) and s.buffer.space is Space.PRIVATE
    }
    for stmt in walk_stmts(body):
        match stmt:
            case Store() if not all(isinstance(i, Const) for i in stmt.index):
                buffers.discard(stmt.buffer)
            case Call():
                buffers -= {arg.buffer for arg in stmt.args if isinstance(arg, View)}
            case Compute():
                buffers -= {view.buffer for view in stmt.outputs}
                buffers -= {operand.view.buffer for operand in stmt.operands}
            case _:
                pass
        for expr in direct_exprs(stmt):
            for load in loads_in(expr):
                if load.mask is not None or not all(isinstance(i, Const) for i in load.index):
                    buffers.discard(load.buffer)
    return buffers


def _stored(body: Stmt, buffers: set[Buffer]) -> set[Place]:
    return {
        place_of(s.buffer, s.index)
        for s in walk_stmts(body)
        if isinstance(s, Store) and s.buffer in buffers
    }


def without_dead_stores(body: Stmt) -> Stmt:
    """``body`` without the private memory that is never read."""
    private = {
        s.buffer
        for s in walk_stmts(body)
        if isinstance(s, Allocate) and s.buffer.space is Space.PRIVATE
    }
    used: Counter[Buffer] = Counter()
    for stmt in walk_stmts(body):
        used.update(load.buffer for expr in direct_exprs(stmt) for load in loads_in(expr))
        if isinstance(stmt, Call):
            used.update(arg.buffer for arg in stmt.args if isinstance(arg, View))
        if isinstance(stmt, Compute):
            used.update(view.buffer for view in stmt.outputs)
            used.update(operand.view.buffer for operand in stmt.operands)
    dead = private - used.keys()
    return _without(body, dead) if dead else body


def _without(stmt: Stmt, dead: set[Buffer]) -> Stmt:
    if isinstance(stmt, Block):
        live = [p for p in stmt.body if not (isinstance(p, Store | Allocate) and p.buffer in dead)]
        return Block(tuple(_without(part, dead) for part in live), stmt.span)
    if isinstance(stmt, Store | Allocate) and stmt.buffer in dead:
        return Block(())
    return with_nested(stmt, tuple(_without(part, dead) for part in nested(stmt)))


def _stored_directly(body: Stmt) -> Stmt:
    """``body`` without names that only the next statement, a store, uses: an update of an element
    is one statement."""
    uses: Counter[Var] = Counter()
    for stmt in walk_stmts(body):
        for expr in direct_exprs(stmt):
            uses.update(variables(expr))

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Block):
            return stmt
        stmts: list[Stmt] = []
        for part in stmt.body:
            last = stmts[-1] if stmts else None
            if (
                isinstance(part, Store)
                and isinstance(last, Let)
                and part.value is last.var
                and uses[last.var] == 1
            ):
                stmts[-1] = replace(part, value=last.value)
            else:
                stmts.append(part)
        return stmt if len(stmts) == len(stmt.body) else Block(tuple(stmts), stmt.span)

    return rewrite_stmts(body, change)


def _with_named_extents(body: Stmt, read_only: set[Buffer], taken: set[str]) -> Stmt:
    """``body`` with names for loads in extents."""

    def named(loop: For) -> list[Stmt]:
        loads = [n for n in loads_in(loop.extent) if n.buffer in read_only and n.mask is None]
        names = {node: var(fresh(node.buffer.name, taken), node.type) for node in loads}
        stmt = rewrite_exprs(
            loop, lambda expr: rewrite_loads(expr, lambda node: names.get(node, node))
        )
        return [*(Let(name, node, loop.span) for node, name in names.items()), stmt]

    def change(stmt: Stmt) -> Stmt:
        parts = [named(part) if isinstance(part, For) else [part] for part in nested(stmt)]
        if all(len(stmts) == 1 for stmts in parts):
            return stmt
        if isinstance(stmt, Block):
            return Block(tuple(chain.from_iterable(parts)), stmt.span)
        return with_nested(stmt, tuple(block(*stmts) for stmts in parts))

    return rewrite_stmts(body if isinstance(body, Block) else Block((body,)), change)
