"""The memory of one buffer: its elements, who accessed them, and what of it is under way.

Asynchronous copies and ops write it, and read it, at some time until they are complete. How many do
is counted per element, so that accesses in between are found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.interpret.findings import Findings
from tilewright.interpret.lanes import Site
from tilewright.interpret.races import Log, Run
from tilewright.ir.buffer import Buffer
from tilewright.ir.functions import Queue

# An access: offsets, the mask of those that count (None: all), and who makes it.
Where = tuple[Any, Any, Site]


class Storage:
    """The memory of one buffer: ``data`` (1-D), and which elements are ``defined`` (None: all).

    Memory that lanes allocate is one copy per lane, one after the other; the frame knows where a
    lane's copy begins.
    """

    __slots__ = (
        "arriving",
        "buffer",
        "data",
        "defined",
        "depth",
        "held",
        "lanes",
        "logs",
        "queue",
        "reading",
        "shape",
        "under_way",
        "writable",
    )

    def __init__(self, buffer: Buffer, data: Any, access: str, depth: int) -> None:
        self.buffer = buffer
        self.data = data
        self.writable = access != "in"
        self.defined = np.zeros(len(data), np.bool_) if access in ("out", "local") else None
        self.depth = depth  # runs around it
        self.lanes = 0  # of a subgroup, that hold a part each
        # By how many asynchronous copies and ops that are under way each element is written, and
        # the sum of that; the same of private memory that they read. The newest joined the queue.
        self.arriving: Any = None
        self.under_way = 0
        self.held: Any = None
        self.reading = 0
        self.queue: Queue | None = None
        self.logs: dict[int, Log] = {}
        self.shape = buffer.layout.padded_shape(len(buffer.shape))

    def note(self, verb: str, runs: list[Run], where: Where, findings: Findings) -> None:
        """Notes an access for each of ``runs`` that shares this memory; reports races, once."""
        raced = False
        for depth in range(self.depth, len(runs)):
            run = runs[depth]
            if self.buffer in run.stored:
                log = self.logs.get(depth)
                if log is None:
                    log = self.logs[depth] = run.log(len(self.data))
                named = (run, self.buffer.name)
                raced = log.note(verb, named, where, None if raced else findings) or raced

    def expect(self, offsets: Any) -> None:
        """A copy to ``offsets`` (distinct) is under way."""
        if self.arriving is None:
            self.arriving = np.zeros(len(self.data), np.int32)
        self.arriving[offsets] += 1
        self.under_way += len(offsets)

    def arrived(self, offsets: Any) -> None:
        """A copy to ``offsets`` is no longer under way."""
        self.arriving[offsets] -= 1
        self.under_way -= len(offsets)

    def hold(self, offsets: Any) -> None:
        """An op that reads ``offsets`` (distinct) is under way."""
        if self.held is None:
            self.held = np.zeros(len(self.data), np.int32)
        self.held[offsets] += 1
        self.reading += len(offsets)

    def free(self, offsets: Any) -> None:
        """An op that reads ``offsets`` is no longer under way."""
        self.held[offsets] -= 1
        self.reading -= len(offsets)

    def arrive(self, offsets: Any, values: Any) -> None:
        """The copy of ``values`` to ``offsets`` is done."""
        self.arrived(offsets)
        self.data[offsets] = values
        if self.defined is not None:
            self.defined[offsets] = True


Storages = dict[Buffer, Storage]


@dataclass
class Started:
    """An asynchronous op (`Identity.ASYNCHRONOUS`): its number among those of its subgroup, and
    what it reads that no run watches."""

    count: int
    reads: list[tuple[Storage, Where]] = field(default_factory=list)
