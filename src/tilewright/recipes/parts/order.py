"""Which workgroup takes which tiles, and in which order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from tilewright.machines.machine import Machine
from tilewright.recipes.parts.forms import Asked, Choices, Count
from tilewright.recipes.parts.staging import COPY_UNIT
from tilewright.recipes.parts.work import KEPT, Work
from tilewright.recipes.roles import taps_of

# How many waves there are of how many workgroups, and whether these are persistent ones whose
# copies for a further tile have begun.
Wave: TypeAlias = tuple[int, int, bool]


class Order(Choices):
    """Which workgroup takes which tiles, and in which order.

    - ``loops``: the workgroups' loops over tiles, outermost first
    - ``raster``: rows of the bands in which the tiles of M and N are taken (1: row by row)
    - ``persistent``: workgroups that take all tiles, several each (0: one for each tile). Where a
      unit copies tiles, the next one's first copies run while this one is stored
    - ``stream_k``: workgroups that share the steps of all tiles evenly, so that a share may begin
      and end inside a tile (0: none, each tile is one workgroup's). A tile that is cut so is added
      up afterwards, in order
    - ``cluster``: so many workgroups along a dim (one) are a cluster: what they all read, each
      copies a part of into the memory of all. Where a unit copies tiles
    """

    loops: tuple[str, ...] = ()
    raster: int = 1
    persistent: Count = 0
    stream_k: Count = 0
    cluster: Mapping[str, int] = field(default_factory=dict)

    def check(self, asked: Asked) -> None:
        """Refuses dims that the op does not have, and workgroups without work."""
        config = asked.config
        asked.check_names("order.cluster", self.cluster, tuple(config.tile.group))
        asked.check_names("order.loops", self.loops, asked.roles.kept)
        if self.stream_k:
            self._check_stream(asked)
        if self.cluster:
            self._check_cluster(asked)

    def _check_stream(self, asked: Asked) -> None:
        reduction = asked.config.reduction
        others: dict[str, object] = {
            "reduction.slices": reduction.slices,
            "reduction.item_slices": reduction.item_slices,
            "order.persistent": self.persistent,
        }
        for name, value in others.items():
            if value:
                raise asked.refusal(
                    f"order.stream_k={self.stream_k} with {name}={value!r}",
                    "both say how workgroups divide the work",
                    f"leave stream_k or {name} out",
                )
        inside = taps_of(asked.main) if asked.config.staging.halo else []
        if reduction.steps(asked.sizes, [d for d in asked.roles.k if d not in inside]) < 2:
            raise asked.refusal(
                f"order.stream_k={self.stream_k} with tiles of one step",
                "shares that end inside a tile end between its steps",
                "make the steps smaller, or choose persistent",
            )

    def _check_cluster(self, asked: Asked) -> None:
        """Refuses clusters that the machine does not have, that share nothing, or that have
        workgroups without work."""
        config, machine = asked.config, asked.machine
        most = machine.hierarchy.cluster
        if math.prod(self.cluster.values()) > most:
            raise asked.refusal(
                f"order.cluster={self.cluster!r}",
                f"{machine.name} has clusters of at most {most} workgroups"
                if most > 1
                else f"{machine.name} has no clusters",
                "choose a smaller one, or leave cluster out",
            )
        if len(self.cluster) > 1 or not config.staging.by_unit:
            raise asked.refusal(
                f"order.cluster={self.cluster!r} with staging.fill={config.staging.fill!r}",
                "the workgroups of a cluster lie along one dim, and share tiles that are copied "
                "whole",
                f"name one dim, and choose fill={COPY_UNIT!r}, or leave cluster out",
            )
        ((dim, count),) = self.cluster.items()
        tiles = -(-asked.sizes[dim] // config.tile.group[dim])
        if tiles < count:
            raise asked.refusal(
                f"order.cluster={self.cluster!r} along {dim!r}, of which there are {tiles} tiles",
                f"each of the {count} workgroups has one",
                "choose a smaller cluster, or a smaller tile, or leave cluster out",
            )

    # Its terms of the cost. ``group`` is the tile of a workgroup, of the dims that have one.

    def groups(self, work: Work, group: Mapping[str, int]) -> int:
        """How many workgroups there are for tiles of the result."""
        count = 1
        for d in work.parts.kept:
            whole = self.cluster.get(d, 1)
            count *= -(-work.sizes[d] // (group.get(d, 1) * whole)) * whole
        return count

    def fetched(self, work: Work, loaded: tuple[int, ...]) -> float:
        """What of the bytes ``loaded`` of A and B comes from L2, for one workgroup."""
        return sum(
            size / math.prod(count for d, count in self.cluster.items() if d not in o.dims)
            for o, size in zip(work.operands, loaded, strict=True)
        )

    def waves(self, count: int, concurrent: int, ahead: bool) -> tuple[Wave, ...]:
        """In which waves so many workgroups run, of which so many run at a time. Each persistent
        one takes as many tiles as there would be waves; ``ahead``: it copies ahead across them."""
        whole, rest = divmod(count, concurrent)
        begun = bool(self.persistent) and ahead
        first = min(whole, 1)
        return (
            (first, concurrent, False),
            (whole - first, concurrent, begun),
            (1, rest, begun and whole > 0),
        )

    def far(
        self, work: Work, machine: Machine, group: Mapping[str, int], slices: int, concurrent: int
    ) -> float:
        """Bytes of A and B that come from memory, of which L2 keeps what a wave reads again."""
        counts = {d: -(-work.sizes[d] // group.get(d, 1)) for d in self.loops}
        grid = [d for d in self.loops if counts[d] > 1][-2:]
        rows, columns = [1, 1, *(counts[d] for d in grid)][-2:]
        band = min(rows, self.raster)
        across = min(columns, -(-concurrent // band))
        down = min(rows, max(band, -(-concurrent // columns)))
        count = math.prod(counts.values())
        waves = max(1.0, count / (down * across))
        room = KEPT * machine.caches[-1]
        # Tiles of a wave along each dim: of those outside of the last two, one.
        here = dict(zip(grid, (down, across)[2 - len(grid) :], strict=True))
        wave: list[float] = []
        least: list[float] = []
        for operand in work.operands:
            read = math.prod(work.sizes[d] for d in operand.dims) * operand.bytes
            least.append(float(min(operand.tensor, read)))
            shares = [here.get(d, 1) / counts[d] for d in operand.dims if d in counts]
            wave.append(least[-1] * math.prod(shares))
        total = 0.0
        for operand, once, whole in zip(work.operands, wave, least, strict=True):
            # What the next wave reads, too, is still there if both fit.
            stays = sum(wave) / slices <= room and (not grid or grid[-1] not in operand.dims)
            total += whole if stays or whole <= room else max(whole, once * waves)
        return total
