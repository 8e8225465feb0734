"""Which statements of a graph are one kernel: a queue of pairs, the one that saves the most first.

Each statement begins as a unit of its own; a product, or several in a chain, as one. Two units that
touch the same memory may become one: that saves a launch, and bytes that pass between them. The
pair that saves the most is looked at first, and becomes one unless a rule keeps it apart
(`fusion_rules`). Then its neighbours' pairs have other figures. Where it is not clear that one
kernel is faster, as its computes share no loop, or one that is too short for all threads, both ways
are predicted in full.

Units stay in an order in which they can run. A unit that joins another may move those between them,
that need one of the two or are needed by the other.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from math import fsum, prod
from typing import Protocol

from tilewright.graph.canonical import canonical
from tilewright.graph.fusion_rules import Pair, Part, is_plain, refusal
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import block
from tilewright.machines.machine import Machine
from tilewright.predict.passing import Passing
from tilewright.recipes.roles import bytes_of, extents
from tilewright.schedule.queries.contractions import Contraction
from tilewright.schedule.queries.cutting import Members, Whole
from tilewright.schedule.queries.flow import Item, Items, item_of
from tilewright.schedule.queries.place import views_of

# Arrays that a loop reads or writes side by side, from which on it is not clear that it may be one.
# What is smaller than the largest by as much stays in a cache, and makes it no less clear.
_STREAMS = 16
# Units that may have to move for two that become one, and users of a buffer that are counted.
_MOST_BETWEEN = 64


class Judge(Protocol):
    """Who predicts times: the seconds of kernels, and of others that do the same; None where there
    is no prediction. What was decided it keeps."""

    @property
    def machine(self) -> Machine: ...

    def both_ways(
        self, one: Sequence[Kernel], other: Sequence[Kernel]
    ) -> tuple[float, float] | None: ...

    def decide(self, what: str, how: str, why: str) -> None: ...


@dataclass(eq=False)
class _Unit:
    """Items that become a group. ``rank`` says when it runs, ``before`` and ``after`` are the units
    that have to run before and after it."""

    members: tuple[int, ...]
    rank: float
    part: Part
    contraction: Contraction | None = None
    before: dict[_Unit, None] = field(default_factory=dict)
    after: dict[_Unit, None] = field(default_factory=dict)
    reads: frozenset[Buffer] = field(init=False)
    writes: frozenset[Buffer] = field(init=False)

    def __post_init__(self) -> None:
        self.reads = frozenset[Buffer]().union(*(item.reads for item in self.part.items))
        self.writes = frozenset[Buffer]().union(*(item.writes for item in self.part.items))

    @property
    def touches(self) -> frozenset[Buffer]:
        """What it reads or writes."""
        return self.reads | self.writes


@dataclass(order=True)
class _Entry:
    """A pair in the queue: those that save most first, then in the order of the text. ``loosely``:
    no loop surrounds both."""

    saves: float
    place: tuple[int, int]
    producer: _Unit = field(compare=False)
    consumer: _Unit = field(compare=False)
    loosely: bool = field(compare=False, default=False)


def fused(
    items: Items, local: Set[Buffer], whole: Sequence[Whole], judge: Judge | None
) -> list[Members]:
    """The ``items`` of a run in groups; ``local`` are the buffers that no other code sees,
    ``whole`` the products. Without a ``judge``, only what shares a loop is one."""
    return _Fusing(items, local, whole, judge).run()


class _Fusing:
    def __init__(
        self, items: Items, local: Set[Buffer], whole: Sequence[Whole], judge: Judge | None
    ) -> None:
        self.items, self.local, self.judge = items, local, judge
        self.passing = Passing.on(None if judge is None else judge.machine)
        self.queue: list[_Entry] = []
        self.reached: dict[tuple[int, Buffer], int] = {}
        self.refused: set[tuple[_Unit, _Unit]] = set()
        self.units = dict.fromkeys(_begun(items, whole))
        _link(self.units)

    def run(self) -> list[Members]:
        """The groups in the order in which they run, when no pair is left that should be one."""
        for unit in self.units:
            for other in unit.after:
                self._push(unit, other)
        while self.queue:
            entry = heapq.heappop(self.queue)
            # (Of units that are others' by now, nothing is after any more.)
            pair = (entry.producer, entry.consumer)
            if entry.consumer in entry.producer.after and pair not in self.refused:
                self._look_at(entry)
        units = sorted(self.units, key=lambda unit: unit.rank)
        return [Members(unit.members, unit.contraction) for unit in units]

    # Pairs.

    def _push(self, producer: _Unit, consumer: _Unit) -> None:
        if (producer, consumer) not in self.refused:
            place = (producer.members[0], consumer.members[0])
            saves = -self._saved(producer, consumer)
            heapq.heappush(self.queue, _Entry(saves, place, producer, consumer))

    def _saved(self, producer: _Unit, consumer: _Unit) -> float:
        """Seconds that one kernel takes less, roughly."""
        saved = [self.passing.launch]
        members = {*producer.members, *consumer.members}
        for held in producer.touches & consumer.touches:
            size, passed = bytes_of(held), self._touched(consumer, held)
            if held in producer.writes:
                touching = self.items.touching(held) if held in self.local else ()
                inside = 0 < len(touching) <= len(members) and members.issuperset(touching)
                passed += self._touched(producer, held) if inside else 0
                # A product that computes its factor copies it.
                passed -= 2 * size if consumer.part.contracts else 0
            saved.append(self.passing.seconds(size, passed))
        # (Sets have no order, and ties go by the last bit.)
        return fsum(saved)

    def _touched(self, unit: _Unit, held: Buffer) -> int:
        """Bytes of ``held`` that ``unit`` reads or writes at most."""
        touching = self.items.touching(held)
        return max(self._reached(n, held) for n in unit.members if _is_in(n, touching))

    def _reached(self, n: int, held: Buffer) -> int:
        if (n, held) not in self.reached:
            self.reached[n, held] = _reached(self.items[n], held)
        return self.reached[n, held]

    def _pair(self, producer: _Unit, consumer: _Unit) -> Pair:
        users = {n for b in producer.writes for n in self.items.touching(b)[:_MOST_BETWEEN]}
        return Pair(
            producer.part,
            consumer.part,
            producer.writes & consumer.touches | producer.touches & consumer.writes,
            readers=1 + len(users.difference(producer.members, consumer.members)),
            for_caller=not producer.writes <= self.local,
            judged=self.judge is not None,
            crossed=lambda: _moved(producer, consumer) is None,
        )

    def _look_at(self, entry: _Entry) -> None:
        producer, consumer = entry.producer, entry.consumer
        pair = self._pair(producer, consumer)
        rule = refusal(pair)
        if rule is not None:
            if rule.lasts:
                self.refused.add((producer, consumer))
        elif pair.goes_before or self._pays(entry, pair):
            self._merge(entry)
        elif pair.shared == 0 and not entry.loosely and self.judge is not None:
            # All but the launch is as before: others come first.
            entry.saves, entry.loosely = -self.passing.launch, True
            heapq.heappush(self.queue, entry)

    def _pays(self, entry: _Entry, pair: Pair) -> bool:
        """Whether one kernel is predicted to be no slower, where that is not clear."""
        producer, consumer = entry.producer, entry.consumer
        if self.judge is None or (pair.shared == 0 and not entry.loosely):
            return pair.shared > 0
        if pair.shared >= self.judge.machine.cores and _few_streams(entry, pair.handed):
            return True
        apart = (producer.members, consumer.members)
        one, *others = (self._kernel(members) for members in (_joined(*apart), *apart))
        times = self.judge.both_ways([one], others)
        if times is None:
            return pair.shared > 0
        if times[0] <= times[1]:
            return True
        self.refused.add((producer, consumer))
        why = f"apart: {times[1] * 1e6:.1f} us, one kernel: {times[0] * 1e6:.1f} us"
        self.judge.decide(self._named(producer, consumer), "apart", why)
        return False

    def _kernel(self, members: Sequence[int]) -> Kernel:
        return kernel_of(members, self.items, self.local)

    def _named(self, *units: _Unit) -> str:
        computes = (unit.part.computes for unit in units)
        return " + ".join(
            f"{first.name}..{last.name}" if first is not last else first.name
            for (first, *_), last in ((part, part[-1]) for part in computes)
        )

    # Units.

    def _merge(self, entry: _Entry) -> None:
        producer, consumer = entry.producer, entry.consumer
        moved = _moved(producer, consumer)
        assert moved is not None
        if self.judge is not None:
            why = f"saves about {-entry.saves * 1e6:.2f} us"
            self.judge.decide(self._named(producer, consumer), "one kernel", why)
        members = _joined(producer.members, consumer.members)
        part = replace(consumer.part, items=tuple(self.items[n] for n in members))
        rank = _reordered(producer, consumer, *moved)
        merged = _Unit(members, rank, part, consumer.contraction)
        for unit in (producer, consumer):
            for other in unit.before:
                del other.after[unit]
                if other is not producer:
                    other.after[merged] = merged.before[other] = None
            for other in unit.after:
                del other.before[unit]
                if other is not consumer:
                    other.before[merged] = merged.after[other] = None
            unit.before, unit.after = {}, {}
            del self.units[unit]
        self.units[merged] = None
        for other in merged.before:
            if not self.refused.isdisjoint(((other, producer), (other, consumer))):
                self.refused.add((other, merged))
            self._push(other, merged)
        for other in merged.after:
            if not self.refused.isdisjoint(((producer, other), (consumer, other))):
                self.refused.add((merged, other))
            self._push(merged, other)


def _few_streams(entry: _Entry, handed: Set[Buffer]) -> bool:
    """Whether a loop around both units reads and writes few arrays side by side, or one of them
    brings none that is large."""
    ways = [unit.touches - handed for unit in (entry.producer, entry.consumer)]
    arrays = frozenset[Buffer]().union(*ways)
    if len(arrays) <= _STREAMS:
        return True
    most = max(map(bytes_of, arrays))
    return not all(any(bytes_of(b) * _STREAMS > most for b in way) for way in ways)


def _reached(item: Item, held: Buffer) -> int:
    """Bytes of ``held`` that ``item`` reads or writes at most: a part, if its dims give one."""
    size = bytes_of(held)
    if not isinstance(item.stmt, Compute):
        return size
    sizes = extents(item.stmt)
    places = (
        prod(sizes.get(dim.name, 1) for dim in index_variables(view))
        for view in views_of(item.stmt)
        if view.buffer is held
    )
    return min(size, max(places, default=size) * held.dtype.bytes)


def _is_in(n: int, places: Sequence[int]) -> bool:
    """Whether ``n`` is among ``places``, which are in order."""
    at = bisect_left(places, n)
    return at < len(places) and places[at] == n


def _joined(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted((*one, *other)))


def _begun(items: Items, whole: Sequence[Whole]) -> list[_Unit]:
    """A unit for each of ``whole``, without what may go elsewhere, and for each other item, with
    what fills the memory that it is the first to touch."""
    units: list[_Unit] = []
    taken: set[int] = set()
    for product in whole:
        prologues = {n for n in product.items if _is_prologue(n, product, items)}
        members = tuple(sorted(product.items - prologues))
        before = frozenset(items[n] for n in prologues)
        part = Part(tuple(items[n] for n in members), True, before)
        units.append(_Unit(members, max(members), part, product.contraction))
        taken.update(members)
    product_of = {n: unit for unit in units for n in unit.members}
    filled: dict[int, tuple[int, ...]] = {}
    for n, item in enumerate(items):
        if n in taken or not _fills(item):
            continue
        members = (*filled.pop(n, ()), n)
        written = frozenset[Buffer]().union(*(items[k].writes for k in members))
        places = [items.touching(held) for held in written]
        later = [place[at] for place in places if (at := bisect_right(place, n)) < len(place)]
        user = min(later, default=n)
        if user in product_of:
            units.append(_Unit(members, user - 0.5, Part(tuple(items[k] for k in members))))
        else:
            filled[user] = _joined(filled.get(user, ()), members)
        taken.update(members)
    for n in range(len(items)):
        members = filled.get(n, ())
        if n not in taken:
            members = _joined(members, (n,))
        if members:
            units.append(_Unit(members, n, Part(tuple(items[k] for k in members))))
    units.sort(key=lambda unit: (unit.rank, unit.members))
    for rank, unit in enumerate(units):
        unit.rank = rank
    return units


def _is_prologue(n: int, product: Whole, items: Items) -> bool:
    """Whether item ``n`` makes what the others read, and none adds to, before the sum."""
    compute = items[n].simple
    if product.contraction is None or compute is None or compute.combiner is not None:
        return False
    if not items[n].reads or any(_adds(items[k]) for k in product.items if k < n):
        return False
    return not any(items[n].writes & items[k].writes for k in product.items if k != n)


def _adds(item: Item) -> bool:
    return item.simple is not None and item.simple.combiner is not None


def _fills(item: Item) -> bool:
    """Whether ``item`` gives a buffer its first contents, and depends on nothing."""
    return not item.reads and is_plain(item)


def _link(units: Iterable[_Unit]) -> None:
    """Which units have to run before which: those that write what others touch."""
    written: dict[Buffer, _Unit] = {}
    read: dict[Buffer, list[_Unit]] = {}
    for unit in sorted(units, key=lambda unit: unit.rank):
        earlier = [written[held] for held in unit.touches if held in written]
        for held in unit.writes:
            earlier += read.pop(held, ())
            written[held] = unit
        for held in unit.reads - unit.writes:
            read.setdefault(held, []).append(unit)
        for other in earlier:
            if other is not unit:
                other.after[unit] = unit.before[other] = None


def _moved(producer: _Unit, consumer: _Unit) -> tuple[list[_Unit], list[_Unit]] | None:
    """Of the units between the two: those that the consumer needs, and those that need the
    producer, in order; None where one of them does both, or where there are too many."""
    ahead = _led_to(consumer, producer, lambda unit: unit.before, producer.rank, -1)
    behind = _led_to(producer, consumer, lambda unit: unit.after, consumer.rank, 1)
    if ahead is None or behind is None or not ahead.isdisjoint(behind):
        return None
    first, last = (sorted(units, key=lambda unit: unit.rank) for units in (ahead, behind))
    return first, last


def _led_to(
    start: _Unit, end: _Unit, step: Callable[[_Unit], Iterable[_Unit]], limit: float, sign: int
) -> set[_Unit] | None:
    """The units that ``step`` leads to from ``start`` but for ``end``, before the rank ``limit``;
    None where there are too many."""
    reached: set[_Unit] = set()
    left = [start]
    while left:
        for unit in step(left.pop()):
            if unit is not end and unit not in reached and sign * (limit - unit.rank) > 0:
                reached.add(unit)
                left.append(unit)
                if len(reached) > _MOST_BETWEEN:
                    return None
    return reached


def _reordered(
    producer: _Unit, consumer: _Unit, ahead: Sequence[_Unit], behind: Sequence[_Unit]
) -> float:
    """The rank of both as one, with those ``ahead`` before it and those ``behind`` after it. A
    product runs where it did, all else as early as it can."""
    ranks = sorted(unit.rank for unit in (producer, consumer, *ahead, *behind))
    for unit, rank in zip(ahead, ranks, strict=False):
        unit.rank = rank
    for unit, rank in zip(reversed(behind), reversed(ranks), strict=False):
        unit.rank = rank
    return ranks[-1 - len(behind)] if consumer.part.contracts else ranks[len(ahead)]


def handed(members: Iterable[int], items: Items, local: Set[Buffer]) -> set[Buffer]:
    """What the ``items`` at ``members`` get of others, or leave to them."""
    inside = frozenset(members)
    touched = {buffer for n in inside for buffer in items[n].touches}
    return {b for b in touched if b not in local or not inside.issuperset(items.touching(b))}


def kernel_of(members: Sequence[int], items: Items, local: Set[Buffer]) -> Kernel:
    """What the ``items`` at ``members`` do as a kernel, which allocates what nothing else
    touches."""
    stmts = [items[n].stmt for n in members]
    passed = handed(members, items, local)
    touched = dict.fromkeys(
        held for n in members for held in sorted(items[n].touches, key=lambda b: b.name)
    )
    inside = [held for held in touched if held not in passed]
    whole = item_of(block(*stmts))
    params = [(held, whole.access(held)) for held in touched if held in passed]
    return canonical("part", stmts, params, inside)[0]
