"""What elementwise computes of the kernel make for others: factors of products (their prologues,
`schedule.prologues`), and values that become a part of the computes that read them."""

from __future__ import annotations

from functools import partial
from math import prod

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Binary, Cast, Expr, Unary, Var
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.visit import walk, walk_stmts
from tilewright.layout.roles import MAIN
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents, find_compute
from tilewright.schedule.queries.place import sequence
from tilewright.schedule.schedule import KernelSchedule


def prologues(kernel: Kernel, factor: Buffer) -> list[Compute]:
    """The computes that make ``factor``, the last of them first; none where it is an argument."""
    makers = {
        stmt.out.buffer: stmt
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Compute) and len(stmt.outputs) == 1
    }
    computes: list[Compute] = []
    left = [factor]
    for held in left:
        compute = makers.get(held)
        if compute is not None and compute not in computes:
            computes.append(compute)
            left += [operand.view.buffer for operand in compute.operands]
    return computes


def has_prologue(kernel: Kernel, position: int) -> bool:
    """Whether the kernel makes the factor at ``position``."""
    view = find_compute(kernel, MAIN).operands[position].view
    return bool(prologues(kernel, view.buffer))


def made_of(kernel: Kernel, position: int) -> frozenset[str]:
    """The names of the arguments of which the factor at ``position`` is made: its own, without a
    prologue."""
    factor = find_compute(kernel, MAIN).operands[position].view.buffer
    computes = prologues(kernel, factor)
    buffers = {compute.out.buffer for compute in computes}
    read = {operand.view.buffer for compute in computes for operand in compute.operands}
    return frozenset(buffer.name for buffer in (read | {factor}) - buffers)


def packable(kernel: Kernel, prepack: str | None) -> bool:
    """Whether B is made of the argument ``prepack`` alone."""
    return prepack is not None and made_of(kernel, 1) == {prepack}


def computed_in_copies(s: KernelSchedule, factor: Buffer) -> None:
    """Prologues of ``factor``, which is copied, in the copy, where they can be."""
    for compute in prologues(s.kernel, factor):
        if not s.attempt(partial(s.inline, compute.name)):
            break


def with_prologues(s: KernelSchedule) -> None:
    """Prologues of all factors in their copies."""
    factors = [o.view.buffer for o in find_compute(s.kernel, MAIN).operands[:2]]
    copies = [compute for factor in factors for compute in prologues(s.kernel, factor)[:1]]
    for buffer in dict.fromkeys(o.view.buffer for copy in copies for o in copy.operands[:1]):
        computed_in_copies(s, buffer)


def are_made(kernel: Kernel) -> bool:
    """Whether the kernel makes a factor, copied or not."""
    factors = [operand.view.buffer for operand in find_compute(kernel, MAIN).operands[:2]]
    computes = [compute for factor in factors for compute in prologues(kernel, factor)]
    return any(compute.out.buffer.space is Space.GLOBAL for compute in computes)


def copies_of_factors(kernel: Kernel) -> list[Compute]:
    """The computes at the kernel's top that make factors."""
    factors = [operand.view.buffer for operand in find_compute(kernel, MAIN).operands[:2]]
    computes = [compute for factor in factors for compute in prologues(kernel, factor)]
    top = sequence(kernel.body)
    return [compute for compute in computes if compute in top]


def is_computed(compute: Compute) -> bool:
    """Whether a copy is of more than the elements, converted or not."""
    value = compute.body.a if isinstance(compute.body, Cast) else compute.body
    return not isinstance(value, Var)


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
    points = _points(compute)
    reads = sum(
        _points(stmt)
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Compute)
        for operand in stmt.operands
        if operand.view.buffer is _held(compute)
    )
    return reads <= points or (reads <= _AGAIN * points and (again or _is_cheap(compute)))


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
