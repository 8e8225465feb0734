"""Which computes of a kernel share loops, and over which of their dims.

A nest takes computes that follow one another, as long as they share a dim
(`schedule.queries.shared_dims`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.ir.stmt import Compute
from tilewright.recipes.roles import extents
from tilewright.recipes.sizes import bytes_of, steps_of
from tilewright.schedule.queries.place import views_of
from tilewright.schedule.queries.shared_dims import same_dims, shared_dims


@dataclass(frozen=True)
class Nest:
    """Computes that follow one another, and the dims that they share: of each level, outermost
    first, the name of the dim in each compute."""

    computes: tuple[Compute, ...]
    levels: tuple[tuple[str, ...], ...]

    @property
    def dims(self) -> dict[str, list[str]]:
        """The shared dims of each compute."""
        return {c.name: [each[n] for each in self.levels] for n, c in enumerate(self.computes)}

    def pieces(self, columns: int) -> int:
        """How many tiles there are, of rows, or of so many columns."""
        near = contiguous_level(self) if self.levels else None
        return prod(
            -(-size // columns) if n == near else size for n, size in enumerate(self.extents)
        )

    @property
    def extents(self) -> tuple[int, ...]:
        """How long the levels are."""
        return tuple(extents(self.computes[0])[each[0]] for each in self.levels)


def nests(computes: Sequence[Compute], columns: int, parts: int) -> list[Nest]:
    """All of ``computes`` in nests, in order. One takes the next compute if that leaves as many
    pieces of work as either has by itself, or ``parts``, which is enough; of neighbours in memory,
    ``columns`` are one piece."""
    same = same_dims(computes)

    def nest(members: Sequence[int]) -> Nest:
        levels = shared_dims(computes, same, members)
        return _ordered(Nest(tuple(computes[n] for n in members), tuple(map(tuple, levels))))

    found: list[Nest] = []
    last: list[int] = []
    for n in range(len(computes)):
        alone = nest([n])
        if found:
            joined = nest([*last, n])
            most = max(found[-1].pieces(columns), alone.pieces(columns))
            if joined.levels and joined.pieces(columns) >= min(parts, most):
                last.append(n)
                found[-1] = joined
                continue
        found.append(alone)
        last = [n]
    return found


def _ordered(nest: Nest) -> Nest:
    """``nest`` with the levels in the order of memory, the longest steps outside."""
    place, steps = _largest(nest)
    levels = sorted(nest.levels, key=lambda each: -(steps[each[place]] or 0))
    return Nest(nest.computes, tuple(levels))


def contiguous_level(nest: Nest) -> int | None:
    """The level along which neighbours in the largest of all arrays are neighbours in memory."""
    place, steps = _largest(nest)
    near = [n for n, names in enumerate(nest.levels) if steps[names[place]] == 1]
    return near[0] if near else None


def _largest(nest: Nest) -> tuple[int, dict[str, int | None]]:
    """The place of the compute that reaches the largest array, and the steps of its dims in it."""
    views = [(n, view) for n, compute in enumerate(nest.computes) for view in views_of(compute)]
    place, view = max(views, key=lambda pair: bytes_of(pair[1].buffer))
    return place, steps_of(nest.computes[place], view)
