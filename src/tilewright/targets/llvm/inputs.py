"""The inputs of a function: the kernel's arguments, and values of the host.

Arguments are the kernel's parameters in their order, then its workspaces: memory by a pointer, a
scalar parameter by value. Values of the host are its loops' variables and computed values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType, boolean, f16, s16, u8
from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Buffer, Size
from tilewright.ir.expr import Var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel, Param
from tilewright.simplify import simplify
from tilewright.targets.llvm.module import Amount
from tilewright.targets.llvm.types import llvm_type

Argument = Buffer | Var


def carrier(dtype: DType) -> DType:
    """The type in which a value is passed to a function: one that all targets support, as large as
    an element in memory."""
    if dtype is boolean:
        return u8
    return s16 if dtype is f16 else dtype


def carrier_type(dtype: DType) -> str:
    """The carrier as an LLVM type."""
    return llvm_type(carrier(dtype))


@dataclass(frozen=True)
class Input:
    """A value that is passed to a function under the name ``text``."""

    var: Var
    text: str

    @property
    def declared(self) -> str:
        """The parameter of the function."""
        return f"{carrier_type(self.var.type)} {self.text}"


def inputs_of(arguments: Sequence[Argument], values: Sequence[Var]) -> list[Input]:
    """The scalars among ``arguments``, then the host's values."""
    scalars = [Input(a, f"%a{i}") for i, a in enumerate(arguments) if isinstance(a, Var)]
    return [*scalars, *(Input(value, f"%h{i}") for i, value in enumerate(values))]


def arguments_of(kernel: Kernel) -> list[Argument]:
    """The parameters of ``kernel``, in their order."""
    return [p.buffer if isinstance(p, Param) else p.var for p in kernel.params]


def amount(size: Size) -> Amount:
    """A number, or the text of its expression, evaluated at each call."""
    return size if isinstance(size, int) else to_text(simplify(size, Facts.empty()))
