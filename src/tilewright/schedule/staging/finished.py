"""Results that are finished before they are stored."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import var
from tilewright.ir.stmt import Allocate, Compute, Kernel, Operand, Stmt, View
from tilewright.ir.visit import block
from tilewright.schedule.queries.place import (
    Place,
    claim,
    fresh,
    is_called,
    names_in,
    rewrite_kernel,
    size_of,
)
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import ordered_layout
from tilewright.schedule.records.transform import give
from tilewright.schedule.staging.results import check_sizes


def finished(kernel: Kernel, compute: str, space: Space) -> Kernel:
    """``kernel`` with what ``compute`` stores made in ``space`` first: what is left is a copy."""
    buffers, names = names_in(kernel)

    def on_stmt(stmt: Stmt, place: Place) -> Stmt | None:
        if not is_called(stmt, compute):
            return None
        _check(stmt)
        target, dims = stmt.out.buffer, tuple(d.var for d in stmt.dims)
        shape = tuple(size_of(d) for d in stmt.dims)
        name = claim(f"{target.name}_made", buffers)
        layout = ordered_layout(shape, range(len(shape)))
        view = View(Buffer(name, target.dtype, shape, layout, space), dims)
        value = var(fresh("made", place.names | {d.name for d in dims}), target.dtype)
        first = replace(stmt, name=fresh(f"{stmt.name}_finish", names)).with_result(view)
        left = replace(stmt, operands=(Operand(value, view),)).with_result(body=value)
        give("finish", "compute", first.name)
        give("buffer", "buffer", name)
        return block(Allocate(view.buffer), first, left)

    return rewrite_kernel(kernel, on_stmt)


def _check(compute: Compute) -> None:
    """Refuses what is no plain store of tiles that are equally large."""
    if compute.instruction or compute.completion is not None:
        raise refusal(
            f"'{compute.name}' does more than write its result",
            compute,
            "name a compute without an instruction",
            why="a copy replaces what was there",
        )
    check_sizes(compute, "what is made has a shape")
