"""Results that are larger than the caches: these go past them."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Kernel
from tilewright.ir.visit import direct_exprs, loads_in, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.sizes import bytes_of
from tilewright.schedule.stream_stores import stream_stores


def streamed(kernel: Kernel, machine: Machine) -> Kernel:
    """``kernel``, which is lowered, with stores past the caches to what would not stay in them:
    a line that is stored through them is read first, which is a third of what moves."""
    if machine.hierarchy is not None:
        return kernel
    large = {
        param.buffer
        for param in kernel.arrays
        if param.access == "out" and bytes_of(param.buffer) >= machine.caches[-1]
    }
    if large:
        large -= set(_read(kernel))
    return stream_stores(kernel, sorted(each.name for each in large)) if large else kernel


def _read(kernel: Kernel) -> Iterator[Buffer]:
    """What is read again."""
    for stmt in walk_stmts(kernel.body):
        for expr in direct_exprs(stmt):
            yield from (load.buffer for load in loads_in(expr))
