"""How the tiles of a step get to memory that the workgroup shares, and how they lie there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from tilewright.facts.affine import affine
from tilewright.ir.expr import Var
from tilewright.ir.printer import to_text
from tilewright.machines.machine import Machine
from tilewright.recipes.parts.forms import Asked, Choices
from tilewright.recipes.parts.product import Product
from tilewright.recipes.parts.work import Operand, Work
from tilewright.recipes.roles import taps_of
from tilewright.schedule.pipelines.pipeline import Fill

# The `fill` of tiles that a unit of the machine copies.
COPY_UNIT = "unit"
FILLS = (*(fill.value for fill in Fill), COPY_UNIT)


# Instructions for each access of a copy to shared memory: where it is, and whether; and where
# divisions say so.
_COPY, _COPY_WITHIN = 40, 85
# The least bytes that the machine copies by itself.
_BY_ITSELF = 4


class Staging(Choices):
    """How the tiles of a step get to memory that the workgroup shares, and how they lie there.

    - ``fill``: how the next tile is copied: ``copy``, ``registers``, ``async``; ``unit``: by a
      unit of the machine that copies tiles, which a subgroup of its own has run ahead
    - ``stages``: how many of the shared tiles there are: 1, or more to copy ahead
    - ``vector``: elements that a work-item copies at a time
    - ``halo``: whether the work-items share the part of A that their tile and all taps (the reduced
      dims that move along with a dim of M, as ``kh`` with ``oh``) read, once, instead of a tile for
      each step of the taps. Dims of M then stay as they are
    - ``padding``: elements between the rows of a shared tile, against bank conflicts, per operand
      (0 for those that it leaves out)
    - ``swizzle``: the `ir.Swizzle` of a shared tile, against the same, as (bits, base, shift) per
      operand; the tile's steps have to be powers of two
    """

    fill: str = "copy"
    stages: int = 1
    vector: int = 1
    halo: bool = False
    padding: Mapping[str, int] = field(default_factory=dict)
    swizzle: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def by_unit(self) -> bool:
        """Whether a unit of the machine copies whole tiles."""
        return self.fill == COPY_UNIT

    def loads_ahead(self, machine: Machine, product: Product, step: Mapping[str, int]) -> bool:
        """Whether fragments of the next product are loaded during one: where steps are copied ahead
        by themselves and have an even number of products."""
        instruction = product.found(machine)
        if (
            instruction is None
            or instruction.lanes == 1
            or self.fill != Fill.ASYNC.value
            or self.stages < 2
        ):
            return False
        in_registers = all(role.fragment is not None for role in instruction.operands)
        products = step.get(product.k, 1) // instruction.sizes["k"]
        return in_registers and products % 2 == 0

    def check(self, asked: Asked) -> None:
        """Refuses ways to copy that there are not, and what does not go with the instruction."""
        asked.check_names("staging.padding", self.padding, asked.operands, "operand")
        asked.check_names("staging.swizzle", self.swizzle, asked.operands, "operand")
        if self.fill not in FILLS:
            raise asked.refusal(
                f"staging.fill={self.fill!r} is no way to fill a tile",
                "there are copies, registers, asynchronous copies and those of whole tiles",
                "choose one of " + ", ".join(FILLS),
            )
        if self.halo:
            _check_halo(asked)

    def check_unit(self, asked: Asked) -> None:
        """Refuses what does not go together with an instruction on matrices in shared memory, or
        with a subgroup of its own that has tiles copied for those that multiply them."""
        config = asked.config
        instruction = config.product.instruction
        in_memory = config.product.in_memory(asked.machine)
        if self.by_unit and not in_memory:
            raise asked.refusal(
                f"staging.fill={self.fill!r} with product.instruction={instruction!r}",
                "tiles that are copied whole are for instructions on matrices in shared memory",
                "choose such an instruction, or another fill",
            )
        others: dict[str, object] = {}
        if in_memory:
            others["reduction.item_slices"] = config.reduction.item_slices
            others["staging.halo"] = self.halo
            others["staging.padding"], others["staging.swizzle"] = self.padding, self.swizzle
        if self.by_unit:
            others["order.stream_k"] = config.order.stream_k
        for name, value in others.items():
            if value:
                why = "how tiles lie is the instruction's choice"
                if self.by_unit:
                    why += ", and a subgroup copies all of one result in order"
                raise asked.refusal(
                    f"{name}={value!r} with product.instruction={instruction!r}",
                    why,
                    f"leave {name} out",
                )
        if self.by_unit and config.items < 2:
            raise asked.refusal(
                f"one subgroup multiplies with staging.fill={COPY_UNIT!r}",
                "what it has copied for it, others are to share",
                "make the group's tile a multiple of the item's",
            )

    # Its terms of the cost. A ``tile`` has the sizes of all dims in a step of a workgroup.

    def copies(self, work: Work, tile: Mapping[str, int], items: int) -> float:
        """Instructions by which ``items`` copy the tiles of a step: none for whole ones."""
        if self.by_unit:
            return 0.0
        return sum(self._copies(o, tile, items) for o in work.operands)

    def _copies(self, operand: Operand, tile: Mapping[str, int], items: int) -> float:
        wide = min(self.vector, operand.run)
        # Where work-items go on by whole rows, what their numbers come to is the same in all.
        rows = all(items * wide % tile[d] == 0 for d in operand.dims)
        return _elements(operand, tile) / wide * (_COPY if rows else _COPY_WITHIN)

    def waited_for(self, work: Work) -> bool:
        """Whether work-items load what they store: the machine copies no less than some bytes by
        itself."""
        return self.fill == Fill.ASYNC.value and any(
            min(self.vector, o.run) * o.bytes < _BY_ITSELF for o in work.operands
        )

    def shared(
        self, work: Work, machine: Machine, product: Product, tile: Mapping[str, int]
    ) -> int:
        """Bytes of shared tiles of A and B, at most: their rows may lie along either dim."""
        total, depth = 0, math.prod(tile[d] for d in work.parts.k)
        for operand in work.operands:
            kept = _elements(operand, tile) // depth
            elements = kept * depth + self.padding.get(operand.name, 0) * max(kept, depth)
            total += elements * product.width(work, machine, operand)
        return self.stages * total


def loaded(work: Work, tile: Mapping[str, int]) -> tuple[int, ...]:
    """Bytes of A and B in a step's ``tile``."""
    return tuple(_elements(o, tile) * o.bytes for o in work.operands)


def _elements(operand: Operand, tile: Mapping[str, int]) -> int:
    return math.prod(tile[d] for d in operand.dims)


def _check_halo(asked: Asked) -> None:
    if not taps_of(asked.main):
        raise asked.refusal(
            "staging.halo=True without taps",
            "no reduced dim moves along with one of M, so that nothing is read twice",
            "leave halo out",
        )
    for index in asked.main.operands[0].view.index:
        if not all(isinstance(atom, Var) for atom in affine(index).terms):
            raise asked.refusal(
                f"staging.halo=True where A is read at {to_text(index)}",
                "what a tile reads is no box of the tensor",
                "leave halo out",
            )
