"""How large the tiles of the result are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from tilewright.machines.machine import Machine
from tilewright.recipes.parts.forms import Asked, Choices
from tilewright.recipes.parts.product import Product
from tilewright.recipes.parts.work import Work

# Bytes that one work-item loads from shared memory at once.
_WIDEST = 16


class Tile(Choices):
    """Tiles of the result, per dim; dims left out are 1.

    - ``group``: that of a workgroup
    - ``item``: that of a work-item inside it (of a subgroup, where it multiplies matrices)
    """

    group: Mapping[str, int] = field(default_factory=dict)
    item: Mapping[str, int] = field(default_factory=dict)

    @property
    def items(self) -> int:
        """The items' tiles in a workgroup's."""
        return math.prod(size // self.item.get(dim, 1) for dim, size in self.group.items())

    def check(self, asked: Asked) -> None:
        """Refuses dims that the op does not have, and tiles that are no multiples of others."""
        asked.check_names("tile.group", self.group, asked.roles.kept)
        asked.check_names("tile.item", self.item, asked.roles.kept)
        for dim, part in self.item.items():
            size = self.group.get(dim, 1)
            if size % part:
                raise asked.refusal(
                    f"a tile of {size} along {dim!r} is no whole number of work-items' tiles",
                    f"each work-item takes {part}",
                    "make the one a multiple of the other",
                )

    def check_count(self, asked: Asked) -> None:
        """Refuses more or fewer work-items than a workgroup of the machine may have."""
        config, machine = asked.config, asked.machine
        items = config.items + config.staging.by_unit
        items *= config.product.together(machine)
        if items > machine.hierarchy.workgroup:
            raise asked.refusal(
                f"a workgroup of {items} work-items",
                f"{machine.name} has at most {machine.hierarchy.workgroup}",
                "make the group's tile smaller, or the items' larger",
            )
        if items < 2:
            raise asked.refusal(
                "a workgroup of one work-item",
                "it has nobody to share memory with",
                "make the group's tile a multiple of the item's, or use a ContractionConfig",
            )

    # Its terms of the cost.

    def results(self, work: Work) -> int:
        """Elements of the result in a workgroup's tile."""
        return math.prod(self.group.get(d, 1) for d in work.parts.kept)

    def read(self, work: Work, machine: Machine, product: Product) -> float:
        """Bytes that a work-item reads from shared memory for each element of the reduction; what
        lanes of a subgroup read together counts once."""
        rates, hierarchy = machine.peak_rates, machine.hierarchy
        lanes, rows = product.together(machine), {product.lanes: 1, **self.item}
        if lanes > 1:
            # Rows of one operand are its own even where it is the same for all of them.
            rows_of = zip(work.operands, (work.parts.m, work.parts.n), strict=True)
            width = {d: o.bytes for o, dims in rows_of for d in (*dims, *o.dims)}
            return sum(size * width[d] for d, size in rows.items()) / lanes
        together = product.neighbours(machine)
        widths = {d: product.width(work, machine, o) for o in work.operands for d in o.dims}
        left, moved = hierarchy.subgroup, 0.0
        for dim in (product.lanes, *(d for d in rows if d != product.lanes)):
            beside = min(left, self.group.get(dim, 1) // rows[dim])
            left //= max(1, beside)
            here = rows[dim] * widths.get(dim, work.total) * together
            moved += max(beside * here, rates.shared * -(-here // _WIDEST))
        return moved / hierarchy.subgroup / together
