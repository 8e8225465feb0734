"""Stores past the caches, of what nobody needs soon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Kernel, Stmt, Store
from tilewright.ir.visit import direct_exprs, loads_in, rewrite_stmts, walk_stmts
from tilewright.schedule.transform import transform


@transform
def stream_stores(kernel: Kernel, buffers: Sequence[str]) -> Kernel:
    """Stores to arrays that the kernel only writes need not pass through caches.

        for i in 4096:
          y[i] = x[i] * 2.0
    ->  stream_stores(["y"])
        for i in 4096:
          stream y[i] = x[i] * 2.0

    That pays where the array is larger than the caches: a line that is stored whole is then not
    read before. What is computed stays the same, and computes that are not lowered stay as they
    are.
    """
    known = [param.name for param in kernel.arrays]
    for name in buffers:
        if name not in known:
            raise ScheduleError(
                f"stream_stores: '{name}' is no array that a call passes",
                where=f"kernel {kernel.name}",
                why="what is allocated inside is there to be read soon",
                cure="choose one of " + ", ".join(known),
            )
    for stmt in walk_stmts(kernel.body):
        for load in (each for expr in direct_exprs(stmt) for each in loads_in(expr)):
            if load.buffer.name in buffers:
                raise ScheduleError(
                    f"stream_stores: '{load.buffer.name}' is read, too",
                    where=headline(stmt),
                    why="what is stored past the caches comes back from memory",
                    cure="name arrays that the kernel only writes",
                )

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store) and stmt.buffer.name in buffers and not stmt.stream:
            return replace(stmt, stream=True)
        return stmt

    return replace(kernel, body=rewrite_stmts(kernel.body, change))
