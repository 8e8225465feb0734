"""How large computes and buffers are, as numbers that recipes decide by."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, const
from tilewright.ir.stmt import Compute, Kernel, View
from tilewright.ir.symbols import substitute_buffer
from tilewright.ir.uses import buffers_in
from tilewright.ir.visit import walk_stmts
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.queries.usual import usual


def known_sizes(compute: Compute) -> dict[str, int]:
    """How long the dims are that are numbers: they are as long in all tiles."""
    lengths = ((dim.var.name, dim.extent) for dim in compute.dims)
    return {name: int(each.value) for name, each in lengths if isinstance(each, Const)}


def bytes_of(held: Buffer) -> int:
    """How many bytes ``held`` spans."""
    return usual(held.span_bytes)


def steps_of(compute: Compute, view: View) -> dict[str, int | None]:
    """`strides`, where sizes are as usual."""
    numbers = {each: const(usual(each)) for each in view.buffer.symbols}
    return strides(compute, replace(view, buffer=substitute_buffer(view.buffer, numbers)))


def are_known(kernel: Kernel) -> bool:
    """Whether all sizes are numbers: none is one that a call passes."""
    if not kernel.scalars:
        return True
    computes = (stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Compute))
    extents = all(isinstance(dim.extent, Const) for compute in computes for dim in compute.dims)
    return extents and not any(held.symbols for held in buffers_in(kernel.body))
