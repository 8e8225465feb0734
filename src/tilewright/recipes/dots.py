"""Instructions by which a work-item adds up products of neighbours along a reduced dim at once.

Neighbours then stay together in shared memory, whatever else a tile's order is, and are not
converted on the way: one load takes them all.
"""

from __future__ import annotations

from tilewright.ir.stmt import Compute
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.parts.product import neighbours
from tilewright.recipes.roles import factor_type
from tilewright.schedule.queries.runs import strides


def dot_of(main: Compute, machine: Machine, lanes: str, vector: int) -> Instruction | None:
    """The instruction that adds up neighbours of ``main``'s types, with ``lanes`` across vectors;
    None where the machine has none. One operand is the same for all lanes, the other is not."""
    operands = main.operands[:2]
    # What is the same for all lanes first, as in the table of instructions.
    same, other = sorted(operands, key=lambda o: strides(main, o.view).get(lanes) != 0)
    if strides(main, same.view).get(lanes) != 0 or len(main.operands) != 2:
        return None
    if any(factor_type(main, o) is not o.var.type for o in operands):
        return None
    found = machine.products(main.out.buffer.dtype, same.var.type, other.var.type)
    return next((i for i in found if neighbours(i) > 1 and i.sizes["n"] == vector), None)
