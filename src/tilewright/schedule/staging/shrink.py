"""Less memory for what a part of a kernel makes, where a condition says how much there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Allocate, Block, Kernel, Stmt, View
from tilewright.ir.visit import block, walk_stmts
from tilewright.schedule.queries.access import Access, accesses, readdress
from tilewright.schedule.queries.place import Place, rewrite_placed
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.transform import transform


@transform
def shrink(kernel: Kernel, buffers: Sequence[str]) -> Kernel:
    """Memory that the kernel allocates has no more elements along a dim than are reached there.

        if n <= 768:
          alloc row: f32[4, 4096] private
          compute power(i in 4, j in n): row[i, j] = exp(x)    (x = src[i, j])
    ->  shrink(["row"])
        if n <= 768:
          alloc row: f32[4, 768] private
          compute power(i in 4, j in n): row[i, j] = exp(x)    (x = src[i, j])

    What is allocated by that name in several places has its own size in each. Neighbouring rows
    are then as near as they can be, in caches too. A layout that is not the usual one stays, and so
    does what has a size that a call passes.
    """
    for name in buffers:
        if all(s.buffer.name != name for s in walk_stmts(kernel.body) if isinstance(s, Allocate)):
            raise ScheduleError(
                f"shrink: the kernel allocates no '{name}'",
                where=f"kernel {kernel.name}",
                cure="name memory of the kernel's own",
            )

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, Block):
            return None
        made: Stmt = stmt
        for part in stmt.body:
            if isinstance(part, Allocate) and part.buffer.name in buffers:
                made = _shrunk(made, part.buffer, list(accesses(stmt, place)))
        # What is inside may allocate such, too.
        return block(*(rewrite_placed(each, place, change) for each in _parts(made)))

    return replace(kernel, body=rewrite_placed(kernel.body, Place(), change))


def _parts(stmt: Stmt) -> Sequence[Stmt]:
    return stmt.body if isinstance(stmt, Block) else (stmt,)


def _shrunk(stmt: Stmt, old: Buffer, found: Sequence[Access]) -> Stmt:
    """``stmt``, which allocates ``old``, with as much of it as is reached."""
    if old.symbols or old.layout != ordered_layout(old.shape, range(old.rank)):
        return stmt
    reached = [each for each in found if each.view.buffer is old]
    shape = tuple(_reach(reached, dim, size) for dim, size in enumerate(old.shape))
    if shape == old.shape:
        return stmt
    new = replace(old, sizes=shape, layout=ordered_layout(shape, range(old.rank)))
    return readdress(stmt, old, lambda view: View(new, view.index, view.mask))


def _reach(found: Sequence[Access], dim: int, size: int) -> int:
    """How many elements along ``dim`` have to be there."""
    greatest = [each.facts.bounds(each.view.index[dim])[1] for each in found]
    return max((size if each is None else min(size, each + 1) for each in greatest), default=size)
