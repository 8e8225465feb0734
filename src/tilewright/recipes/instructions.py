"""Which instruction multiplies, and why nothing better does; instructions by which a work-item adds
up products of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from tilewright.dtypes import DType
from tilewright.ir.stmt import Compute, Kernel
from tilewright.layout.roles import MAIN
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.choices import as_packed
from tilewright.recipes.parts.product import neighbours
from tilewright.recipes.recipe import is_contraction
from tilewright.recipes.roles import factor_type, find_compute
from tilewright.schedule.queries.runs import strides


def instruction_lines(
    kernel: Kernel, machine: Machine, name: str, refused: Mapping[str, str] | None = None
) -> list[str]:
    """Of a contraction: the instruction called ``name`` (empty: none), and for the best of those
    that would do more at a time with such operands, why it is another; of those that its recipe
    ``refused``, in the recipe's words. Empty for what multiplies nothing.
    """
    if not is_contraction(kernel):
        return []
    chosen = machine.instruction(name) if name else None
    lines = [_words(chosen) if chosen is not None else "no instruction: scalars, one by one"]
    # The best of what the machine has, and of what it lacks.
    for better in (machine.instructions, machine.lacks):
        lines += islice(_reasons(kernel, machine, better, chosen, refused), 1)
    return lines


def _words(instruction: Instruction) -> str:
    return f"{instruction.name} ({_products(instruction)})"


def _products(instruction: Instruction) -> str:
    count = instruction.flops // 2
    return f"{count} product{'' if count == 1 else 's'} at a time"


def _reasons(
    kernel: Kernel,
    machine: Machine,
    instructions: tuple[Instruction, ...],
    chosen: Instruction | None,
    refused: Mapping[str, str] | None,
) -> Iterator[str]:
    """Why those of ``instructions`` that do more than ``chosen`` are not it, the best first."""
    main = find_compute(kernel, MAIN)
    total = main.out.buffer.dtype
    a, b = (operand.view.buffer for operand in main.operands[:2])
    types = (a.dtype, as_packed(a.dtype, b.dtype))
    least = 0 if chosen is None else chosen.flops
    for each in sorted(instructions, key=lambda each: -each.flops):
        taken = tuple(role.dtype for role in each.operands)
        if len(taken) != 2 or each.out.dtype is not total or each.flops <= least:
            continue
        if not all(_alike(one, other) for one, other in zip(types, taken, strict=True)):
            continue
        # Longer vectors of a later machine are no other way to multiply.
        if each in machine.lacks and each.sizes.get("k", 1) == 1:
            continue
        why = []
        if taken != types:
            why.append(
                f"it multiplies {taken[0]} by {taken[1]}, and {a.name} has {a.dtype}, "
                f"{b.name} {b.dtype}"
            )
        if each in machine.lacks:
            why.append(f"{machine.name} has no {each.feature}")
        elif refused is not None and taken == types:
            why.append(refused.get(each.name, "no schedule with it is legal"))
        if why:
            yield f"not {_words(each)}: " + "; ".join(why)


def _alike(one: DType, other: DType) -> bool:
    """Whether elements could be of the other type: both are floats or both integers, of one
    size."""
    return one.is_float is other.is_float and one.bits == other.bits


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
