"""Which matrices there are: types that multiply, and what targets have for them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dtypes import DType, bf16, f16, f32, f64, s8, s32, tf32, u8
from tilewright.machines.instruction import Instruction
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

    ``instructions`` are those of the target's machine that multiply these types, by their names.
    """

    a: DType
    b: DType
    accumulator: DType
    instructions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.a} by {self.b} into {self.accumulator}"


def combinations() -> tuple[MatrixCombination, ...]:
    """What multiplies on every target."""
    return tuple(MatrixCombination(*types) for types in _TYPES)


def matrix_combinations(target: str = "x86") -> tuple[MatrixCombination, ...]:
    """The types of joint matrices that multiply on ``target``, each with the instructions of its
    machine for them. Sizes are free. Processors multiply joint matrices by these; of devices, they
    say what `tw.matmul` takes, as work-items multiply joint matrices by plain code there.

    Raises `UnsupportedError` for an unknown target.
    """
    machine = find_target(target).machine
    return tuple(
        MatrixCombination(a, b, acc, _found(machine.instructions, (a, b, acc)))
        for a, b, acc in _TYPES
    )


def _found(
    instructions: tuple[Instruction, ...], types: tuple[DType, DType, DType]
) -> tuple[str, ...]:
    names = [
        each.name
        for each in instructions
        if (*(operand.dtype for operand in each.operands), each.out.dtype) == types
    ]
    return tuple(dict.fromkeys(names))
