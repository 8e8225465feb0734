"""Which matrices there are: types that multiply, and what targets have for them."""

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
    """What multiplies on every target."""
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
    # Those of several subgroups take operands from memory of a form of its own. Halves are added up
    # in floats, and rounded behind each product.
    most = machine.hierarchy.subgroup if machine.hierarchy is not None else 1
    found = {
        each.name: (each.sizes.get("m", 1), each.sizes.get("n", 1), each.sizes.get("k", 1))
        for each in machine.products(summed_in(accumulator), a, b)
        if each.lanes <= most
    }
    return MatrixCombination(a, b, accumulator, tuple(found), tuple(found.values()))


def summed_in(accumulator: DType) -> DType:
    """The type in which an accumulator lies in memory: products are added up in it."""
    if accumulator.is_integer:
        return s32
    return f32 if accumulator.bits < 64 else accumulator
