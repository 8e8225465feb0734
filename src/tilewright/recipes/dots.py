"""Instructions by which a work-item adds up products of neighbours along a reduced dim at once.

Neighbours then stay together in shared memory, whatever else a tile's order is, and are not
converted on the way: one load takes them all.
"""

from __future__ import annotations

from tilewright.ir.stmt import Compute
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.roles import factor_type, strides


def group_of(machine: Machine, config: WorkgroupConfig) -> int:
    """How many neighbours along ``config.k`` a work-item's instruction adds up; 1: it multiplies
    elements, or is none of a work-item."""
    if not config.instruction:
        return 1
    return neighbours(machine.instruction(config.instruction))


def neighbours(instruction: Instruction) -> int:
    """How many neighbours each lane of a work-item's instruction adds up."""
    return instruction.sizes.get("k", 1) if instruction.lanes == 1 else 1


def dots(main: Compute, machine: Machine) -> tuple[Instruction, ...]:
    """The instructions of work-items that add up neighbours of ``main``'s types, either operand
    the first."""
    if len(main.operands) != 2 or main.combiner != "add":
        return ()
    a, b = (operand.var.type for operand in main.operands)
    if any(factor_type(main, o) is not o.var.type for o in main.operands):
        return ()
    total = main.out.buffer.dtype
    found = (*machine.products(total, a, b), *machine.products(total, b, a))
    return tuple(each for each in dict.fromkeys(found) if neighbours(each) > 1)


def dot_of(main: Compute, machine: Machine, lanes: str, vector: int) -> Instruction | None:
    """The one for ``main`` with ``lanes`` across vectors; None where the machine has none.

    Its operands have the order of its roles: one is the same for all lanes, the other is not.
    """
    for each in dots(main, machine):
        across = {role.dtype for role in each.operands if role.steps_of("n")}
        by_lane = [o for o in main.operands if strides(main, o.view).get(lanes) != 0]
        if each.sizes["n"] == vector and len(by_lane) == 1 and by_lane[0].var.type in across:
            return each
    return None
