"""Fragments: matrices in the registers of a subgroup's lanes.

A matrix that a subgroup holds together is a private buffer of all its lanes: of the offsets that
its layout gives, the first part is lane 0's, the next as large lane 1's, and so on. So the layout
alone says which lane holds an element, and in which register. Instructions on matrices prescribe a
layout for each operand, of one tile; larger matrices are tiles of it, in further registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.errors import LayoutError
from tilewright.ir.buffer import Layout, LayoutBlock


@dataclass(frozen=True)
class Copies:
    """Replication: lanes hold ``count`` copies of each element. The index ``i`` along ``dim``, of
    which the matrix is independent, uses the copy ``number(i)``: ``i // run % count``."""

    dim: str
    run: int
    count: int

    def number(self, index: Any) -> Any:
        """The copy for ``index``: integers, arrays and expressions give their own kind."""
        return index // self.run % self.count


@dataclass(frozen=True)
class Fragment:
    """One tile of a matrix with the dims ``dims`` in the registers of ``lanes`` lanes.

    With ``copies``, the layout has one more dim: the number of the copy.
    """

    dims: tuple[str, ...]
    lanes: int
    layout: Layout
    copies: Copies | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """The extent of the tile along each dim."""
        rank = len(self.dims) + (self.copies is not None)
        return dict(zip(self.dims, self.layout.padded_shape(rank), strict=False))

    @property
    def neighbours(self) -> str:
        """The dim along which neighbours lie next to each other in a lane; empty without one."""
        last = {b.dim: b for b in self.layout.blocks if b.size > 1}
        dims = [name for dim, name in enumerate(self.dims) if dim in last and last[dim].stride == 1]
        return dims[0] if dims and self.registers > 1 else ""

    @property
    def registers(self) -> int:
        """Elements of the tile that each lane holds."""
        return registers(self.layout, self.lanes)

    def run(self, dim: str) -> int:
        """The number of neighbours along ``dim`` that lie in different lanes, or next to each other
        in one."""
        number, count, held = self.dims.index(dim), 1, self.registers
        for block in reversed(self.layout.blocks):
            if block.dim != number or block.size == 1:
                continue
            if block.stride < held and (block.stride > 1 or count > 1):
                break
            count *= block.size
        return count

    def scaled(self, held: int) -> tuple[LayoutBlock, ...]:
        """The tile's blocks for lanes that hold ``held`` elements each, of several tiles."""
        per_lane = self.registers
        return tuple(
            LayoutBlock(
                b.dim, b.size, b.stride if b.stride < per_lane else b.stride // per_lane * held
            )
            for b in self.layout.blocks
        )

    def tiled(self, shape: Sequence[int]) -> Layout:
        """The layout of a matrix of ``shape``: tiles in rows, the last dim's next to each other.

        Raises `LayoutError` where the shape is no whole number of tiles.
        """
        sizes = tuple(self.sizes.values())
        if len(shape) != len(sizes) or any(n % s for n, s in zip(shape, sizes, strict=True)):
            raise LayoutError(
                f"a matrix of {list(shape)} is no whole number of tiles of {list(sizes)}",
                cure="choose a multiple along each dim",
            )
        counts = [n // s for n, s in zip(shape, sizes, strict=True)]
        tiles: list[LayoutBlock] = []
        stride = self.registers
        for dim in reversed(range(len(counts))):
            tiles.append(LayoutBlock(dim, counts[dim], stride))
            stride *= counts[dim]
        return Layout((*reversed(tiles), *self.scaled(self.registers * prod(counts))))


def registers(layout: Layout, lanes: int) -> int:
    """Elements that each of ``lanes`` lanes holds. Raises `LayoutError` where they differ."""
    if layout.extent % lanes:
        raise LayoutError(
            f"{layout.extent} elements cannot be spread evenly over {lanes} lanes",
            cure="choose a layout of whole fragments",
        )
    return layout.extent // lanes
