"""Sums of products chained through a normalization of rows, as attention is.

    scores[i, j] add= q[i, d] * k[j, d]
    most[i] max= scores[i, j]
    weights[i, j] = exp(scores[i, j] - most[i])
    total[i] add= weights[i, j]
    sums[i, e] add= weights[i, j] * v[j, e]
    result[i, e] = sums[i, e] / total[i]

What one product hands to the other, here ``scores``, is as large as both sums of products are long,
and only rows of it are needed at a time: of all computes that share the rows, here ``i``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from math import prod

from tilewright.facts.usual import usual
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import as_expr
from tilewright.ir.stmt import Compute
from tilewright.layout.roles import Role, roles
from tilewright.schedule.queries.contractions import points
from tilewright.schedule.queries.crossed import Crossed, Crossings
from tilewright.schedule.queries.flow import Item, Items
from tilewright.schedule.queries.shared_dims import same_dims, shared_dims

# Bytes between products that stay in a cache, whatever runs in which order.
_SMALL = 1 << 17


@dataclass(frozen=True)
class Chain:
    """The positions of the items, in order, and the dims that their computes share: of each level,
    its name in each compute. ``rows`` has the levels of which one factor of the first product has
    no part: the others have factors of their own."""

    items: tuple[int, ...]
    levels: tuple[tuple[str, ...], ...]
    rows: tuple[int, ...]


def chained(items: Sequence[Item], local: Set[Buffer]) -> list[Chain | Crossed]:
    """Those among ``items``, in order; ``local`` are the buffers that nothing else sees."""
    items = Items(items)
    crossings = Crossings(items, local)
    chains: list[Chain | Crossed] = []
    taken: set[int] = set()
    for first, item in enumerate(items):
        if first in taken or not points(item) or _bytes(item) <= _SMALL:
            continue
        chain = _Grown(items, local, first).chain() or crossings.at(first)
        if chain is not None and not taken & set(chain.items):
            chains.append(chain)
            taken |= set(chain.items)
    return chains


def _bytes(item: Item) -> int:
    """How much the compute's results take."""
    assert item.simple is not None
    written = item.simple.out.buffer
    return prod(usual(as_expr(size)) for size in written.sizes) * written.dtype.bytes


class _Grown:
    """The items that read what a sum of products makes, as far as they share its rows."""

    def __init__(self, items: Items, local: Set[Buffer], first: int) -> None:
        self.items, self.local = items, local
        self.members = [first]
        self.written = set(items[first].writes)
        self.normalized = False
        self.second: int | None = None
        # Whether something else touches what members made, after the second product.
        self.passed = False
        self.levels: list[list[str]] = []

    def chain(self) -> Chain | None:
        n = self._next(self.members[0])
        while n is not None and self._take(n):
            n = self._next(n)
        if self.second is None or n is not None:
            return None
        self.members = sorted((*self._first_values(), *self.members))
        levels = self._levels(self.members)
        if not levels or not self._is_apart() or not self._together():
            return None
        return Chain(tuple(self.members), tuple(map(tuple, levels)), self._rows(levels))

    def _next(self, after: int) -> int | None:
        """The first item ``after`` that one that touches what the members made."""
        places = (self.items.touching(buffer) for buffer in self.written)
        later = (place[at] for place in places if (at := bisect_right(place, after)) < len(place))
        return min(later, default=None)

    def _take(self, n: int) -> bool:
        """Whether there may be a chain with item ``n``, which touches what the members made; it
        joins them, if it is one of them."""
        compute, second = self.items[n].simple, self.second
        reduces = compute is not None and compute.combiner is not None
        if compute is None or (reduces and second is not None):
            self.passed = True
            return second is not None
        product = reduces and bool(points(self.items[n]))
        # One before the normalization begins a chain of its own.
        if product and not (self.normalized and self._is_factor(compute)):
            return False
        levels = self._levels([*self.members, n])
        if not levels or (second is not None and len(levels) != len(self.levels)):
            self.passed = True
            return second is not None
        if self.passed:
            return False  # all members run where the last of them does
        if product:
            self.second = n
        self.normalized = self.normalized or reduces
        self.levels = levels
        self.members.append(n)
        self.written |= self.items[n].writes
        return True

    def _is_factor(self, compute: Compute) -> bool:
        return any(o.view.buffer in self.written for o in compute.operands[:2])

    def _levels(self, members: Sequence[int]) -> list[list[str]]:
        computes = self._computes(members)
        return shared_dims(computes, same_dims(computes), range(len(computes)))

    def _computes(self, members: Sequence[int]) -> list[Compute]:
        return [c for n in members if (c := self.items[n].simple) is not None]

    def _first_values(self) -> Iterator[int]:
        """The items before the members that give what these add to its first contents."""
        for n in sorted({n for buffer in self.written for n in self.items.touching(buffer)}):
            if n >= self.members[-1]:
                break
            item = self.items[n]
            begins = bool(item.writes) and item.writes <= self.written and not item.reads
            if begins and n not in self.members and item.simple is not None:
                yield n

    def _is_apart(self) -> bool:
        """Whether nothing else touches what the members make, but for the results behind the second
        product."""
        assert self.second is not None
        results = {b for n in self.members if n >= self.second for b in self.items[n].writes}
        inner = self.written - results
        if not inner <= self.local:
            return False
        # Nothing between reads results; what comes after may.
        early = (n for b in results for n in self.items.touching(b) if n < self.second)
        touching = {n for b in inner for n in self.items.touching(b)}.union(early)
        return touching <= set(self.members)

    def _together(self) -> bool:
        """Whether all members may run where the last of them does."""
        members = frozenset(self.members)
        return all(self.items.may_move(n, self.members[-1], members) for n in self.members)

    def _rows(self, levels: Sequence[Sequence[str]]) -> tuple[int, ...]:
        """The levels along which a factor of the first product stays the same."""
        place = next(n for n, at in enumerate(self.members) if points(self.items[at]))
        compute = self.items[self.members[place]].simple
        assert compute is not None
        parts = roles(compute)
        return tuple(n for n, names in enumerate(levels) if parts[names[place]] in (Role.M, Role.N))
