"""Units that copy tiles between global memory and a workgroup's, while its program goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.facts.scope import Facts
from tilewright.ir.buffer import Swizzle
from tilewright.ir.stmt import Compute


@dataclass(frozen=True)
class TileCopy:
    """An instruction that has a tile copied. ``refuses`` says why it does not take a compute where
    facts hold (None: it does); the tile begins at a multiple of ``alignment`` bytes of the
    workgroup's memory."""

    name: str
    refuses: Callable[[Compute, Facts], str | None]
    alignment: int


@dataclass(frozen=True)
class TileUnit:
    """A unit that loads tiles and stores them: at most ``most`` elements along a dim, in rows of
    so many bytes (``rows``, the longest first), of which ``swizzle`` gives the swizzle, by the
    bytes of a row and of an element."""

    load: TileCopy
    store: TileCopy
    most: int
    rows: tuple[int, ...]
    swizzle: Callable[[int, int], Swizzle]
