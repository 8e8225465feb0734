"""Results that are finished before they are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Const, var
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Compute, Kernel, Operand, Stmt, View
from tilewright.ir.visit import block
from tilewright.schedule.queries.place import (
    Place,
    fresh,
    names_in,
    rewrite_placed,
    size_of,
)
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import give, transform


@transform
@asks(compute=a_plain_compute)
def finish(kernel: Kernel, compute: str) -> Kernel:
    """Makes what a compute stores in memory of its work-item first: what is left of it is a copy.

        compute store(m in 64, n in 128): dst[m, n | n < 100] = bf16(acc + b)
            (acc = acc[m, n]; b = bias[n | n < 100])
    ->  finish("store")
        alloc dst_made: bf16[64, 128] private
        compute store_finish(m in 64, n in 128): dst_made[m, n] = bf16(acc + b)
            (acc = acc[m, n]; b = bias[n | n < 100])
        compute store(m in 64, n in 128): dst[m, n | n < 100] = made    (made = dst_made[m, n])

    So it can be converted where it is held, and moved by what moves elements of one type only.
    Among the results of the step, ``finish`` is the compute that makes it, in ``buffer``.
    """
    finishing = _Finishing(compute, *names_in(kernel))
    return replace(kernel, body=rewrite_placed(kernel.body, Place(), finishing.on_stmt))


@dataclass(frozen=True)
class _Finishing:
    """The argument, and the names of buffers and computes that are taken."""

    compute: str
    buffers: set[str]
    names: set[str]

    def on_stmt(self, stmt: Stmt, place: Place) -> Stmt | None:
        if not (isinstance(stmt, Compute) and stmt.name == self.compute):
            return None
        _check(stmt)
        target, dims = stmt.out.buffer, tuple(d.var for d in stmt.dims)
        shape = tuple(size_of(d) for d in stmt.dims)
        name = fresh(f"{target.name}_made", self.buffers)
        self.buffers.add(name)
        layout = ordered_layout(shape, range(len(shape)))
        made = View(Buffer(name, target.dtype, shape, layout, Space.PRIVATE), dims)
        value = var(fresh("made", place.names | {d.name for d in dims}), target.dtype)
        first = replace(stmt, name=fresh(f"{stmt.name}_finish", self.names)).with_result(made)
        left = replace(stmt, operands=(Operand(value, made),)).with_result(body=value)
        give("finish", "compute", first.name)
        give("buffer", "buffer", name)
        return block(Allocate(made.buffer), first, left)


def _check(compute: Compute) -> None:
    """Refuses what is no plain store of tiles that are equally large."""
    if compute.combiner is not None or compute.instruction or compute.completion is not None:
        raise ScheduleError(
            f"finish: '{compute.name}' does more than write its result",
            where=headline(compute),
            why="a copy replaces what was there",
            cure="name a compute without a combiner or an instruction",
        )
    if not all(isinstance(dim.extent, Const) for dim in compute.dims):
        raise ScheduleError(
            f"finish: not all tiles of '{compute.name}' are equally large",
            where=headline(compute),
            why="what is made has a shape",
            cure="pad the dims to whole tiles first",
        )
