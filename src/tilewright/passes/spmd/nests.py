"""The loops over work-items of a kernel, and its names: they are taken, or distinct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.ir.expr import Const, Expr, Var, var
from tilewright.ir.stmt import Allocate, Block, Compute, For, Kernel, Let, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import map_exprs, nested, substitute, walk_stmts, with_nested

DEVICE = frozenset({LoopKind.GRID, *THREADS})


@dataclass(frozen=True)
class ItemNest:
    """A perfect nest of loops over the work-items of a workgroup, the fastest last, and the body of
    each work-item."""

    loops: tuple[For, ...]
    body: Stmt

    @property
    def vars(self) -> tuple[Var, ...]:
        return tuple(loop.var for loop in self.loops)

    @property
    def extents(self) -> tuple[int, ...]:
        extents: list[int] = []
        for loop in self.loops:
            assert isinstance(loop.extent, Const)
            extents.append(int(loop.extent.value))
        return tuple(extents)

    def around(self, body: Stmt) -> Stmt:
        """The same loops around another body."""
        for loop in reversed(self.loops):
            body = For(loop.var, loop.extent, body, loop.kind, loop.span)
        return body


def places_items(kernel: Kernel) -> bool:
    """Whether the kernel has loops over workgroups or work-items."""
    return any(isinstance(stmt, For) and stmt.kind in DEVICE for stmt in walk_stmts(kernel.body))


def item_nest(stmt: For) -> ItemNest:
    """The nest that begins with the loop ``stmt``."""
    loops = [stmt]
    body = _only(stmt.body)
    while isinstance(body, For) and body.kind in THREADS:
        loops.append(body)
        body = _only(body.body)
    return ItemNest(tuple(loops), body)


def _only(stmt: Stmt) -> Stmt:
    while isinstance(stmt, Block) and len(stmt.body) == 1:
        stmt = stmt.body[0]
    return stmt


def map_nests(stmt: Stmt, change: Callable[[ItemNest], Stmt]) -> Stmt:
    """``stmt`` with each nest of work-items replaced by the result of ``change``."""
    if isinstance(stmt, For) and stmt.kind in THREADS:
        return change(item_nest(stmt))
    return with_nested(stmt, tuple(map_nests(part, change) for part in nested(stmt)))


def names_of(kernel: Kernel) -> set[str]:
    """The names that a kernel uses: of parameters, memory and values."""
    names = {param.name for param in kernel.params}
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case For() | Let():
                names.add(stmt.var.name)
            case Allocate():
                names.add(stmt.buffer.name)
            case Compute():
                names |= {dim.var.name for dim in stmt.dims}
                names |= {operand.var.name for operand in stmt.operands}
            case _:
                pass
    return names


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
