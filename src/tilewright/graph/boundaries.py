"""Why groups are apart: what one makes and another reads lies in memory, which costs time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.graph.cutting import Group
from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import addressing
from tilewright.ir.stmt import Compute, Kernel
from tilewright.schedule.queries.cutting import MOST_IN_CHAIN
from tilewright.schedule.queries.flow import Item, item_of
from tilewright.schedule.queries.shared_dims import share_a_dim


@dataclass(frozen=True)
class Boundary:
    """A ``buffer`` that the group of one number fills for that of another, and ``why`` the two are
    no one group."""

    buffer: Buffer
    producer: int
    consumer: int
    why: str


@dataclass
class _Part:
    """A group, and what its statements do."""

    group: Group

    @cached_property
    def items(self) -> list[Item]:
        return [item_of(stmt) for stmt in self.group.stmts]

    @cached_property
    def computes(self) -> list[Compute]:
        return [stmt for stmt in self.group.stmts if isinstance(stmt, Compute)]

    @property
    def reduces(self) -> bool:
        return any(r.combiner is not None for compute in self.computes for r in compute.results)

    @property
    def plain(self) -> bool:
        """It consists of computes whose places do not depend on data."""
        return len(self.computes) == len(self.group.stmts) and not any(
            map(addressing, self.computes)
        )


@dataclass
class _Pair:
    producer: _Part
    consumer: _Part
    buffer: Buffer
    readers: int
    given: bool  # the caller gets the buffer

    @property
    def computes(self) -> list[Compute]:
        return [*self.producer.computes, *self.consumer.computes]


# The first that holds is the reason.
RULES: Sequence[tuple[str, Callable[[_Pair], bool]]] = (
    (
        "a condition or loop on data is between them",
        lambda pair: pair.producer.group.home != pair.consumer.group.home,
    ),
    (
        "one of them has places that depend on data, or is no compute",
        lambda pair: not (pair.producer.plain and pair.consumer.plain),
    ),
    (
        "both are products: what is between them stays in a cache, or is no tile for a tile",
        lambda pair: pair.producer.group.contracts and pair.consumer.group.contracts,
    ),
    (
        "a product would reduce it again for each of its tiles",
        lambda pair: pair.consumer.group.contracts and pair.producer.reduces,
    ),
    (
        "a product would compute it for itself, and others read it too",
        lambda pair: pair.consumer.group.contracts and (pair.readers > 1 or pair.given),
    ),
    (
        "a reduction wants whole rows, and a product gives tiles",
        lambda pair: pair.producer.group.contracts and pair.consumer.reduces,
    ),
    (
        "a product hands its sums to one reader, and others read them too",
        lambda pair: pair.producer.group.contracts and (pair.readers > 1 or pair.given),
    ),
    (
        "a product's sums are read in another order, or in parts",
        lambda pair: pair.producer.group.contracts,
    ),
    (
        "a product reads more places than its factor has, or in parts",
        lambda pair: pair.consumer.group.contracts,
    ),
    (
        "no dim is shared by all computes",
        lambda pair: not share_a_dim(pair.computes),
    ),
    (
        f"a chain has {MOST_IN_CHAIN} computes at most",
        lambda pair: len(pair.computes) > MOST_IN_CHAIN,
    ),
    ("what runs between them touches the same memory", lambda pair: True),
)


def boundaries(graph: Kernel, groups: Sequence[Group]) -> Iterator[Boundary]:
    """Those between ``groups``, in the order in which they run: of each buffer that a group reads,
    where it was filled last."""
    parts = [_Part(group) for group in groups]
    caller = {param.buffer for param in graph.arrays}
    reads = [{b for item in part.items for b in item.reads} for part in parts]
    writes = [{b for item in part.items for b in item.writes} for part in parts]
    items = [item for part in parts for item in part.items]
    readers = Counter(buffer for item in items for buffer in item.reads - item.writes)
    last: dict[Buffer, int] = {}  # which group filled a buffer last
    for number, part in enumerate(parts):
        for buffer in sorted(reads[number] & last.keys(), key=lambda b: b.name):
            producer = parts[last[buffer]]
            pair = _Pair(producer, part, buffer, readers[buffer], buffer in caller)
            why = next(reason for reason, holds in RULES if holds(pair))
            yield Boundary(buffer, last[buffer], number, why)
        last |= dict.fromkeys(writes[number], number)
