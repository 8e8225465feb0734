"""How results leave a workgroup."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from tilewright.machines.machine import Machine
from tilewright.machines.rates import Rates
from tilewright.recipes.parts.forms import Asked, Choices, Count
from tilewright.recipes.parts.product import Product
from tilewright.recipes.parts.work import SHARED

# How much longer a segment takes of which a store fills a part, than a whole one.
_PARTIAL = 4.0


class Storing(Choices):
    """How results leave a workgroup.

    - ``tile``: whether the tile of the result goes through shared memory, so that all
      work-items store it together, neighbours by neighbours: how much of a work-item's tile at a
      time, per dim (dims left out are whole; no dim: each stores what it has). With
      ``item_slices``, as many work-items have to add up as accumulate. Where a unit copies tiles,
      it stores each subgroup's part as boxes, too, while that one goes on
    - ``padding``: elements between the rows of that tile, against bank conflicts
    """

    tile: Mapping[str, int] = field(default_factory=dict)
    padding: Count = 0

    def check(self, asked: Asked) -> None:
        """Refuses pieces that are no parts of what a work-item has, or that a unit does not
        store."""
        item = asked.config.tile.item
        asked.check_names("storing.tile", self.tile, tuple(item))
        for dim, part in self.tile.items():
            if item[dim] % part:
                raise asked.refusal(
                    f"storing.tile={{{dim!r}: {part}}} is no part of what a work-item has",
                    f"it has {item[dim]} along {dim!r}, which go through in equal pieces",
                    "choose a divisor of that",
                )
        product = asked.config.product
        instruction = product.found(asked.machine)
        with_unit = asked.config.staging.by_unit and product.in_memory(asked.machine)
        if not with_unit or instruction is None:
            return  # A unit without such an instruction is refused by `Staging.check_unit`.
        rows = instruction.sizes["m"]
        for dim, part in self.tile.items():
            # Lanes would hold more and less of it.
            if dim != product.lanes and part % rows:
                raise asked.refusal(
                    f"storing.tile={{{dim!r}: {part}}} with "
                    f"product.instruction={product.instruction!r}",
                    f"all lanes hold as much of {rows} rows, which one product has",
                    f"choose a multiple of {rows}, or pieces along {product.lanes!r}",
                )

    # Its terms of the cost. ``width`` is that of an element in bytes.

    def coalesced(self, machine: Machine, product: Product, width: int) -> float:
        """The part of the segments of memory that a store needs, where lanes store what they hold
        of matrices."""
        instruction, segment = product.found(machine), machine.hierarchy.segment
        fragment = instruction.out.fragment if instruction is not None else None
        if fragment is None or not segment or self.tile:
            return 1.0
        return min(1.0, fragment.run("n") * width / segment)

    def scattered(self, machine: Machine, product: Product, width: int) -> float:
        """The time that a byte takes where stores fill parts of segments, as a multiple of that of
        whole segments."""
        part = self.coalesced(machine, product, width)
        return 1.0 if part == 1 else _PARTIAL / part

    def shared(self, item: Mapping[str, int], items: int, width: int) -> int:
        """Bytes of shared memory for tiles of the result that a unit stores from there, beside
        those that it copies; others come when the operands' tiles are done with."""
        return items * math.prod({**item, **self.tile}.values()) * width if self.tile else 0

    def after(
        self, rates: Rates, item: Mapping[str, int], stored: float, segments: float, begun: bool
    ) -> float:
        """Cycles until a workgroup's ``stored`` bytes are on their way, which take as long as so
        many of whole ``segments``. ``begun``: the copies for its next tile have begun."""
        if begun and self.tile:
            # The unit stores the last piece while the next tile is multiplied: others are waited
            # for.
            pieces = math.prod(item[d] // size for d, size in self.tile.items())
            left = stored / rates.port
            return left * (pieces - 1) / pieces + stored / (rates.shared * SHARED)
        return segments / rates.port
