"""Memory that goes on in another place."""

from __future__ import annotations

from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import const, var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Block, Compute, Dim, Kernel, Operand, Stmt, View
from tilewright.ir.visit import block, replace_buffer, walk_stmts
from tilewright.schedule.queries.place import Place, fresh, names_in, rewrite_placed
from tilewright.schedule.records.asks import a_compute, asks
from tilewright.schedule.records.transform import give, transform


@transform
@asks(before=a_compute)
def cache_read(kernel: Kernel, buffer: str, before: str, *, space: Space | None = None) -> Kernel:
    """From the compute ``before`` on, a copy stands for a buffer, in ``space`` if one is given.

        alloc acc: f32[16, 16] private
        for k in 8:
          compute mad(m in 16, n in 16): acc[m, n] add= ...
        compute relu(m in 16, n in 16): acc[m, n] = max(x, 0.0)    (x = acc[m, n])
    ->  cache_read("acc", "relu", space=Space.WORKGROUP)
        alloc acc: f32[16, 16] private
        for k in 8:
          compute mad(m in 16, n in 16): acc[m, n] add= ...
        alloc acc_late: f32[16, 16] workgroup
        compute acc_copy(acc_0 in 16, acc_1 in 16): acc_late[acc_0, acc_1] = acc[acc_0, acc_1]
        compute relu(m in 16, n in 16): acc_late[m, n] = max(x, 0.0)    (x = acc_late[m, n])

    The compute stands in the block in which the buffer is allocated: what uses it after that does
    so after it. Among the results of the step are ``copy`` and ``buffer``.
    """
    buffers, computes = names_in(kernel)

    def change(stmt: Stmt, place: Place) -> Stmt | None:
        if not isinstance(stmt, Block):
            return None
        at = next(
            (n for n, s in enumerate(stmt.body) if isinstance(s, Compute) and s.name == before),
            None,
        )
        if at is None:
            return None
        held = [s.buffer for s in stmt.body[:at] if isinstance(s, Allocate)]
        found = next((each for each in held if each.name == buffer), None)
        if found is None:
            raise ScheduleError(
                f"cache_read: '{buffer}' is not allocated in the block of '{before}'",
                where=headline(stmt.body[at]),
                why="in a loop, the next iteration would go on with what was there before",
                cure="name a compute that stands beside the allocation, behind it",
            )
        copy = _copy(found, fresh(f"{buffer}_late", buffers), space, place)
        made = replace(copy[1], name=fresh(copy[1].name, computes))
        give("copy", "compute", made.name)
        give("buffer", "buffer", copy[0].buffer.name)
        late = replace_buffer(block(*stmt.body[at:]), found, copy[0].buffer)
        return block(*stmt.body[:at], copy[0], made, late)

    body = rewrite_placed(kernel.body, Place(), change)
    if body is kernel.body:
        found = (s for s in walk_stmts(body) if isinstance(s, Compute) and s.name == before)
        alone = next(found)
        raise ScheduleError(
            f"cache_read: '{buffer}' is not allocated in the block of '{before}'",
            where=headline(alone),
            cure="name a compute that stands beside the allocation, behind it",
        )
    return replace(kernel, body=body)


def _copy(old: Buffer, name: str, space: Space | None, place: Place) -> tuple[Allocate, Compute]:
    """Memory like ``old``, and what copies it there."""
    new = replace(old, name=name, space=space or old.space)
    taken = set(place.names)
    dims: list[Dim] = []
    for number, size in enumerate(old.shape):
        dims.append(Dim(var(fresh(f"{old.name}_{number}", taken)), const(size)))
        taken.add(dims[-1].var.name)
    index = tuple(dim.var for dim in dims)
    value = var(fresh("value", taken), old.dtype)
    operand = Operand(value, View(old, index))
    return Allocate(new), Compute.single(
        f"{old.name}_copy", tuple(dims), View(new, index), (operand,), value
    )
