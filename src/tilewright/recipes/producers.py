"""Which elementwise computes become a part of those that read what they give.

One whose results are read once each has nothing to keep. One that is cheap is computed again
where it is read a few times: arrays that are never written need no memory's time.
"""

from __future__ import annotations

from functools import partial
from math import prod

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Cast, Expr, Unary
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.visit import walk, walk_stmts
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents
from tilewright.schedule.schedule import KernelSchedule

# How often results may be computed again: loads that a compute saves are worth no more.
_AGAIN = 3
_CHEAP = frozenset({"add", "sub", "mul", "min", "max"})
_CHEAP_OF_ONE = frozenset({"neg", "abs"})
# What a cheap compute reads.
_OPERANDS = 2


def without_producers(s: KernelSchedule, again: bool = False) -> None:
    """Such computes where they are read; with ``again``, any is cheap."""
    allocated = {stmt.buffer for stmt in walk_stmts(s.kernel.body) if isinstance(stmt, Allocate)}
    for compute in computes_in(s.kernel):
        if len(compute.outputs) > 1 or compute.results[0].combiner is not None:
            continue
        if compute.outputs[0].buffer not in allocated or not _worth(s.kernel, compute, again):
            continue
        s.attempt(partial(s.inline, compute.name))


def _worth(kernel: Kernel, compute: Compute, again: bool) -> bool:
    """Whether computing it where it is read costs no more than memory would."""
    own = _points(compute)
    reads = sum(
        _points(stmt)
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Compute)
        for operand in stmt.operands
        if operand.view.buffer is _held(compute)
    )
    return reads <= own or (reads <= _AGAIN * own and (again or _is_cheap(compute)))


def _held(compute: Compute) -> Buffer:
    return compute.outputs[0].buffer


def _points(compute: Compute) -> int:
    return prod(extents(compute).values())


def _is_cheap(compute: Compute) -> bool:
    return len(compute.operands) <= _OPERANDS and all(map(_costs_little, walk(compute.body)))


def _costs_little(node: Expr) -> bool:
    match node:
        case Binary():
            return node.op in _CHEAP
        case Unary():
            return node.op in _CHEAP_OF_ONE
        case Cast():
            return node.type.bytes == 4 or node.a.type.bytes == 4
        case _:
            return True
