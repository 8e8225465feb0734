"""The types of joint matrices that multiply, and the instructions of targets for them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.calls import checked_call
from tilewright.dtypes import DType, bf16, f16, f32, f64, s8, s32, tf32, u8
from tilewright.machines.machine import Machine
from tilewright.targets.registry import find_target

# Types of A, of B, and of the accumulator.
_TYPES: tuple[tuple[DType, DType, DType], ...] = (
    *((a, b, s32) for a in (s8, u8) for b in (s8, u8)),
    (bf16, bf16, f32),
    (f16, f16, f32),
    (f16, f16, f16),
    (tf32, tf32, f32),
    (f32, f32, f32),
    (f64, f64, f64),
)
# No matrix has more rows or columns, nor more elements.
MOST_SIDE, MOST_ELEMENTS = 1024, 2**16


@dataclass(frozen=True)
class MatrixCombination:
    """Types that joint matrices multiply: ``a`` by ``b`` into ``accumulator``, of any size.

    ``instructions`` are those of the target's machine that multiply these types, by their names,
    and ``sizes`` the rows, the columns and the depth that each takes.
    """

    a: DType
    b: DType
    accumulator: DType
    instructions: tuple[str, ...] = ()
    sizes: tuple[tuple[int, int, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.a} by {self.b} into {self.accumulator}"


def combinations() -> tuple[MatrixCombination, ...]:
    """The combinations that multiply on every target."""
    return tuple(MatrixCombination(*types) for types in _TYPES)


@checked_call
def matrix_combinations(target: str = "x86") -> tuple[MatrixCombination, ...]:
    """The types of joint matrices that multiply on ``target``, each with the instructions of its
    machine for them. Sizes are free: where subgroups multiply as one, multiples of an instruction's
    are made of several, and others are sums of each lane.

    Raises `UnsupportedError` for an unknown target.
    """
    machine = find_target(target).machine
    return tuple(_combination(machine, a, b, acc) for a, b, acc in _TYPES)


def _combination(machine: Machine, a: DType, b: DType, accumulator: DType) -> MatrixCombination:
    # Instructions of several subgroups take operands from memory in their own form. Sums of halves
    # are in floats, rounded after each product.
    most = machine.hierarchy.subgroup
    sizes = {
        instruction.name: (
            instruction.sizes.get("m", 1),
            instruction.sizes.get("n", 1),
            instruction.sizes.get("k", 1),
        )
        for instruction in machine.products(summed_in(accumulator), a, b)
        if instruction.lanes <= most
    }
    return MatrixCombination(a, b, accumulator, tuple(sizes), tuple(sizes.values()))


def summed_in(accumulator: DType) -> DType:
    """The type of an accumulator in memory, in which products are added up."""
    if accumulator.is_integer:
        return s32
    return f32 if accumulator.bits < 64 else accumulator
