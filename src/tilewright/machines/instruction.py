"""What a machine instruction computes, as a small structured op."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilewright.dtypes import DType
from tilewright.ir.expr import Expr, Var, cast, const, var
from tilewright.layout.fragments import Fragment
from tilewright.layout.rows import Rows


@dataclass(frozen=True)
class AddressStep:
    """A part of one dim of the instruction: ``size`` elements (None: the rest), ``stride`` apart.

    A ``stride`` of None stands for any: the address of each element is taken.
    """

    dim: str
    size: int | None
    stride: int | None


@dataclass(frozen=True)
class OperandForm:
    """An operand or the result: its name in the body, its type, and the form in memory.

    The steps are ordered as the blocks of a layout, and a dim without a step does not move the
    address: the element is the same for all (a broadcast). With a ``fragment`` the matrix is not in
    memory, but in the registers of the lanes of a subgroup. The rows of the last step begin at
    multiples of ``aligned`` elements (0: anywhere). With ``rows`` it is a matrix in workgroup
    memory, in one of these forms.
    """

    name: str
    dtype: DType
    steps: tuple[AddressStep, ...] = ()
    fragment: Fragment | None = None
    aligned: int = 0
    rows: tuple[Rows, ...] = ()

    @property
    def var(self) -> Var:
        """What stands in the body for an element."""
        return var(self.name, self.dtype)

    def steps_of(self, dim: str, held: int = 0) -> tuple[AddressStep, ...]:
        """The steps along one dim, the outermost first; of a fragment, in a buffer of which each
        lane holds ``held`` elements."""
        return tuple(step for step in self._steps(held) if step.dim == dim)

    def _steps(self, held: int) -> tuple[AddressStep, ...]:
        if self.fragment is None:
            return self.steps
        steps: list[AddressStep] = []
        for block in self.fragment.scaled(held):
            copies = self.fragment.copies
            if block.dim < len(self.fragment.dims):
                steps.append(AddressStep(self.fragment.dims[block.dim], block.size, block.stride))
            elif copies is not None:
                steps.append(AddressStep(copies.dim, None, 0))
                steps.append(AddressStep(copies.dim, copies.count, block.stride))
                steps.append(AddressStep(copies.dim, copies.run, 0))
        return tuple(steps)


@dataclass(frozen=True, repr=False)
class Instruction:
    """``out combiner= product of operands``, each converted to the output's type, over ``dims``.

    Without a combiner, the product is assigned: with one operand, a copy into another order or
    place; without any, zeros.
    ``feature`` is what the machine has to have. ``emit`` is the name under which targets know how
    to emit it: an LLVM intrinsic, or a generic operation on vectors. One on fragments is carried
    out by the lanes of a subgroup together.
    """

    name: str
    dims: tuple[tuple[str, int], ...]
    out: OperandForm
    operands: tuple[OperandForm, ...]
    feature: str
    emit: str
    combiner: str | None = "add"

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size of each dim."""
        return dict(self.dims)

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """The dims that the output does not have."""
        kept = {step.dim for step in self.out.steps}
        if self.out.fragment is not None:
            kept = set(self.out.fragment.dims)
        return tuple(name for name, _ in self.dims if name not in kept)

    @cached_property
    def lanes(self) -> int:
        """The lanes that carry it out together; 1: each work-item does for itself."""
        roles = (self.out, *self.operands)
        return max((r.fragment.lanes for r in roles if r.fragment is not None), default=1)

    def __repr__(self) -> str:
        return f"<instruction {self.name}>"

    @property
    def asynchronous(self) -> bool:
        """Whether a subgroup starts it, and it then runs by itself: on matrices where they lie in
        workgroup memory."""
        return any(role.rows for role in self.operands)

    @property
    def loads(self) -> bool:
        """Whether it only fills a fragment from memory."""
        return len(self.operands) == 1 and self.out.fragment is not None

    @property
    def stores(self) -> bool:
        """Whether it only writes a fragment to memory."""
        return len(self.operands) == 1 and self.operands[0].fragment is not None

    @cached_property
    def body(self) -> Expr:
        """The product of the operands, in the output's type; of none, zero."""
        result: Expr | None = None
        for role in self.operands:
            factor = cast(self.out.dtype, role.var)
            result = factor if result is None else result * factor
        return const(0, self.out.dtype) if result is None else result

    @property
    def flops(self) -> int:
        """Multiplications and additions that one execution does."""
        count = 2
        for _, size in self.dims:
            count *= size
        return count
