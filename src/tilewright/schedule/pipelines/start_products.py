"""Products that run while the subgroup goes on."""

from __future__ import annotations

from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.expr import const
from tilewright.ir.functions import Queue
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Call, Compute, For, Kernel, LoopKind, Stmt
from tilewright.ir.visit import block, rewrite_stmts
from tilewright.schedule.pipelines.barriers import is_barrier
from tilewright.schedule.queries.place import Place, computes_named, holds, rewrite_placed
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import transform


@transform
@asks(compute=a_plain_compute)
def start_products(kernel: Kernel, compute: str) -> Kernel:
    """Lets a compute on shared memory run by itself, and waits for it where it stands.

        subgroup for s in 2:
          for k in 8:
            lane for lane in 128: ... a_packed[...] = src[...]
            barrier()
            compute main(...): acc[...] add= ... a_packed[...] ...
            barrier()
    ->  start_products("main")
        subgroup for s in 2:
          for k in 8:
            lane for lane in 128: ... a_packed[...] = src[...]
            fence_async()
            barrier()
            compute main(...) joins products: acc[...] add= ... a_packed[...] ...
            commit_products()
            wait_products(0)
            fence_async()
            barrier()

    What work-items wrote is fenced before each barrier of the subgroups, as an asynchronous op does
    not see it otherwise. The compute accumulates in registers what it reads of shared memory.
    """
    for found, _ in computes_named(kernel, compute, "start_products"):
        shared = all(o.view.buffer.space is Space.WORKGROUP for o in found.operands)
        if found.out.buffer.space is not Space.PRIVATE or not shared or found.combiner is None:
            raise ScheduleError(
                f"start_products: '{compute}' does not add up in registers what is shared",
                where=headline(found),
                why="products that run by themselves read workgroup memory",
                cure="stage its operands first",
            )

    def on_part(stmt: Stmt) -> Stmt:
        if is_barrier(stmt):
            return block(Call("fence_async", ()), stmt)
        if isinstance(stmt, Compute) and stmt.name == compute:
            started = replace(stmt, completion=Queue.PRODUCTS)
            return block(started, Call("commit_products", ()), Call("wait_products", (const(0),)))
        return stmt

    def change(stmt: Stmt, _place: Place) -> Stmt | None:
        if not (isinstance(stmt, For) and stmt.kind is LoopKind.SUBGROUP and holds(stmt, compute)):
            return None
        return rewrite_stmts(stmt, on_part)

    body = rewrite_placed(kernel.body, Place(), change)
    if body is kernel.body:
        raise ScheduleError(
            f"start_products: no subgroups run '{compute}'",
            where=f"kernel {kernel.name}",
            cure="run loops around it as SUBGROUP first",
        )
    return replace(kernel, body=body)
