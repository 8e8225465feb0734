"""Factors that elementwise computes of the kernel make: their prologues (`schedule.prologues`).

Where a factor is copied anyway, the copy computes it: it is in no other memory, and in no other
order than the one in which it is read. Otherwise it is computed before, once.
"""

from __future__ import annotations

from functools import partial

from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.expr import Cast, Var
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.layout.roles import MAIN
from tilewright.recipes.roles import find_compute
from tilewright.schedule.queries.place import sequence
from tilewright.schedule.schedule import KernelSchedule


def prologues(kernel: Kernel, factor: Buffer) -> list[Compute]:
    """The computes that make ``factor``, the last of them first; none where it is an argument."""
    made = {
        stmt.out.buffer: stmt
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, Compute) and len(stmt.outputs) == 1
    }
    found: list[Compute] = []
    left = [factor]
    for held in left:
        compute = made.get(held)
        if compute is not None and compute not in found:
            found.append(compute)
            left += [operand.view.buffer for operand in compute.operands]
    return found


def has_prologue(kernel: Kernel, position: int) -> bool:
    """Whether the kernel makes the factor at ``position``."""
    view = find_compute(kernel, MAIN).operands[position].view
    return bool(prologues(kernel, view.buffer))


def made_of(kernel: Kernel, position: int) -> frozenset[str]:
    """The names of the arguments of which the factor at ``position`` is made: its own, without a
    prologue."""
    factor = find_compute(kernel, MAIN).operands[position].view.buffer
    found = prologues(kernel, factor)
    made = {compute.out.buffer for compute in found}
    read = {operand.view.buffer for compute in found for operand in compute.operands}
    return frozenset(buffer.name for buffer in (read | {factor}) - made)


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
    found = [compute for factor in factors for compute in prologues(kernel, factor)]
    return any(compute.out.buffer.space is Space.GLOBAL for compute in found)


def copies_of_factors(kernel: Kernel) -> list[Compute]:
    """The computes at the kernel's top that make factors."""
    factors = [operand.view.buffer for operand in find_compute(kernel, MAIN).operands[:2]]
    found = [compute for factor in factors for compute in prologues(kernel, factor)]
    top = sequence(kernel.body)
    return [each for each in found if each in top]


def is_computed(compute: Compute) -> bool:
    """Whether a copy is of more than the elements, converted or not."""
    value = compute.body.a if isinstance(compute.body, Cast) else compute.body
    return not isinstance(value, Var)
