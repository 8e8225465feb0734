"""Which statements of a kernel run as one group: the simple rule.

A contraction is a group, with what its sums begin with, its prologues and the elementwise computes
after it (`contractions`); two of them are one where what stands between them is large (`chained`).
In a kernel that is scheduled group by group, statements in a row between them are one; in a graph,
`graph.fusing` says what becomes of these. No array is read or written in another order than before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from tilewright.ir.buffer import Buffer
from tilewright.schedule.queries.chained import chained
from tilewright.schedule.queries.contractions import Contraction, contractions
from tilewright.schedule.queries.flow import Item


@dataclass(frozen=True)
class Members:
    """The positions of the items of a group, in the order in which they run, and the contraction
    that it is, if any: in a graph, a prologue of that may be in a group before. ``open``: it is
    whatever stood in a row."""

    items: tuple[int, ...]
    contraction: Contraction | None
    open: bool = False


@dataclass(frozen=True)
class Whole:
    """Items that are one group, which runs where the last of them did: a contraction, or products
    that are chained."""

    items: frozenset[int]
    contraction: Contraction | None = None


def products_of(
    items: Sequence[Item],
    local: frozenset[Buffer],
    names: Set[str],
    *,
    chains: bool,
    wanted: Callable[[Sequence[tuple[int, ...]]], Sequence[bool]] | None = None,
) -> list[Whole]:
    """The contractions among ``items``, and, with ``chains``, products that are chained, if they
    are one group: ``wanted`` says of all such chains which are. ``local`` are the buffers that no
    other code sees, ``names`` those of the others."""
    linked = [chain.items for chain in chained(items, local)] if chains else []
    kept = wanted(linked) if wanted is not None and linked else [True] * len(linked)
    whole = [Whole(frozenset(chain)) for chain, keeps in zip(linked, kept, strict=True) if keeps]
    taken = frozenset[int]().union(*(group.items for group in whole))
    result = contractions(items, local, names, taken)
    return [*whole, *(Whole(contraction.members, contraction) for contraction in result)]


def in_rows(items: Sequence[Item], whole: Sequence[Whole]) -> list[Members]:
    """The items of each group, in the order in which the groups run: each of ``whole`` where its
    last item did, and what stands in a row between them."""
    ends = {max(group.items): group for group in whole}
    taken = frozenset[int]().union(*(group.items for group in whole))
    groups: list[Members] = []
    for n in range(len(items)):
        if n in ends:
            groups.append(Members(tuple(sorted(ends[n].items)), ends[n].contraction))
        elif n not in taken:
            row = groups.pop().items if groups and groups[-1].open else ()
            groups.append(Members((*row, n), None, open=True))
    return groups
