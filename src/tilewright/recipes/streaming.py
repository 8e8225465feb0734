"""Results that are larger than the caches: these go past them."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.facts.functions import made_functions
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Kernel
from tilewright.ir.visit import direct_exprs, loads_in, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.sizes import bytes_of
from tilewright.schedule.stream_stores import stream_stores


def streamed(kernel: Kernel, machine: Machine) -> Kernel:
    """``kernel``, which is lowered, with stores past the caches to what is known not to stay there:
    a line that is stored through them is read first, which is a third of what moves. Where
    functions take longer than that, such stores cost more than they save."""
    if machine.hierarchy is not None:
        return kernel
    large = {
        param.buffer
        for param in kernel.arrays
        if param.access == "out"
        and not param.buffer.symbols
        and bytes_of(param.buffer) >= machine.caches[-1]
    }
    if large:
        large -= set(_read(kernel))
    # A vector of any of these takes longer than memory takes to deliver it.
    if large and any(any(made_functions(value)) for value in _values(kernel)):
        return kernel
    return stream_stores(kernel, sorted(each.name for each in large)) if large else kernel


def _values(kernel: Kernel) -> Iterator[Expr]:
    """All expressions."""
    return (expr for stmt in walk_stmts(kernel.body) for expr in direct_exprs(stmt))


def _read(kernel: Kernel) -> Iterator[Buffer]:
    """What is read again."""
    return (load.buffer for expr in _values(kernel) for load in loads_in(expr))
