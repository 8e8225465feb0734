"""The range of a kernel that work-items run: from which numbers its loops over them come."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.expr import Binary, Const, Expr, Var
from tilewright.ir.stmt import Block, For, If, Kernel, Let, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import direct_exprs, variables, walk, walk_stmts


@dataclass(frozen=True)
class RangeDim:
    """A dim of a range: ``number`` is the parameter that says how many work-items it has, ``group``
    the variable of the loop over its workgroups, ``local`` the number of work-items of one.
    ``alone``: no work-item asks which workgroup it is in, so that several would do the same."""

    number: str
    group: Var
    local: int
    alone: bool


@dataclass(frozen=True)
class LaunchNest:
    """The ``dims`` of a range, and which dim a variable of the loops over work-items counts in."""

    dims: tuple[RangeDim, ...]
    items: dict[Var, int]


def launch_nest(kernel: Kernel) -> LaunchNest | None:
    """The range of ``kernel``, as `@tw.kernel` makes it: loops over workgroups whose numbers are
    parameters that are no sizes of arrays. None for any other kernel."""
    groups, body = _loops(kernel.body, (LoopKind.GRID,))
    sizes = frozenset[Var]().union(*(each.buffer.symbols for each in kernel.arrays))
    params = {each.var for each in kernel.scalars} - sizes
    numbers = [[each for each in variables(loop.extent) if each in params] for loop in groups]
    if not groups or any(len(each) != 1 for each in numbers):
        return None
    threads, inner = _loops(body, THREADS)
    used = _used(inner, {each for (each,) in numbers})
    dims = tuple(
        RangeDim(number.name, loop.var, _local(loop.extent), loop.var not in used)
        for loop, (number,) in zip(groups, numbers, strict=True)
    )
    # Subgroups and lanes share the last dim.
    items = {loop.var: min(dim, len(dims) - 1) for dim, loop in enumerate(threads)}
    return LaunchNest(dims, items)


def _loops(stmt: Stmt, kinds: tuple[LoopKind, ...]) -> tuple[list[For], Stmt]:
    """The nest of loops of ``kinds``, behind allocations, and what stands in it."""
    found: list[For] = []
    while True:
        inner = stmt.body[-1] if isinstance(stmt, Block) and stmt.body else stmt
        if not isinstance(inner, For) or inner.kind not in kinds:
            return found, stmt
        found.append(inner)
        stmt = inner.body


def _local(extent: Expr) -> int:
    """What the size of the range is divided by."""
    for node in walk(extent):
        if isinstance(node, Binary) and node.op == "floordiv" and isinstance(node.b, Const):
            return int(node.b.value)
    return 1


def _used(body: Stmt, numbers: set[Var]) -> set[Var]:
    """The variables that ``body`` uses, but for the condition around it that leaves out work-items
    beyond the range."""
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
    left = [each for each in lets if each in used]
    while left:
        new = lets[left.pop()] - used
        used |= new
        left += [each for each in new if each in lets]
    return used
