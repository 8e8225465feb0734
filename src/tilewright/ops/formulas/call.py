"""What a formula is given, and the kernel that comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright.dtypes import DType, s32
from tilewright.ir.stmt import Kernel
from tilewright.ops.epilogue import convert as rounded
from tilewright.problems import Direction, Record
from tilewright.problems.library.record import accumulator_for
from tilewright.tensor.elementwise import convert, expression
from tilewright.tensor.tensor import Builder, Tensor


@dataclass(frozen=True)
class Call:
    """The inputs of a record by name, and the types of all its tensors."""

    inputs: Mapping[str, Tensor]
    types: Mapping[str, DType]
    direction: Direction

    @property
    def accumulator(self) -> DType:
        """What floats are computed in."""
        return accumulator_for(self.types)

    def wide(self, name: str) -> Tensor:
        """An input in the type that floats are computed in."""
        return convert(self.inputs[name], self.accumulator)

    def exact(self, name: str) -> Tensor:
        """An input in the type that it is compared and added up in: s32, if it is of integers."""
        x = self.inputs[name]
        return convert(x, self.accumulator if x.dtype.is_float else s32)

    def rounds_to(self, name: str) -> DType:
        """What a formula may round the result to: integers saturate afterwards."""
        type_ = self.types[name]
        return type_ if type_.is_float else self.accumulator


# The results by name, of what a record says and of its inputs.
Formula = Callable[[Any, Call], Mapping[str, Tensor]]


def built(
    formula: Formula, problem: Record, types: Mapping[str, DType], direction: Direction
) -> Kernel:
    """The kernel whose inputs and results are the tensors of ``problem``, of ``types``."""
    builder = Builder(problem.driver)
    slots = problem.slots(direction)
    inputs = {
        slot.name: builder.input(slot.name, types[slot.name], slot.shape)
        for slot in slots
        if slot.access == "in"
    }
    results = formula(problem, Call(inputs, types, direction))
    for slot in slots:
        if slot.access == "in":
            continue
        result, type_ = results[slot.name], types[slot.name]
        if result.dtype is not type_:
            result = expression(partial(rounded, type=type_), result)
        builder.output(slot.name, result)
    return builder.kernel()
