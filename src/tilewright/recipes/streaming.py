"""Results that are larger than the caches: these go past them."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Expr, Unary
from tilewright.ir.stmt import Kernel
from tilewright.ir.visit import direct_exprs, loads_in, walk, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.sizes import bytes_of
from tilewright.schedule.stream_stores import stream_stores

# Functions of which a vector takes a processor longer than memory takes to deliver it.
_FUNCTIONS = frozenset({"exp", "exp2", "log", "log1p", "sin", "cos", "tanh", "erf", "pow"})


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
    if large and any(map(_takes_longer, _values(kernel))):
        return kernel
    return stream_stores(kernel, sorted(each.name for each in large)) if large else kernel


def _values(kernel: Kernel) -> Iterator[Expr]:
    """All expressions."""
    return (expr for stmt in walk_stmts(kernel.body) for expr in direct_exprs(stmt))


def _read(kernel: Kernel) -> Iterator[Buffer]:
    """What is read again."""
    return (load.buffer for expr in _values(kernel) for load in loads_in(expr))


def _takes_longer(value: Expr) -> bool:
    """Whether ``value`` evaluates such a function."""
    return any(isinstance(node, Unary | Binary) and node.op in _FUNCTIONS for node in walk(value))
