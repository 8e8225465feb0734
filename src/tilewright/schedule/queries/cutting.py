"""Which statements of a kernel or a graph run as one group: the simple rule.

A contraction is a group, with what its sums begin with, its prologues and the elementwise computes
after it (`contractions`); two of them are one where what stands between them is large (`chained`).
What else there is makes groups in one of two ways. In a kernel that is scheduled group by group,
statements in a row between contractions are one. In a graph, whose groups become kernels, they are
*chains*: computes that hand on what they make by a dim that all of them share, as a norm or a
softmax does; or one statement of another kind. Computes without operands, which fill a buffer, go
where it is used first then. No array is read or written in another order than before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import addressing
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Compute
from tilewright.schedule.queries.chained import chained
from tilewright.schedule.queries.contractions import Contraction, contractions
from tilewright.schedule.queries.flow import Item
from tilewright.schedule.queries.shared_dims import share_a_dim

# Computes in one chain: more take longer to schedule than they save.
MOST_IN_CHAIN = 24


@dataclass(frozen=True)
class Members:
    """The positions of the items of a group, in the order in which they run, and the contraction
    that it is, if any: a prologue of that may be in a chain before. ``open``: it is whatever stood
    in a row."""

    items: tuple[int, ...]
    contraction: Contraction | None
    open: bool = False


@dataclass(frozen=True)
class _Whole:
    """Items that are one group, which runs where the last of them did: a contraction, or products
    that are chained."""

    items: frozenset[int]
    contraction: Contraction | None = None


def groups_of(
    items: Sequence[Item],
    local: frozenset[Buffer],
    names: Set[str],
    *,
    chains: bool,
    products: bool,
    wanted: Callable[[Sequence[tuple[int, ...]]], Sequence[bool]] | None = None,
) -> list[Members]:
    """The items of each group, in the order in which the groups run: what is in no contraction in
    ``chains``, or else in rows. ``local`` are the buffers that no other code sees, ``names`` those
    of the others. With ``products``, those that are chained (`chained`) are one group; ``wanted``
    says of all such chains which are."""
    linked = [chain.items for chain in chained(items, local)] if products else []
    kept = wanted(linked) if wanted is not None and linked else [True] * len(linked)
    whole = [_Whole(frozenset(chain)) for chain, keeps in zip(linked, kept, strict=True) if keeps]
    taken = frozenset[int]().union(*(group.items for group in whole))
    result = contractions(items, local, names, taken)
    whole += [_Whole(contraction.members, contraction) for contraction in result]
    return _in_chains(items, whole) if chains else _in_rows(items, whole)


def _in_rows(items: Sequence[Item], whole: Sequence[_Whole]) -> list[Members]:
    """Each of ``whole`` runs where its last item did."""
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


@dataclass
class _Unit:
    """Items that become a group; ``open``: others may join after them."""

    members: list[int]
    open: bool
    contraction: Contraction | None = None
    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)

    def take(self, n: int, item: Item) -> None:
        self.members.append(n)
        self.reads |= item.reads
        self.writes |= item.writes


def _in_chains(items: Sequence[Item], whole: Sequence[_Whole]) -> list[Members]:
    spans = [(set(group.items), group.contraction) for group in whole]
    of = {n: group for group in spans for n in group[0]}
    units: list[_Unit] = []
    waiting: list[int] = []
    for n, item in enumerate(items):
        members, contraction = of.get(n, (None, None))
        if members is not None and n < max(members):
            joins = contraction is not None and _is_prologue(n, members, items)
            if joins and _place([n], items, units, joining=True):
                members.remove(n)
        elif members is not None:
            first = [k for k in waiting if any(_meet(items[k], items[m]) for m in members)]
            waiting = [k for k in waiting if k not in first]
            units += [_unit([k], items, opened=True) for k in first]
            units.append(_unit(sorted(members), items, contraction=contraction))
        elif _fills(item):
            waiting.append(n)
        else:
            joining = [k for k in waiting if _meet(items[k], item)]
            waiting = [k for k in waiting if k not in joining]
            _place([*joining, n], items, units)
    units += [_unit([k], items) for k in waiting]
    return [Members(tuple(unit.members), unit.contraction) for unit in units]


def _is_prologue(n: int, members: Set[int], items: Sequence[Item]) -> bool:
    """Whether item ``n`` makes what the others read, and none adds to: before the sum, and before
    all members that stay."""
    earlier = [items[k] for k in members if k < n]
    if any(_adds(item) or not items[n].may_pass(item) for item in earlier):
        return False
    others = frozenset[Buffer]().union(*(items[k].writes for k in members if k != n))
    compute = items[n].simple
    plain = compute is not None and compute.combiner is None
    return plain and bool(items[n].reads) and not items[n].writes & others


def _adds(item: Item) -> bool:
    return item.simple is not None and item.simple.combiner is not None


def _unit(
    members: Sequence[int],
    items: Sequence[Item],
    *,
    opened: bool = False,
    contraction: Contraction | None = None,
) -> _Unit:
    unit = _Unit([], opened, contraction)
    for n in members:
        unit.take(n, items[n])
    return unit


def _meet(one: Item, other: Item) -> bool:
    return bool(one.touches & other.touches)


def _fills(item: Item) -> bool:
    """Whether ``item`` gives a buffer its first contents, and depends on nothing."""
    return not item.reads and _is_plain(item)


def _is_plain(item: Item) -> bool:
    compute = item.stmt
    if not isinstance(compute, Compute) or addressing(compute):
        return False
    if compute.instruction or compute.completion is not None:
        return False
    # Sizes of a simple compute are those that a call passes, if no numbers.
    sized = item.simple is not None
    return sized or all(isinstance(dim.extent, Const) for dim in compute.dims)


def _place(
    new: Sequence[int], items: Sequence[Item], units: list[_Unit], *, joining: bool = False
) -> bool:
    """Puts ``new``, which belong together, after the unit that hands them something, if they may
    run right after it; otherwise into one of their own, but not where they are ``joining`` only.
    Whether they have a place."""
    plain = all(_is_plain(items[n]) for n in new)
    if plain:
        reads = frozenset[Buffer]().union(*(items[n].reads for n in new))
        writes = frozenset[Buffer]().union(*(items[n].writes for n in new))
        for unit in reversed(units):
            if unit.open and reads & unit.writes and _shares(unit, new, items):
                for n in new:
                    unit.take(n, items[n])
                return True
            if reads & unit.writes or writes & (unit.reads | unit.writes):
                break
    if not joining:
        units.append(_unit(new, items, opened=plain))
    return not joining


def _shares(unit: _Unit, new: Sequence[int], items: Sequence[Item]) -> bool:
    """Whether all computes would share a dim."""
    members = [*unit.members, *new]
    computes = [stmt for n in members if isinstance(stmt := items[n].stmt, Compute)]
    return len(members) <= MOST_IN_CHAIN and share_a_dim(computes)
