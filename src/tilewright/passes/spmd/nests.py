"""The loops over work-items of a kernel, and its names: they are taken, or distinct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir.expr import Const, Var
from tilewright.ir.stmt import Allocate, Block, Compute, For, Kernel, Let, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import nested, walk_stmts, with_nested

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
