"""The barriers of a loop that stages: copies, a barrier, what reads them, and a barrier."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.ir.buffer import Buffer
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Call, For, Kernel, Stmt
from tilewright.ir.visit import walk_stmts
from tilewright.schedule.queries.access import accesses
from tilewright.schedule.queries.place import Place, sequence
from tilewright.schedule.queries.refusal import refusal


def is_barrier(stmt: Stmt) -> bool:
    """Whether ``stmt`` is a barrier of the workgroup."""
    return isinstance(stmt, Call) and stmt.function == "barrier"


def parts_between(loop: For) -> tuple[Sequence[Stmt], Sequence[Stmt]]:
    """The copies in ``loop``, and what reads them; refuses another form than that."""
    body = sequence(loop.body)
    barriers = [i for i, stmt in enumerate(body) if is_barrier(stmt)]
    last = len(body) - 1
    if len(barriers) != 2 or barriers[0] == 0 or barriers[1] != last:
        raise refusal(
            "its body is not copies, a barrier, what reads them, and a barrier",
            loop,
            "stage operands at this loop first",
        )
    return body[: barriers[0]], body[barriers[0] + 1 : last]


def check_alone(kernel: Kernel, loop: For, buffers: Collection[Buffer]) -> None:
    """Refuses ``buffers`` that something outside of ``loop`` uses."""
    ids = {id(stmt) for stmt in walk_stmts(loop)}
    for access in accesses(kernel.body, Place()):
        if access.view.buffer in buffers and id(access.stmt) not in ids:
            raise refusal(
                f"'{access.view.buffer.name}' is also used by `{headline(access.stmt)}`",
                loop,
                "choose copies that only this loop uses",
            )
