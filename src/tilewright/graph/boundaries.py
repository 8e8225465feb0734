"""Why groups are apart: what one makes and another reads lies in memory, which costs time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.graph.cutting import Group
from tilewright.graph.fusion_rules import Pair, Part, refusal
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Kernel
from tilewright.schedule.queries.flow import item_of


@dataclass(frozen=True)
class Boundary:
    """A ``buffer`` of so many ``bytes`` that the group of one number fills for that of another, and
    ``why`` the two are no one group."""

    producer: int
    consumer: int
    buffer: str
    bytes: int
    why: str


def boundaries(graph: Kernel, groups: Sequence[Group], judged: bool = False) -> Iterator[Boundary]:
    """Those between ``groups``, in the order in which they run: of each buffer that a group reads,
    where it was filled last. ``judged``: predicted times have decided, too."""
    parts = [
        Part(tuple(map(item_of, group.stmts)), group.contracts, home=group.home) for group in groups
    ]
    caller = {param.buffer for param in graph.arrays}
    reads = [{b for item in part.items for b in item.reads} for part in parts]
    writes = [{b for item in part.items for b in item.writes} for part in parts]
    items = [item for part in parts for item in part.items]
    readers = Counter(buffer for item in items for buffer in item.reads - item.writes)
    last: dict[Buffer, int] = {}  # which group filled a buffer last
    for number, part in enumerate(parts):
        for buffer in sorted(reads[number] & last.keys(), key=lambda b: b.name):
            producer = parts[last[buffer]]
            for_caller = buffer in caller
            pair = Pair(producer, part, frozenset({buffer}), readers[buffer], for_caller, judged)
            rule = refusal(pair)
            why = "one kernel saves nothing, or other pairs more" if rule is None else rule.why
            yield Boundary(last[buffer], number, buffer.name, buffer.bytes, why)
        last |= dict.fromkeys(writes[number], number)
