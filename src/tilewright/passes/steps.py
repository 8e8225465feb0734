"""Coarser conditions: comparisons without the terms that never decide, which neighbours then share.

Schedules cut dims into tiles, pieces and lanes, and check each element against the bounds. Mostly
pieces are inside or outside as a whole: then one branch does for all lanes, and a vector is stored
as one. Schedules themselves need conditions on whole dims, so this pass runs after them. Computes
stay as their instructions were matched.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.dtypes import s64
from tilewright.facts import Facts
from tilewright.facts.affine import Affine, difference, integer
from tilewright.ir.expr import Binary, Expr
from tilewright.ir.stmt import Block, Compute, For, If, Kernel, Let, Opaque, Stmt, While
from tilewright.ir.visit import map_exprs, map_kernel, rewrite, with_nested


def coarsen_conditions(kernel: Kernel) -> Kernel:
    """Drops terms of comparisons that never decide: sums below one step of all other terms.

        for i_o in 3:
          for i in 8:
            if i_o * 8 + i < 16:
              dst[i_o, i] = 1.0
    ->  for i_o in 3:
          for i in 8:
            if i_o < 2:
              dst[i_o, i] = 1.0
    """
    return map_kernel(kernel, lambda body: _visit(body, Facts.of(kernel)))


def _visit(stmt: Stmt, facts: Facts) -> Stmt:
    match stmt:
        case Block():
            return with_nested(stmt, tuple(_body(stmt, facts)))
        case Compute():
            return stmt
        case _:
            pass
    stmt = map_exprs(stmt, lambda expr: rewrite(expr, lambda node: _coarser(node, facts)))
    match stmt:
        case For():
            return with_nested(stmt, (_visit(stmt.body, facts.loop(stmt.var, stmt.extent)),))
        case While():
            return with_nested(stmt, (_visit(stmt.body, facts.assume(stmt.condition)),))
        case Opaque():
            return with_nested(stmt, (_visit(stmt.body, facts),))
        case If():
            parts = [_visit(stmt.then, facts.assume(stmt.condition))]
            if stmt.orelse is not None:
                parts.append(_visit(stmt.orelse, facts.assume(stmt.condition, truth=False)))
            return with_nested(stmt, tuple(parts))
        case _:
            return stmt


def _body(stmts: Block, facts: Facts) -> Iterator[Stmt]:
    for stmt in stmts.body:
        new = _visit(stmt, facts)
        if isinstance(new, Let):
            facts = facts.bind(new.var, new.value)
        yield new


def _coarser(node: Expr, facts: Facts) -> Expr:
    """A comparison of indices without the terms that never decide; others unchanged."""
    if not isinstance(node, Binary) or node.a.type is not s64:
        return node
    form = difference(node)
    if form is None or len(form.terms) < 2:
        return node
    for step in sorted({abs(c) for c in form.terms.values()} - {1}, reverse=True):
        rest = Affine({atom: c for atom, c in form.terms.items() if c % step}, form.constant)
        if not rest.terms or len(rest.terms) == len(form.terms):
            continue
        least, greatest = facts.affine_bounds(rest)
        if least is None or greatest is None or least // step != greatest // step:
            continue
        whole = {atom: c // step for atom, c in form.terms.items() if c % step == 0}
        return _not_negative(Affine(whole, least // step))
    return node


def _not_negative(form: Affine) -> Expr:
    """``form >= 0``, each term on the side where it is positive."""
    more = Affine({a: c for a, c in form.terms.items() if c > 0})
    less = Affine({a: -c for a, c in form.terms.items() if c < 0})
    if not less.terms:
        return integer(-form.constant) <= more.to_expr()
    if form.constant < 0:
        return less.shifted(-form.constant - 1).to_expr() < more.to_expr()
    if form.constant or not more.terms:
        return less.to_expr() < more.shifted(form.constant + 1).to_expr()
    return less.to_expr() <= more.to_expr()
