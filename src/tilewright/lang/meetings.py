"""Where work-items have to meet, and their ids alone keep some of them away."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from tilewright.errors import KernelError
from tilewright.facts import Facts
from tilewright.ir.expr import Const, Expr, Var, const
from tilewright.ir.functions import Group, meeting
from tilewright.ir.stmt import Block, Call, For, If, Let, Stmt, While
from tilewright.ir.visit import nested, reads_memory, substitute, variables, walk_stmts
from tilewright.passes.spmd.nests import ItemNest, map_nests
from tilewright.simplify import simplify


def check_meetings(body: Stmt) -> None:
    """Raises `KernelError` for control around a barrier, or around what holds one, that differs by
    the ids of those who wait for each other. What depends on arguments or memory is not looked at:
    the interpreter finds that."""

    def look(nest: ItemNest) -> Stmt:
        _look(nest, nest.body, {})
        return nest.around(nest.body)

    if any(_waiting(stmt) is not None for stmt in walk_stmts(body)):
        map_nests(body, look)


def _look(nest: ItemNest, stmt: Stmt, lets: dict[Var, Expr]) -> None:
    """``lets`` are the names whose values ids decide."""
    match stmt:
        case Block():
            lets = dict(lets)
        case Let():
            value = _decided(nest, stmt.value, lets)
            if value is not None:
                lets[stmt.var] = value
        case If() | While():
            _check(nest, stmt, stmt.condition, lets)
        case For():
            _check(nest, stmt, stmt.extent, lets)
        case _:
            pass
    for part in nested(stmt):
        _look(nest, part, lets)


def _check(nest: ItemNest, stmt: Stmt, control: Expr, lets: Mapping[Var, Expr]) -> None:
    groups = {_waiting(each) for part in nested(stmt) for each in walk_stmts(part)} - {None}
    value = _decided(nest, control, lets) if groups else None
    if value is None:
        return
    together = "subgroup" if groups == {Group.SUBGROUP} else "workgroup"
    if _differs(nest, value, 1 if together == "subgroup" else len(nest.loops)):
        raise KernelError(
            f"only some work-items of a {together} come to a barrier",
            where=stmt.span,
            why="their ids say that they go different ways here, and a barrier, or a function of "
            f"the {together}, waits for all of them",
            cure="move it out of what only some of them run",
        )


def _waiting(stmt: Stmt) -> Group | None:
    """Those who wait for each other at ``stmt``."""
    return meeting(stmt.function) if isinstance(stmt, Call) else None


def _decided(nest: ItemNest, expr: Expr, lets: Mapping[Var, Expr]) -> Expr | None:
    """``expr`` in terms of the ids of a workgroup; None where it depends on something else."""
    value = substitute(expr, lets)
    return value if not reads_memory(value) and variables(value) <= set(nest.vars) else None


def _differs(nest: ItemNest, value: Expr, inner: int) -> bool:
    """Whether ``value`` differs among those that the ``inner`` innermost loops count."""
    facts = Facts.empty()
    for loop in nest.loops:
        facts = facts.loop(loop.var, loop.extent)
    value = simplify(value, facts)
    if isinstance(value, Const):
        return False
    counted = dict(zip(nest.vars, nest.extents, strict=True))
    used = [each for each in nest.vars if each in variables(value)]
    around = [each for each in used if each in nest.vars[:-inner]]
    found: dict[tuple[int, ...], Expr] = {}
    for point in product(*(range(counted[each]) for each in used)):
        ids = dict(zip(used, point, strict=True))
        known = simplify(substitute(value, {v: const(n) for v, n in ids.items()}), Facts.empty())
        if known is not found.setdefault(tuple(ids[each] for each in around), known):
            return True
    return False
