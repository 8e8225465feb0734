"""Asynchronous copies under way: started, committed in groups, completed by waiting.

The source is read where the copy starts. The destination is written where the work-item's wait
completes the copy; but since the machine may write it at any time in between, any access to it
until then is a fault, and it counts as written by the work-item from the start on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tilewright.interpret.findings import FaultKind, Findings
from tilewright.interpret.lanes import Frame, Identity, Site, fault
from tilewright.interpret.memory import Memory
from tilewright.interpret.storage import Storage

# The group of copies that are not committed.
NO_GROUP = -1


class Team(Protocol):
    """The work-items that copy: a `groups.GridRun`."""

    workgroups: int
    items: int  # of each workgroup

    def per_item(self, values: Any, frame: Frame) -> Any:
        """``values``, one per lane of ``frame``, as one per work-item."""

    def running(self, frame: Frame) -> Any:
        """The mask of the work-items that run ``frame``, in the order of their numbers."""

    def work_items(self, frame: Frame, numbers: Any) -> Frame:
        """The work-items with these ``numbers`` as a frame."""


@dataclass
class _Copies:
    """The copies of one statement, per element (1-D): destination, value, the work-item (among all
    of the launch) that started it, and its group among those of this work-item."""

    storage: Storage
    site: Site
    offsets: Any
    values: Any
    owners: Any
    groups: Any

    def keep(self, chosen: Any) -> None:
        self.offsets, self.values = self.offsets[chosen], self.values[chosen]
        self.owners, self.groups = self.owners[chosen], self.groups[chosen]

    def report_lost(self, findings: Findings) -> None:
        """Reports that they never arrive, and drops them."""
        committed = bool((self.groups != NO_GROUP).all())
        report_lost(self.storage, len(self.offsets), committed, self.site, findings)
        self.storage.writes.end(self.offsets)


class Copies:
    """The copies of the work-items of one launch."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._committed = np.zeros(team.workgroups * team.items, np.int64)
        self._under_way: list[_Copies] = []

    def start(
        self,
        memory: Memory,
        storage: Storage,
        where: tuple[Any, Any, Site],
        values: Any,
    ) -> None:
        """Copies ``values`` to ``where`` (offsets, mask, site) at some time up to their wait."""
        offsets, mask, site = where
        frame = site.frame
        group, item = frame.values[Identity.WORKGROUP], frame.values[Identity.WORK_ITEM]
        owner = group * self._team.items + item
        memory.note("write", storage.buffer, where)
        memory.observe("store", storage.buffer, *where)
        arrays = np.broadcast_arrays(offsets, values, owner, True if mask is None else mask)
        chosen = np.atleast_1d(arrays[3])
        places, arriving, owners = (np.atleast_1d(a)[chosen] for a in arrays[:3])
        storage.writes.begin(places)
        groups = np.full(len(places), NO_GROUP)
        self._under_way.append(_Copies(storage, site, places, arriving, owners, groups))

    def commit(self, frame: Frame) -> None:
        """Closes the newest group of each work-item of the frame."""
        here = self._team.running(frame)
        for copies in self._under_way:
            new = (copies.groups == NO_GROUP) & here[copies.owners]
            copies.groups[new] = self._committed[copies.owners[new]]
        self._committed += here

    def complete(self, memory: Memory, pending: Any, site: Site) -> None:
        """Completes all but the newest ``pending`` groups of the frame's work-items."""
        frame = site.frame
        here = self._team.running(frame)
        left_pending = self._team.per_item(pending, frame) if np.ndim(pending) else pending
        done_until = np.where(here, self._committed - left_pending, 0)
        for copies in self._under_way:
            done = (copies.groups != NO_GROUP) & (copies.groups < done_until[copies.owners])
            if not done.any():
                continue
            offsets, owners = copies.offsets[done], copies.owners[done]
            copies.storage.arrive(offsets, copies.values[done])
            arrived = Site(site.stmt, self._team.work_items(frame, owners))
            copies.storage.note("write", memory.runs, (offsets, None, arrived), memory.findings)
            copies.keep(~done)
        self._under_way = [copies for copies in self._under_way if len(copies.offsets)]

    def finish(self, findings: Findings) -> None:
        """Reports copies without a wait, at the end of the work-items."""
        lost, self._under_way = self._under_way, []
        for copies in lost:
            copies.report_lost(findings)


def report_lost(
    storage: Storage, count: int, committed: bool, site: Site, findings: Findings
) -> None:
    """Reports a copy of ``count`` elements to ``storage`` that nothing completes."""
    missing = "waited for" if committed else "committed, so that no wait completes it"
    findings.report(
        FaultKind.LOST_COPY,
        site.stmt,
        count,
        lambda: fault(
            f"the copy to {storage.buffer.name!r} is never {missing}",
            site,
            tuple(0 for _ in site.frame.shape),
            why="what an asynchronous copy writes may be used after its wait only",
            cure="commit the copies, and wait until none is pending before the work-item ends",
        ),
    )
