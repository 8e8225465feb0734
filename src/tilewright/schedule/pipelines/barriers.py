"""The barriers of a loop that stages: copies, a barrier, what reads them, and a barrier."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Call, For, Kernel, Stmt
from tilewright.ir.visit import walk_stmts
from tilewright.schedule.queries.access import Access, accesses
from tilewright.schedule.queries.place import Place


def is_barrier(stmt: Stmt) -> bool:
    """Whether ``stmt`` is a barrier of the workgroup."""
    return isinstance(stmt, Call) and stmt.function == "barrier"


def parts_between(body: Sequence[Stmt]) -> tuple[Sequence[Stmt], Sequence[Stmt]] | None:
    """The copies, and what reads them; None where ``body`` has another form than that."""
    barriers = [i for i, stmt in enumerate(body) if is_barrier(stmt)]
    last = len(body) - 1
    if len(barriers) != 2 or barriers[0] == 0 or barriers[1] != last:
        return None
    return body[: barriers[0]], body[barriers[0] + 1 : last]


def used_elsewhere(kernel: Kernel, loop: For, buffers: Collection[Buffer]) -> Iterator[Access]:
    """The accesses to ``buffers`` outside of ``loop``."""
    ids = {id(stmt) for stmt in walk_stmts(loop)}
    for access in accesses(kernel.body, Place()):
        if access.view.buffer in buffers and id(access.stmt) not in ids:
            yield access
