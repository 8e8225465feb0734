"""Names apart: what one body calls its variables, memory and computes, another does not."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.stmt import Allocate, Compute, Dim, For, Let, Operand, Stmt
from tilewright.ir.visit import (
    direct_exprs,
    map_exprs,
    replace_buffer,
    rewrite_stmts,
    substitute,
    variables,
    walk_stmts,
)
from tilewright.schedule.queries.place import bound_names, claim


def names_bound(stmt: Stmt) -> set[str]:
    """The names of variables, memory and computes that something in ``stmt`` introduces."""
    names = set(bound_names(stmt))
    for node in walk_stmts(stmt):
        if isinstance(node, Allocate):
            names.add(node.buffer.name)
        elif isinstance(node, Compute):
            names.add(node.name)
    return names


def named_apart(stmt: Stmt, taken: set[str]) -> Stmt:
    """``stmt`` with other names for what it introduces under names that are ``taken``; its names
    are taken from then on."""
    clashes = names_bound(stmt) & taken
    taken |= names_bound(stmt)
    new = {}
    for name in sorted(clashes):
        new[name] = claim(name, taken)
    return _renamed(stmt, new) if new else stmt


def variables_in(stmt: Stmt) -> frozenset[Var]:
    """The variables that something in ``stmt`` uses."""
    used = frozenset[Var]()
    for node in walk_stmts(stmt):
        used = used.union(*map(variables, direct_exprs(node)))
        if isinstance(node, Allocate):
            used |= node.buffer.symbols
    return used


def _renamed(stmt: Stmt, names: dict[str, str]) -> Stmt:
    values: dict[Var, Expr] = {}
    for node in walk_stmts(stmt):
        for variable in _introduced(node):
            if variable.name in names:
                values[variable] = var(names[variable.name], variable.type)

    def called(old: Var) -> Var:
        new = values.get(old, old)
        assert isinstance(new, Var)
        return new

    def change(node: Stmt) -> Stmt:
        node = map_exprs(node, lambda expr: substitute(expr, values))
        match node:
            case For() | Let():
                return replace(node, var=called(node.var)) if node.var in values else node
            case Compute():
                dims = tuple(Dim(called(d.var), d.extent, d.ordered) for d in node.dims)
                operands = tuple(Operand(called(o.var), o.view) for o in node.operands)
                name = names.get(node.name, node.name)
                return replace(node, name=name, dims=dims, operands=operands)
            case _:
                return node

    stmt = rewrite_stmts(stmt, change)
    allocated = [node.buffer for node in walk_stmts(stmt) if isinstance(node, Allocate)]
    for buffer in allocated:
        if buffer.name in names:
            stmt = replace_buffer(stmt, buffer, replace(buffer, name=names[buffer.name]))
    return stmt


def _introduced(stmt: Stmt) -> list[Var]:
    match stmt:
        case For():
            return [stmt.var]
        case Let():
            return [stmt.var]
        case Compute():
            return [*(dim.var for dim in stmt.dims), *(operand.var for operand in stmt.operands)]
        case _:
            return []
