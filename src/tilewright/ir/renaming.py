"""Names that are defined once: of loops, and of values."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.expr import Expr, Var, var
from tilewright.ir.stmt import Block, Compute, For, Let, Stmt
from tilewright.ir.visit import map_exprs, nested, substitute, with_nested


class DistinctNames:
    """Variables by distinct names."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._defined: set[Var] = set()

    def of(self, variable: Var) -> Var:
        """``variable`` at its first definition; later, a new one."""
        distinct = variable
        if variable in self._defined:
            distinct = var(fresh(variable.name, self._taken), variable.type)
        self._defined.add(distinct)
        return distinct


def fresh(name: str, taken: set[str]) -> str:
    """``name``, with a number after it if it is ``taken``; the result is taken from then on."""
    unused, count = name, 1
    while unused in taken:
        count += 1
        unused = f"{name}_{count}"
    taken.add(unused)
    return unused


def with_distinct_names(body: Stmt, taken: set[str]) -> Stmt:
    """``body`` where no two loops or lets have one name; new names are not ``taken``.

        block:
          t = i * 2
          a[t] = 1.0
        for k in 4:
          t = k + 1
          a[t] = 2.0
    ->  block:
          t = i * 2
          a[t] = 1.0
        for k in 4:
          t_2 = k + 1
          a[t_2] = 2.0
    """
    return _Renaming(taken).visit(body, {})


class _Renaming:
    def __init__(self, taken: set[str]) -> None:
        self._distinct = DistinctNames(taken)

    def visit(self, stmt: Stmt, names: dict[Var, Expr]) -> Stmt:
        """``stmt`` with ``names`` for variables; a let adds to them."""
        if isinstance(stmt, Block):
            inside = dict(names)
            return with_nested(stmt, tuple(self.visit(part, inside) for part in stmt.body))
        used: dict[Var, Expr] = names
        if isinstance(stmt, Compute):
            bound = {d.var for d in stmt.dims} | {o.var for o in stmt.operands}
            used = {old: new for old, new in names.items() if old not in bound}
        stmt = map_exprs(stmt, lambda expr: substitute(expr, used))
        if isinstance(stmt, Let):
            renamed = self._distinct.of(stmt.var)
            names[stmt.var] = renamed
            return stmt if renamed is stmt.var else replace(stmt, var=renamed)
        if isinstance(stmt, For):
            renamed = self._distinct.of(stmt.var)
            body = self.visit(stmt.body, {**names, stmt.var: renamed})
            same = renamed is stmt.var and body is stmt.body
            return stmt if same else replace(stmt, var=renamed, body=body)
        return with_nested(stmt, tuple(self.visit(part, dict(names)) for part in nested(stmt)))
