"""The memory of one buffer: its elements, logs of accesses, and pending asynchronous accesses.

Asynchronous copies and ops write it, and read it, at some time until they are complete. Pending
ones are counted per element, so that conflicting accesses in between are found.
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

# An access: offsets, their mask (None: all), and the site.
Where = tuple[Any, Any, Site]


class UnderWay:
    """The number of pending accesses to each of ``extent`` elements."""

    __slots__ = ("_counts", "_extent", "_total")

    def __init__(self, extent: int) -> None:
        self._extent = extent
        self._counts: Any = None  # allocated by the first access
        self._total = 0

    def __bool__(self) -> bool:
        return self._total > 0

    def at(self, offsets: Any) -> Any:
        """Which of ``offsets`` have pending accesses; only after a first `begin`."""
        return self._counts[offsets] > 0

    def begin(self, offsets: Any) -> None:
        """An access to ``offsets`` (distinct) begins."""
        if self._counts is None:
            self._counts = np.zeros(self._extent, np.int32)
        self._counts[offsets] += 1
        self._total += len(offsets)

    def end(self, offsets: Any) -> None:
        """An access to ``offsets`` ends."""
        self._counts[offsets] -= 1
        self._total -= len(offsets)


class Storage:
    """The memory of one buffer: ``data`` (1-D), and which elements are ``defined`` (None: all).

    ``concrete`` is the buffer with numbers for the scalar parameters in its sizes. Memory that
    lanes allocate is one copy per lane, one after the other; the frame knows where a lane's copy
    begins.
    """

    __slots__ = (
        "buffer",
        "concrete",
        "data",
        "defined",
        "depth",
        "lanes",
        "logs",
        "queue",
        "reads",
        "shape",
        "stored",
        "writable",
        "writes",
    )

    def __init__(
        self, buffer: Buffer, data: Any, access: str, depth: int, concrete: Buffer
    ) -> None:
        self.buffer = buffer
        self.concrete = concrete
        self.data = data
        self.writable = access != "in"
        self.stored = False  # whether anything was stored
        self.defined = np.zeros(len(data), np.bool_) if access in ("out", "local") else None
        self.depth = depth  # the number of runs around it
        self.lanes = 0  # of a subgroup, that hold a part each
        # Pending accesses of asynchronous copies and ops, and the queue of the newest op.
        self.writes, self.reads = UnderWay(len(data)), UnderWay(len(data))
        self.queue: Queue | None = None
        self.logs: dict[int, tuple[object, Log]] = {}
        self.shape = concrete.layout.padded_shape(concrete.rank)

    def note(self, verb: str, runs: list[Run], where: Where, findings: Findings) -> None:
        """Notes an access for each of ``runs`` that shares this memory; reports races, once."""
        raced = False
        for depth in range(self.depth, len(runs)):
            run = runs[depth]
            if self.buffer in run.stored:
                epoch, log = self.logs.get(depth, (run.epoch, None))
                if log is None or epoch is not run.epoch:
                    log = run.log(len(self.data))
                    self.logs[depth] = (run.epoch, log)
                named = (run, self.buffer.name)
                raced = log.note(verb, named, where, None if raced else findings) or raced

    def arrive(self, offsets: Any, values: Any) -> None:
        """Completes the copy of ``values`` to ``offsets``."""
        self.writes.end(offsets)
        self.data[offsets] = values
        self.stored = True
        if self.defined is not None:
            self.defined[offsets] = True


Storages = dict[Buffer, Storage]


@dataclass
class Started:
    """An asynchronous op (`Identity.ASYNCHRONOUS`): its number among those of its subgroup, its
    queue (None: it signals an mbarrier), and its reads of memory that no run watches."""

    count: int
    queue: Queue | None
    reads: list[tuple[Storage, Where]] = field(default_factory=list)
