"""What multiplies: an instruction, and the dims that it has across its lanes and adds up."""

from __future__ import annotations

from tilewright.ir.stmt import LoopKind
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.parts.forms import Asked, Choices
from tilewright.recipes.parts.work import Operand, Work


class Product(Choices):
    """What multiplies.

    - ``instruction``: the multiply-add or dot product that does the work ("": scalar arithmetic),
      or the product of matrices that a subgroup computes
    - ``lanes``: the dim across a work-item's vector; of matrices, N
    - ``k``: the reduced dim that a product of matrices, or a dot product, adds up ("" without)
    """

    instruction: str
    lanes: str
    k: str = ""

    def found(self, machine: Machine) -> Instruction | None:
        """The machine's instruction; None for scalar arithmetic."""
        return machine.instruction(self.instruction) if self.instruction else None

    def together(self, machine: Machine) -> int:
        """The lanes that work on an item's tile together."""
        return machine.instruction(self.instruction).lanes if self.instruction else 1

    def kind(self, machine: Machine) -> LoopKind:
        """What has an item's tile: a work-item, or a subgroup whose lanes multiply matrices."""
        return LoopKind.WORKGROUP if self.together(machine) == 1 else LoopKind.SUBGROUP

    def neighbours(self, machine: Machine) -> int:
        """How many neighbours along ``k`` a work-item's instruction adds up; 1: it multiplies
        elements, or is none of a work-item."""
        return neighbours(machine.instruction(self.instruction)) if self.instruction else 1

    def in_memory(self, machine: Machine) -> bool:
        """Whether the instruction takes matrices from memory that the workgroup shares."""
        instruction = self.found(machine)
        return instruction is not None and instruction.asynchronous

    def check(self, asked: Asked) -> None:
        """Refuses dims that the op does not have, or that do not go with the instruction."""
        asked.check_names("product.lanes", (self.lanes,), asked.roles.kept)
        asked.check_names("product.k", (self.k,) if self.k else (), asked.roles.k)
        group = self.neighbours(asked.machine)
        step = asked.config.reduction.step.get(self.k, 1)
        if step % group:
            raise asked.refusal(
                f"{self.instruction} adds up {group} neighbours at a time",
                f"k is {self.k!r} here, of which a step has {step}" if self.k else "k names no dim",
                "choose a reduced dim for `product.k`, and a `reduction.step` of it that is a "
                f"multiple of {group}",
            )

    # Its terms of the cost.

    def rate(self, machine: Machine) -> int:
        """Products per core and cycle, at best."""
        instruction = self.found(machine)
        if instruction is None:
            return 1
        alone = instruction.lanes == 1 and neighbours(instruction) == 1
        dtype = instruction.out.dtype if alone else instruction.operands[0].dtype
        return machine.peak_rates.multiply_adds(dtype, instruction.lanes)

    def turns(self, machine: Machine, depth: int) -> int:
        """Products of matrices one after another in a step of the reduction of such a ``depth``."""
        instruction = self.found(machine)
        if instruction is None or instruction.lanes == 1:
            return 0
        return depth // instruction.sizes.get("k", 1)

    def width(self, work: Work, machine: Machine, operand: Operand) -> int:
        """Bytes of an element of A or B where it is shared: what matrices and dot products take is
        as it comes, all else converted."""
        as_it_comes = self.together(machine) > 1 or self.neighbours(machine) > 1
        return operand.bytes if as_it_comes else work.total


def neighbours(instruction: Instruction) -> int:
    """How many neighbours each lane of a work-item's instruction adds up."""
    return instruction.sizes.get("k", 1) if instruction.lanes == 1 else 1
