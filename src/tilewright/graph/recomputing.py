"""What one group makes for others, computed again by each of these.

    compute hat(i, j): hat[i, j] = (x[i, j] - mean[i]) * scale[i]
    compute rows(i, j): rows[i] add= hat[i, j] * g[i, j]
    compute columns(i, j): columns[j] add= hat[i, j] * h[i, j]       # another group
->  compute hat(i, j): hat[i, j] = (x[i, j] - mean[i]) * scale[i]
    compute rows(i, j): rows[i] add= hat[i, j] * g[i, j]
    compute hat(i, j): hat_2[i, j] = (x[i, j] - mean[i]) * scale[i]  # the other group
    compute columns(i, j): columns[j] add= hat_2[i, j] * h[i, j]

Nobody writes ``hat`` to memory, and ``x`` is read twice. That is so for all groups that read it, or
for none, by the same rules as for what becomes one group (`fusion_rules`), and where the kernels of
these are predicted to take less time: their arithmetic, what they read, and launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from tilewright.graph.fusing import Judge, kernel_of, reached
from tilewright.graph.fusion_rules import Pair, Part, is_plain, refusal
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Kernel, Stmt
from tilewright.ir.visit import replace_buffer
from tilewright.predict.passing import Passing
from tilewright.recipes.roles import bytes_of
from tilewright.schedule.queries.contractions import points
from tilewright.schedule.queries.cutting import Members
from tilewright.schedule.queries.flow import Item, Items, item_of
from tilewright.schedule.queries.place import fresh


@dataclass(frozen=True, eq=False)
class Grouped:
    """The ``items`` of a run in ``groups``; ``local`` are the buffers that no other code sees."""

    items: Items
    local: frozenset[Buffer]
    groups: Sequence[Members]


@dataclass(frozen=True, eq=False)
class _Again:
    """The ``items`` of the group ``maker`` that make ``held``, which each of ``users`` may do."""

    held: Buffer
    items: tuple[int, ...]
    maker: int
    users: tuple[int, ...]


def recomputed(grouped: Grouped, judge: Judge) -> Grouped:
    """``grouped``, with what each group that reads it computes faster than it is read."""
    state = _Recomputing(grouped)
    passing = Passing.on(judge.machine)
    saved = [(state.saved(again, passing), again.held) for again in state.all()]
    for seconds, held in sorted(saved, key=lambda entry: -entry[0]):
        again = state.of(held) if seconds > 0 else None
        if again is None:
            continue
        after, kernels = state.applied(again)
        times = judge.both_ways(kernels, state.kernels((again.maker, *again.users)))
        if times is None:
            continue
        why = f"by each reader: {times[0] * 1e6:.1f} us, once: {times[1] * 1e6:.1f} us"
        pays = times[0] < times[1]
        judge.decide(held.name, "by each reader" if pays else "once", why)
        state = _Recomputing(after) if pays else state
    return state.grouped


class _Recomputing:
    def __init__(self, grouped: Grouped) -> None:
        self.grouped, self.items, self.local = grouped, grouped.items, grouped.local
        self.group_of = {n: g for g, group in enumerate(grouped.groups) for n in group.items}

    def all(self) -> Iterator[_Again]:
        for held in dict.fromkeys(b for item in self.items for b in item.writes):
            again = self.of(held)
            if again is not None:
                yield again

    def of(self, held: Buffer) -> _Again | None:
        """How ``held`` may be made by each group that reads it; None where one of them cannot."""
        touching = self.items.touching(held)
        if held not in self.local or len(touching) < 2:
            return None
        maker = self.group_of[touching[0]]
        users = dict.fromkeys(g for n in touching if (g := self.group_of[n]) != maker)
        if not users or self._contracts(maker):
            return None
        items = self._making(held, maker)
        if not items or not all(self._may(items, held, user) for user in users):
            return None
        return _Again(held, items, maker, tuple(users))

    def _making(self, held: Buffer, maker: int) -> tuple[int, ...]:
        """The items of the group that make ``held`` from what lies in memory, each of them element
        by element; none where there is something else."""
        making: set[int] = set()
        left = [held]
        while left:
            buffer = left.pop()
            n = self._elementwise(buffer)
            inside = n is not None and self.group_of[n] == maker
            # What others read lies in memory anyway.
            inside = inside and (buffer is held or self._is_inner(buffer, maker))
            if n is not None and inside:
                making.add(n)
                left += self.items[n].reads
            elif buffer is held:
                return ()
        return tuple(sorted(making)) if self._lasts(making) else ()

    def _elementwise(self, buffer: Buffer) -> int | None:
        """The one item that writes ``buffer``, if it is elementwise and writes nothing else."""
        writing = [n for n in self.items.touching(buffer) if buffer in self.items[n].writes]
        item = self.items[writing[0]] if len(writing) == 1 else None
        if item is None or not is_plain(item) or item.simple is None or len(item.writes) != 1:
            return None
        return writing[0] if item.simple.combiner is None and buffer not in item.reads else None

    def _is_inner(self, buffer: Buffer, group: int) -> bool:
        inside = all(self.group_of[n] == group for n in self.items.touching(buffer))
        return inside and buffer in self.local

    def _lasts(self, making: Set[int]) -> bool:
        """Whether what ``making`` reads is still there later."""
        return all(
            k < n or buffer not in self.items[k].writes
            for n in making
            for buffer in self.items[n].reads
            for k in self.items.touching(buffer)
        )

    def _contracts(self, group: int) -> bool:
        members = self.grouped.groups[group]
        return members.contraction is not None or any(points(self.items[n]) for n in members.items)

    def _may(self, making: Sequence[int], held: Buffer, user: int) -> bool:
        """Whether what makes ``held`` and the group ``user`` may be one kernel."""
        if self._contracts(user):
            return False
        producer, consumer = (
            Part(tuple(self.items[n] for n in members))
            for members in (making, self.grouped.groups[user].items)
        )
        return refusal(Pair(producer, consumer, frozenset({held}))) is None

    def saved(self, again: _Again, passing: Passing) -> float:
        """Seconds that memory takes less, roughly."""
        items = [self.items[n] for n in again.items]
        sources = frozenset[Buffer]().union(*(item.reads for item in items))
        sources -= frozenset[Buffer]().union(*(item.writes for item in items))

        def seconds(buffer: Buffer, touching: Sequence[Item]) -> float:
            passed = max(reached(item, buffer) for item in touching if buffer in item.touches)
            return passing.seconds(bytes_of(buffer), passed)

        saved = seconds(again.held, items)
        for user in again.users:
            members = [self.items[n] for n in self.grouped.groups[user].items]
            touched = frozenset[Buffer]().union(*(item.touches for item in members))
            saved += seconds(again.held, members)
            new = sorted(sources - touched, key=lambda buffer: buffer.name)
            saved -= sum(seconds(buffer, items) for buffer in new)
        kept = sorted((b for b in sources if self._is_inner(b, again.maker)), key=lambda b: b.name)
        saved -= sum(seconds(buffer, items) for buffer in kept)
        return saved + (0 if self._left(again) else passing.launch)

    def _needed(self, again: _Again) -> set[int]:
        """Those of the items that the group still needs for itself."""
        needed: set[int] = set()
        for n in reversed(again.items):
            (buffer,) = self.items[n].writes
            readers = (k for k in self.items.touching(buffer) if k != n)
            inside = (k for k in readers if self.group_of[k] == again.maker)
            if any(k not in again.items or k in needed for k in inside):
                needed.add(n)
        return needed

    def _left(self, again: _Again) -> set[int]:
        """What the group that made it still does."""
        members = self.grouped.groups[again.maker].items
        return {*members}.difference(again.items) | self._needed(again)

    def applied(self, again: _Again) -> tuple[Grouped, list[Kernel]]:
        """All groups with what makes ``again.held`` in each that reads it, and the kernels of those
        that changed."""
        left = self._left(again)
        names = {buffer.name for item in self.items for buffer in item.touches}
        new: dict[int, dict[Buffer, Buffer]] = {user: {} for user in again.users}
        for user in again.users:
            for n in again.items:
                (buffer,) = self.items[n].writes
                new[user][buffer] = replace(buffer, name=fresh(buffer.name, names))
                names.add(new[user][buffer].name)
        items: list[Item] = []
        places: dict[int, list[int]] = {g: [] for g in range(len(self.grouped.groups))}
        for n, item in enumerate(self.items):
            group = self.group_of[n]
            if n in again.items:
                for user in again.users:
                    places[user].append(len(items))
                    items.append(_renamed(item, new[user]))
                if n not in left:
                    continue
            places[group].append(len(items))
            items.append(_renamed(item, new[group]) if group in new else item)
        local = self.local.union(*(copies.values() for copies in new.values()))
        contractions = [group.contraction for group in self.grouped.groups]
        changed = [g for g in (again.maker, *again.users) if places[g]]
        groups = [
            Members(tuple(at), contraction)
            for at, contraction in zip(places.values(), contractions, strict=True)
            if at
        ]
        after = Grouped(Items(items), local, groups)
        return after, [kernel_of(places[g], after.items, local) for g in changed]

    def kernels(self, groups: Sequence[int]) -> list[Kernel]:
        """The kernels of ``groups`` as they are."""
        members = (self.grouped.groups[g].items for g in groups)
        return [kernel_of(items, self.items, self.local) for items in members]


def _renamed(item: Item, new: dict[Buffer, Buffer]) -> Item:
    """``item`` on other buffers, where it touches one of ``new``."""
    stmt: Stmt = item.stmt
    for old in sorted(item.touches & new.keys(), key=lambda buffer: buffer.name):
        stmt = replace_buffer(stmt, old, new[old])
    return item if stmt is item.stmt else item_of(stmt)
