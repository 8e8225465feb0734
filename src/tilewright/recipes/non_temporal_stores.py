"""Results that are larger than the caches: these go past them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Expr, Unary, as_expr
from tilewright.ir.operators import SOFTWARE
from tilewright.ir.stmt import Kernel, Store
from tilewright.ir.visit import direct_exprs, loads_in, walk, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.schedule.schedule import KernelSchedule


def streamed(s: KernelSchedule, machine: Machine) -> None:
    """``kernel``, which is lowered, with stores past the caches to what does not stay there:
    a line that is stored through them is read first, which is a third of what moves. Where a call
    passes sizes, both ways are written out: functions are too long for that where there is more
    than what makes these results."""
    if not machine.past_caches:
        return
    cache, facts = machine.caches[-1], Facts.of(s.kernel)
    large = {
        param.buffer
        for param in s.kernel.arrays
        if param.access == "out"
        and facts.prove(as_expr(param.buffer.span_bytes) < cache) is not True
    }
    if large:
        large -= set(_read(s.kernel))
    if not large or (
        s.kernel.scalars and _makes_others(s.kernel, large) and _has_functions(s.kernel)
    ):
        return
    s.store_non_temporally(sorted(each.name for each in large), cache)


def _makes_others(kernel: Kernel, large: Collection[Buffer]) -> bool:
    stored = {stmt.buffer for stmt in walk_stmts(kernel.body) if isinstance(stmt, Store)}
    return not stored <= set(large)


def _has_functions(kernel: Kernel) -> bool:
    nodes = (node for value in _values(kernel) for node in walk(value))
    return any(isinstance(node, Unary | Binary) and node.op in SOFTWARE for node in nodes)


def _values(kernel: Kernel) -> Iterator[Expr]:
    """All expressions."""
    return (expr for stmt in walk_stmts(kernel.body) for expr in direct_exprs(stmt))


def _read(kernel: Kernel) -> Iterator[Buffer]:
    """What is read again."""
    return (load.buffer for expr in _values(kernel) for load in loads_in(expr))
