"""How the reduction goes on: in steps, in an order, in slices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from tilewright.machines.machine import Machine
from tilewright.recipes.parts.forms import Asked, Choices
from tilewright.recipes.parts.work import KEPT, MEMORY, NEAR, Work


class Reduction(Choices):
    """How the reduction goes on.

    - ``step``: how much of each reduced dim is shared at a time; dims left out are 1
    - ``loops``: loops over reduced dims, outermost first
    - ``fused``: reduced dims that are made one, outermost first, called like them, joined by ``_``
      (as it is called in ``step``, ``slices``, ...): one long dim fills whole steps with less
      padding than a short one
    - ``slices``: parts of a reduced dim that workgroups of their own reduce, and that are added up
      afterwards (split-K), as (dim, parts)
    - ``item_slices``: parts of a reduced dim (one, as (dim, parts)) that work-items of their own
      reduce, beside those for the tile of the result; the workgroup adds the parts up in order, in
      memory that it shares
    - ``atomic``: whether the parts of ``slices`` are added to one zeroed result as they come, which
      saves the memory and the second pass of parts for f32 and s32. The order is another in each
      run, and so is what rounding makes of a sum of floats
    """

    step: Mapping[str, int] = field(default_factory=dict)
    loops: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    slices: tuple[tuple[str, int], ...] = ()
    item_slices: tuple[tuple[str, int], ...] = ()
    atomic: bool = False

    @property
    def parts(self) -> int:
        """The parts that workgroups of their own reduce, for each tile of the result."""
        return math.prod(parts for _, parts in self.slices)

    @property
    def item_parts(self) -> int:
        """The parts that work-items of their own reduce, for each tile of theirs."""
        return math.prod(parts for _, parts in self.item_slices)

    def steps(self, sizes: Mapping[str, int], dims: Sequence[str]) -> int:
        """The steps that one workgroup goes through, of the reduced ``dims``."""
        slices, in_items = dict(self.slices), dict(self.item_slices)
        return math.prod(
            -(-sizes[d] // (self.step.get(d, 1) * slices.get(d, 1) * in_items.get(d, 1)))
            for d in dims
        )

    def check(self, asked: Asked) -> None:
        """Refuses dims that are not reduced, and slices that cannot be added up."""
        k = asked.roles.k
        for what, names in (
            ("step", tuple(self.step)),
            ("loops", self.loops),
            ("slices", tuple(dim for dim, _ in self.slices)),
            ("item_slices", tuple(dim for dim, _ in self.item_slices)),
        ):
            asked.check_names(f"reduction.{what}", names, k)
        if len(self.item_slices) > 1:
            raise asked.refusal(
                f"the work-items reduce parts of {len(self.item_slices)} dims",
                "the parts of one are added up in memory of the workgroup",
                "slice the longest one only",
            )
        if self.atomic and len(self.slices) != 1:
            raise asked.refusal(
                f"atomic=True with {len(self.slices)} sliced dims",
                "what is added as it comes are the slices of one",
                "slice one dim, or leave atomic out",
            )
        if self.item_slices and asked.config.product.together(asked.machine) > 1:
            raise asked.refusal(
                "the work-items reduce parts, and multiply matrices",
                "what a subgroup holds is not added up by others",
                "leave reduction.item_slices out",
            )

    def check_fused(self, asked: Asked) -> None:
        """Refuses dims to be fused that are not reduced, or too few of them. (`Asked` is the
        contraction before its dims are combined.)"""
        wrong = [dim for dim in self.fused if dim not in asked.roles.k]
        if wrong or len(self.fused) == 1:
            raise asked.refusal(
                f"reduction.fused={self.fused!r}",
                f"{wrong[0]!r} is no reduced dim" if wrong else "one dim is one already",
                "name two or more of " + ", ".join(asked.roles.k),
            )

    # Its terms of the cost.

    def depth(self, work: Work) -> int:
        """Elements of the reduction in a step."""
        return math.prod(self.step.get(d, 1) for d in work.parts.k)

    def added_up(self, work: Work, machine: Machine) -> float:
        """Seconds of what comes after: parts are read again, in a launch of its own."""
        if self.parts == 1:
            return 0.0
        rates = machine.peak_rates
        parts, results = self.parts * work.results * work.total, work.results * work.result
        near = rates.near * rates.clock * NEAR
        speed = near if parts <= KEPT * machine.caches[-1] else rates.memory * MEMORY
        return rates.launch + parts / speed + results / (rates.memory * MEMORY)
