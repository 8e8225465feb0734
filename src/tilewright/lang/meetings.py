"""Where work-items have to meet, and something keeps some of them away: at barriers their ids, at
what they do with a joint matrix whatever differs among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from tilewright.errors import KernelError
from tilewright.facts import Facts
from tilewright.ir.expr import Const, Expr, Var, const
from tilewright.ir.functions import Group, meeting
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
    """What all work-items of a group do together: ``stmts``, by their ids, with the group's name.
    ``agreed`` are names that have the value of one lane, or of all: of which, if it is one."""

    stmts: dict[int, tuple[Stmt, str]] = field(default_factory=dict)
    agreed: dict[Expr, Expr] = field(default_factory=dict)


def check_meetings(body: Stmt, together: Together) -> None:
    """Raises `KernelError` for control around a barrier, or around what holds one, that differs by
    the ids of those who wait for each other: what depends on arguments or memory the interpreter
    finds. And for control around what is done ``together`` that may differ by anything."""

    def look(nest: ItemNest) -> Stmt:
        _look(nest, nest.body, {})
        for group in sorted({group for _, group in together.stmts.values()}):
            seeds = nest.vars[-1:] if group == "subgroup" else nest.vars
            agreed = together.agreed if group == "subgroup" else {}
            _look_together(nest.body, _Differing(seeds, nest.body, agreed), together, group)
        return nest.around(nest.body)

    if together.stmts or any(_waiting(stmt) is not None for stmt in walk_stmts(body)):
        map_nests(body, look)


class _Differing(Varying):
    """What differs, but for the names that lanes ``agreed`` on."""

    def __init__(self, seeds: Sequence[Var], body: Stmt, agreed: Mapping[Expr, Expr]) -> None:
        self._agreed = agreed
        super().__init__(seeds, body)

    def _visit(self, stmt: Stmt, apart: bool) -> None:
        of = self._agreed.get(stmt.var) if isinstance(stmt, Let) else None
        if of is None or self.of(of):
            super()._visit(stmt, apart)


def _look_together(
    stmt: Stmt, differing: _Differing, together: Together, group: str, apart: Stmt | None = None
) -> None:
    """``apart`` is the control around ``stmt`` that differs."""
    if apart is not None and together.stmts.get(id(stmt), (None, ""))[1] == group:
        assert apart.span is not None
        raise KernelError(
            f"only some work-items of a {group} come to what they do together with a joint matrix",
            where=stmt.span,
            why=f"they may go different ways in line {apart.span.line}",
            cure="move it out of what only some of them run, or let them agree on the way: "
            f"if tw.{group if group == 'subgroup' else 'group'}_any(...)",
        )
    if isinstance(stmt, If | While | For) and differing.any_of(direct_exprs(stmt)):
        apart = stmt
    for part in nested(stmt):
        _look_together(part, differing, together, group, apart)


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
