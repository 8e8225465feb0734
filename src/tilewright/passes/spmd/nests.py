"""The loops over work-items of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir.expr import Const, Var, var
from tilewright.ir.stmt import Allocate, Block, Compute, For, Kernel, Let, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import nested, walk_stmts, with_nested

DEVICE = frozenset({LoopKind.GRID, *THREADS})


@dataclass(frozen=True)
class ItemNest:
    """A perfect nest of loops over the work-items of a workgroup, the fastest last, and what each
    of them does."""

    loops: tuple[For, ...]
    body: Stmt

    @property
    def vars(self) -> tuple[Var, ...]:
        return tuple(loop.var for loop in self.loops)

    @property
    def extents(self) -> tuple[int, ...]:
        found: list[int] = []
        for loop in self.loops:
            assert isinstance(loop.extent, Const)
            found.append(int(loop.extent.value))
        return tuple(found)

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
    """``stmt`` with what ``change`` makes of each nest of work-items."""
    if isinstance(stmt, For) and stmt.kind in THREADS:
        return change(item_nest(stmt))
    return with_nested(stmt, tuple(map_nests(part, change) for part in nested(stmt)))


def names_of(kernel: Kernel) -> set[str]:
    """The names that a kernel uses: of parameters, memory and values."""
    found = {param.name for param in kernel.params}
    for stmt in walk_stmts(kernel.body):
        match stmt:
            case For() | Let():
                found.add(stmt.var.name)
            case Allocate():
                found.add(stmt.buffer.name)
            case Compute():
                found |= {each.var.name for each in stmt.dims}
                found |= {each.var.name for each in stmt.operands}
            case _:
                pass
    return found


class OwnNames:
    """Names that are defined once each."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._defined: set[Var] = set()

    def of(self, variable: Var) -> Var:
        """``variable``, or another one where that has a meaning already."""
        own = variable
        if variable in self._defined:
            own = var(fresh(variable.name, self._taken), variable.type)
        self._defined.add(own)
        return own


def fresh(name: str, taken: set[str]) -> str:
    """``name``, or with a number behind it, that is not ``taken``, which it then is."""
    made, count = name, 1
    while made in taken:
        count += 1
        made = f"{name}_{count}"
    taken.add(made)
    return made
