"""Checks that control around barriers does not depend on ids, and that control around operations on
joint matrices does not diverge at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from tilewright.errors import KernelError
from tilewright.facts import Facts
from tilewright.ir.expr import Const, Expr, Var, const
from tilewright.ir.functions import Group, synchronized_group
from tilewright.ir.stmt import Block, Call, For, If, Let, Stmt, While
from tilewright.ir.visit import (
    direct_exprs,
    nested,
    reads_memory,
    substitute,
    variables,
    walk_stmts,
)
from tilewright.passes.spmd.nests import ItemNest, map_nests
from tilewright.passes.spmd.varying import Varying
from tilewright.simplify import simplify


@dataclass
class Together:
    """The operations of all work-items of a group: ``stmts``, by their ids, with the group's name.
    ``agreed`` are names that have one value for all lanes: that of the lane that is their value."""

    stmts: dict[int, tuple[Stmt, str]] = field(default_factory=dict)
    agreed: dict[Expr, Expr] = field(default_factory=dict)


def check_barriers(body: Stmt, together: Together) -> None:
    """Raises `KernelError` for control around a barrier that differs by the ids of those who wait
    for each other (the interpreter finds control that differs by arguments or memory), and for
    control around operations ``together`` that may differ by anything."""

    def look(nest: ItemNest) -> Stmt:
        _look(nest, nest.body, {})
        for group in sorted({group for _, group in together.stmts.values()}):
            seeds = nest.vars[-1:] if group == "subgroup" else nest.vars
            agreed = together.agreed if group == "subgroup" else {}
            _look_together(nest.body, _Divergence(seeds, nest.body, agreed), together, group)
        return nest.around(nest.body)

    if together.stmts or any(_waiting(stmt) is not None for stmt in walk_stmts(body)):
        map_nests(body, look)


class _Divergence(Varying):
    """Divergence, except for names that lanes ``agreed`` on."""

    def __init__(self, seeds: Sequence[Var], body: Stmt, agreed: Mapping[Expr, Expr]) -> None:
        self._agreed = agreed
        super().__init__(seeds, body)

    def _visit(self, stmt: Stmt, apart: bool) -> None:
        of = self._agreed.get(stmt.var) if isinstance(stmt, Let) else None
        if of is None or self.of(of):
            super()._visit(stmt, apart)


def _look_together(
    stmt: Stmt, differing: _Divergence, together: Together, group: str, apart: Stmt | None = None
) -> None:
    """``apart`` is the divergent control around ``stmt``."""
    if apart is not None and together.stmts.get(id(stmt), (None, ""))[1] == group:
        assert apart.span is not None
        raise KernelError(
            f"only some work-items of a {group} come to what they do together with a joint matrix",
            where=stmt.span,
            why=f"control may diverge in line {apart.span.line}",
            cure="move it out of what only some of them run, or let them agree on the path: "
            f"if tw.{group if group == 'subgroup' else 'group'}_any(...)",
        )
    if isinstance(stmt, If | While | For) and differing.any_of(direct_exprs(stmt)):
        apart = stmt
    for part in nested(stmt):
        _look_together(part, differing, together, group, apart)


def _look(nest: ItemNest, stmt: Stmt, lets: dict[Var, Expr]) -> None:
    """``lets`` are the names with values that depend on ids only."""
    match stmt:
        case Block():
            lets = dict(lets)
        case Let():
            value = _decided(nest, stmt.value, lets)
            if value is not None:
                lets[stmt.var] = value
        case If() | While():
            _check_control(nest, stmt, stmt.condition, lets)
        case For():
            _check_control(nest, stmt, stmt.extent, lets)
        case _:
            pass
    for part in nested(stmt):
        _look(nest, part, lets)


def _check_control(nest: ItemNest, stmt: Stmt, control: Expr, lets: Mapping[Var, Expr]) -> None:
    groups = {_waiting(inner) for part in nested(stmt) for inner in walk_stmts(part)} - {None}
    value = _decided(nest, control, lets) if groups else None
    if value is None:
        return
    together = "subgroup" if groups == {Group.SUBGROUP} else "workgroup"
    if _differs(nest, value, 1 if together == "subgroup" else len(nest.loops)):
        raise KernelError(
            f"only some work-items of a {together} come to a barrier",
            where=stmt.span,
            why="control differs by their ids here, and a barrier, or a function of "
            f"the {together}, waits for all of them",
            cure="move it out of what only some of them run",
        )


def _waiting(stmt: Stmt) -> Group | None:
    """The work-items that wait for each other at ``stmt``."""
    return synchronized_group(stmt.function) if isinstance(stmt, Call) else None


def _decided(nest: ItemNest, expr: Expr, lets: Mapping[Var, Expr]) -> Expr | None:
    """``expr`` in terms of the ids in a workgroup; None where it depends on more."""
    value = substitute(expr, lets)
    return value if not reads_memory(value) and variables(value) <= set(nest.vars) else None


def _differs(nest: ItemNest, value: Expr, inner: int) -> bool:
    """Whether ``value`` differs among the iterations of the ``inner`` innermost loops."""
    facts = Facts.empty()
    for loop in nest.loops:
        facts = facts.loop(loop.var, loop.extent)
    value = simplify(value, facts)
    if isinstance(value, Const):
        return False
    counted = dict(zip(nest.vars, nest.extents, strict=True))
    used = [variable for variable in nest.vars if variable in variables(value)]
    around = [variable for variable in used if variable in nest.vars[:-inner]]
    by_outer: dict[tuple[int, ...], Expr] = {}
    for point in product(*(range(counted[variable]) for variable in used)):
        ids = dict(zip(used, point, strict=True))
        at_point = simplify(substitute(value, {v: const(n) for v, n in ids.items()}), Facts.empty())
        if at_point is not by_outer.setdefault(
            tuple(ids[variable] for variable in around), at_point
        ):
            return True
    return False
