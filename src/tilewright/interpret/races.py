"""Data races: an element that one iteration of a parallel loop writes and another one accesses.

Iterations run in order, so it is enough to remember, per element, who wrote it last and who read it
first. Each run of a parallel loop counts its iterations from a base of its own; what is older than
the base happened before the loop, and is no race.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import InterpreterFault
from tilewright.interpret.lanes import Site, at_lane, fault, first_lane
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var
from tilewright.ir.stmt import LoopKind

CONCURRENT = frozenset(LoopKind) - {LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTOR}


@dataclass(frozen=True, slots=True)
class ParallelRun:
    """One run of a parallel loop: its variable, its first stamp, and the buffers it stores to."""

    var: Var
    base: int
    stored: frozenset[Buffer]


class AccessLog:
    """Who accessed the elements of one buffer in the runs of the parallel loop at one depth."""

    __slots__ = ("reader", "writer")

    def __init__(self, extent: int) -> None:
        self.writer = np.full(extent, -1, np.int64)
        self.reader = np.full(extent, -1, np.int64)

    def read(self, run: ParallelRun, name: str, offsets: Any, mask: Any, site: Site) -> None:
        """Notes a read, and faults if another iteration wrote the element."""
        stamps, offsets, mask = _together(run, offsets, mask, site)
        self._check(self.writer, run, name, (stamps, offsets, mask), site, ("writes", "reads"))
        fresh = mask & (self.reader[offsets] < run.base)
        self.reader[offsets[fresh]] = stamps[fresh]

    def write(self, run: ParallelRun, name: str, offsets: Any, mask: Any, site: Site) -> None:
        """Notes a write, and faults if another iteration accessed the element."""
        stamps, offsets, mask = _together(run, offsets, mask, site)
        access = (stamps, offsets, mask)
        self._check(self.writer, run, name, access, site, ("writes", "writes"))
        self._check(self.reader, run, name, access, site, ("reads", "writes"))
        self.writer[offsets[mask]] = stamps[mask]

    @staticmethod
    def _check(
        log: Any,
        run: ParallelRun,
        name: str,
        access: tuple[Any, Any, Any],
        site: Site,
        verbs: tuple[str, str],
    ) -> None:
        stamps, offsets, mask = access
        before = log[offsets]
        bad = mask & (before >= run.base) & (before != stamps)
        if bad.any():
            lane = first_lane(bad)
            raise _race(run, name, int(before[lane]), (int(offsets[lane]), lane), site, verbs)


def _together(run: ParallelRun, offsets: Any, mask: Any, site: Site) -> tuple[Any, Any, Any]:
    """Stamps, offsets and mask as arrays of one shape, of at least rank 1."""
    stamps = np.asarray(site.frame.values[run.var]) + run.base
    arrays = np.broadcast_arrays(stamps, offsets, True if mask is None else mask)
    return tuple(np.atleast_1d(a) for a in arrays)  # type: ignore[return-value]


def _race(
    run: ParallelRun,
    name: str,
    before: int,
    place: tuple[int, tuple[int, ...]],
    site: Site,
    verbs: tuple[str, str],
) -> InterpreterFault:
    offset, lane = place
    var = run.var.name
    now = int(at_lane(site.frame.values[run.var], lane))
    return fault(
        f"data race on {name!r}: iteration {var}={before - run.base} {verbs[0]} the element at "
        f"offset {offset} and iteration {var}={now} {verbs[1]} it",
        site,
        lane,
        why=f"the iterations of the parallel loop over {var!r} run in any order, or at once",
        cure=f"let {var!r} select disjoint parts of {name!r}, allocate {name!r} inside the loop, "
        "or make the loop serial",
    )
