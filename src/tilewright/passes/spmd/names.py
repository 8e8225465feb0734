"""Names for the values of private memory, so that what follows sees values and not memory.

A front end keeps a variable that is assigned several times in memory of one element. Where only one
assignment can have been the last, its value stands for what would be loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, Expr, Load, Var, var
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
from tilewright.passes.spmd.nests import ItemNest, OwnNames, fresh, map_nests, names_of

# An element of private memory at an index of numbers.
Place = tuple[Buffer, tuple[int, ...]]


def name_values(kernel: Kernel) -> Kernel:
    """Names what work-items assign to private memory, and gives each name one meaning.

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

    What a loop's extent loads of memory that is only read has a name in front of the loop, in which
    it mostly counts from there: ``for k in end[t] - start[t]: sum[0] = sum[0] + a[start[t] + k]``.
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
        self._own = OwnNames(taken)

    def run(self, body: Stmt) -> Stmt:
        return self._visit(body, {}, {})

    def _visit(self, stmt: Stmt, known: dict[Place, Expr], names: dict[Var, Expr]) -> Stmt:
        """``stmt`` where places have ``known`` values; ``names`` are those that are others now."""
        if isinstance(stmt, Block):
            return self._block(stmt, known, names)
        if isinstance(stmt, For | While):
            for place in _stored(stmt.body, self._buffers):
                known.pop(place, None)
        stmt = map_exprs(stmt, lambda expr: _valued(substitute(expr, names), known))
        match stmt:
            case For():
                variable = self._own.of(stmt.var)
                inside = {**names, stmt.var: variable}
                body = self._visit(stmt.body, dict(known), inside)
                return replace(stmt, var=variable, body=body)
            case While():
                return with_nested(stmt, (self._visit(stmt.body, dict(known), dict(names)),))
            case If():
                return self._if(stmt, known, names)
            case Store() if stmt.buffer in self._buffers:
                known[place_of(stmt.buffer, stmt.index)] = stmt.value
                if not isinstance(stmt.value, Var | Const):
                    del known[place_of(stmt.buffer, stmt.index)]
                return stmt
            case _:
                return stmt

    def _if(self, stmt: If, known: dict[Place, Expr], names: dict[Var, Expr]) -> If:
        ways = [dict(known), dict(known)]
        then = self._visit(stmt.then, ways[0], dict(names))
        orelse = stmt.orelse and self._visit(stmt.orelse, ways[1], dict(names))
        known.clear()
        known.update({p: v for p, v in ways[0].items() if ways[1].get(p) is v})
        return replace(stmt, then=then, orelse=orelse)

    def _block(self, stmt: Block, known: dict[Place, Expr], names: dict[Var, Expr]) -> Block:
        names = dict(names)
        made: list[Stmt] = []
        inside: set[Expr] = set()
        for part in stmt.body:
            new = self._visit(part, known, names)
            match new:
                case Let():
                    variable = self._own.of(new.var)
                    names[new.var] = variable
                    made.append(replace(new, var=variable))
                    inside.add(variable)
                case Store() if new.buffer in self._buffers:
                    value = new.value
                    if not isinstance(value, Var | Const):
                        value = var(fresh(new.buffer.name, self._taken), value.type)
                        made.append(Let(value, new.value, new.span))
                        inside.add(value)
                        new = replace(new, value=value)
                    made.append(new)
                    known[place_of(new.buffer, new.index)] = value
                case Allocate():
                    for place in [place for place in known if place[0] is new.buffer]:
                        del known[place]
                    made.append(new)
                case _:
                    made.append(new)
        for place in [place for place, value in known.items() if value in inside]:
            del known[place]
        return Block(tuple(made), stmt.span)


def _valued(expr: Expr, known: Mapping[Place, Expr]) -> Expr:
    def change(load: Load) -> Expr:
        if load.mask is not None or not all(isinstance(i, Const) for i in load.index):
            return load
        return known.get(place_of(load.buffer, load.index), load)

    return rewrite_loads(expr, change)


def place_of(buffer: Buffer, index: tuple[Expr, ...]) -> Place:
    """The place at an ``index`` of numbers."""
    return buffer, tuple(int(i.value) for i in index if isinstance(i, Const))


def constant_places(body: Stmt) -> set[Buffer]:
    """The private buffers of ``body`` that only loads and stores access, at numbers."""
    found = {
        s.buffer
        for s in walk_stmts(body)
        if isinstance(s, Allocate) and s.buffer.space is Space.PRIVATE
    }
    for stmt in walk_stmts(body):
        match stmt:
            case Store() if not all(isinstance(i, Const) for i in stmt.index):
                found.discard(stmt.buffer)
            case Call():
                found -= {arg.buffer for arg in stmt.args if isinstance(arg, View)}
            case Compute():
                found -= {view.buffer for view in stmt.outputs}
                found -= {operand.view.buffer for operand in stmt.operands}
            case _:
                pass
        for expr in direct_exprs(stmt):
            for load in loads_in(expr):
                if load.mask is not None or not all(isinstance(i, Const) for i in load.index):
                    found.discard(load.buffer)
    return found


def _stored(body: Stmt, buffers: set[Buffer]) -> set[Place]:
    return {
        place_of(s.buffer, s.index)
        for s in walk_stmts(body)
        if isinstance(s, Store) and s.buffer in buffers
    }


def without_dead_stores(body: Stmt) -> Stmt:
    """``body`` without the private memory that nobody reads."""
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
        kept = [p for p in stmt.body if not (isinstance(p, Store | Allocate) and p.buffer in dead)]
        return Block(tuple(_without(part, dead) for part in kept), stmt.span)
    if isinstance(stmt, Store | Allocate) and stmt.buffer in dead:
        return Block(())
    return with_nested(stmt, tuple(_without(part, dead) for part in nested(stmt)))


def _stored_directly(body: Stmt) -> Stmt:
    """``body`` without the names that only the store behind them uses: what adds to an element and
    stores to it is one statement."""
    uses: Counter[Var] = Counter()
    for stmt in walk_stmts(body):
        for expr in direct_exprs(stmt):
            uses.update(variables(expr))

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Block):
            return stmt
        made: list[Stmt] = []
        for part in stmt.body:
            last = made[-1] if made else None
            if (
                isinstance(part, Store)
                and isinstance(last, Let)
                and part.value is last.var
                and uses[last.var] == 1
            ):
                made[-1] = replace(part, value=last.value)
            else:
                made.append(part)
        return stmt if len(made) == len(stmt.body) else Block(tuple(made), stmt.span)

    return rewrite_stmts(body, change)


def _with_named_extents(body: Stmt, read_only: set[Buffer], taken: set[str]) -> Stmt:
    """``body`` with names for what extents load."""

    def named(loop: For) -> list[Stmt]:
        found = [n for n in loads_in(loop.extent) if n.buffer in read_only and n.mask is None]
        names = {node: var(fresh(node.buffer.name, taken), node.type) for node in found}
        stmt = rewrite_exprs(
            loop, lambda expr: rewrite_loads(expr, lambda node: names.get(node, node))
        )
        return [*(Let(name, node, loop.span) for node, name in names.items()), stmt]

    def change(stmt: Stmt) -> Stmt:
        made = [named(part) if isinstance(part, For) else [part] for part in nested(stmt)]
        if all(len(each) == 1 for each in made):
            return stmt
        if isinstance(stmt, Block):
            return Block(tuple(chain.from_iterable(made)), stmt.span)
        return with_nested(stmt, tuple(block(*each) for each in made))

    return rewrite_stmts(body if isinstance(body, Block) else Block((body,)), change)
