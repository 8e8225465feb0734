"""The range of a kernel that work-items run: the scalars from which its loops' extents come."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.expr import Binary, Const, Expr, Var
from tilewright.ir.stmt import Block, For, If, Kernel, Let, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import direct_exprs, variables, walk, walk_stmts


@dataclass(frozen=True)
class RangeDim:
    """A dim of a range: ``number`` is the parameter with its number of work-items, ``group`` the
    variable of the loop over its workgroups, ``local`` the number of work-items in a group.
    ``alone``: no work-item uses its workgroup's number, so that all groups would do the same."""

    number: str
    group: Var
    local: int
    alone: bool


@dataclass(frozen=True)
class LaunchNest:
    """The ``dims`` of a range, and the dim of each variable of the loops over work-items."""

    dims: tuple[RangeDim, ...]
    items: dict[Var, int]


def launch_nest(kernel: Kernel) -> LaunchNest | None:
    """The range of ``kernel`` in the form that `@tw.kernel` gives: loops over workgroups whose
    extents come from parameters that are not sizes of arrays. None for any other kernel."""
    groups, body = _loops(kernel.body, (LoopKind.GRID,))
    sizes = frozenset[Var]().union(*(param.buffer.symbols for param in kernel.arrays))
    params = {scalar.var for scalar in kernel.scalars} - sizes
    numbers = [[name for name in variables(loop.extent) if name in params] for loop in groups]
    if not groups or any(len(names) != 1 for names in numbers):
        return None
    threads, inner = _loops(body, THREADS)
    used = _used(inner, {name for (name,) in numbers})
    dims = tuple(
        RangeDim(number.name, loop.var, _local(loop.extent), loop.var not in used)
        for loop, (number,) in zip(groups, numbers, strict=True)
    )
    # Subgroups and lanes share the last dim.
    items = {loop.var: min(dim, len(dims) - 1) for dim, loop in enumerate(threads)}
    return LaunchNest(dims, items)


def _loops(stmt: Stmt, kinds: tuple[LoopKind, ...]) -> tuple[list[For], Stmt]:
    """The nest of loops of ``kinds``, after allocations, and the statement inside."""
    loops: list[For] = []
    while True:
        inner = stmt.body[-1] if isinstance(stmt, Block) and stmt.body else stmt
        if not isinstance(inner, For) or inner.kind not in kinds:
            return loops, stmt
        loops.append(inner)
        stmt = inner.body


def _local(extent: Expr) -> int:
    """The divisor of the size of the range."""
    for node in walk(extent):
        if isinstance(node, Binary) and node.op == "floordiv" and isinstance(node.b, Const):
            return int(node.b.value)
    return 1


def _used(body: Stmt, numbers: set[Var]) -> set[Var]:
    """The variables that ``body`` uses, without the surrounding condition that masks work-items
    outside the range."""
    if isinstance(body, If) and not numbers.isdisjoint(variables(body.condition)):
        body = body.then
    used: set[Var] = set()
    lets: dict[Var, frozenset[Var]] = {}
    for stmt in walk_stmts(body):
        names = frozenset[Var]().union(*map(variables, direct_exprs(stmt)))
        if isinstance(stmt, Let):
            lets[stmt.var] = names
        else:
            used |= names
    pending = [name for name in lets if name in used]
    while pending:
        new = lets[pending.pop()] - used
        used |= new
        pending += [name for name in new if name in lets]
    return used
