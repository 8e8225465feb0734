"""Asynchronous ops under way: started by a subgroup as one, completed by an mbarrier or a queue.

What an op writes is in memory from the start; but since the machine may write it, and read its
operands, at any time until the op is complete, any access of the former and any write of the latter
until then is a fault. An op that signals an mbarrier completes as late as it can: when a wait for a
phase lacks nothing but its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.interpret.clocks import Clocks, subgroup_of, threads_of
from tilewright.interpret.copies import NO_GROUP, report_lost
from tilewright.interpret.findings import Findings
from tilewright.interpret.lanes import Identity, Site
from tilewright.interpret.mbarriers import MBarriers
from tilewright.interpret.storage import Storage, Where
from tilewright.ir.functions import Queue


@dataclass
class _Transfer:
    """One op of one workgroup: the offsets that it writes (1-D), its reads of memory that no other
    may write until then, and its count as `Clocks` has it. ``number`` is that of its group, for one
    that joined a queue."""

    storage: Storage
    offsets: Any
    site: Site
    group: int
    subgroup: int
    count: int
    reads: list[tuple[Storage, Any]]
    number: int = NO_GROUP

    @property
    def bytes(self) -> int:
        """The number of bytes that it writes."""
        return len(self.offsets) * self.storage.buffer.dtype.bytes

    def free(self) -> None:
        """Ends its reads."""
        for storage, offsets in self.reads:
            storage.reads.end(offsets)
        self.reads = []

    def complete(self) -> None:
        """Ends its reads and its writes."""
        self.free()
        self.storage.writes.end(self.offsets)


class Transfers:
    """The asynchronous ops of the subgroups of one launch."""

    def __init__(self, groups: int, clocks: Clocks) -> None:
        self._clocks = clocks
        self._signalling: dict[tuple[MBarriers, int], list[_Transfer]] = {}
        self._queued: dict[tuple[Queue, int], list[_Transfer]] = {}
        self._committed = {queue: np.zeros((groups, clocks.subgroups), np.int64) for queue in Queue}
        self._stored: list[_Transfer] = []

    def start(
        self,
        storage: Storage,
        where: tuple[Any, Any, Site],
        completion: Queue | tuple[MBarriers, Any],
    ) -> None:
        """An op writes ``where`` (offsets and mask of the site's frame, and the site); the offsets
        of the mbarriers that it signals are of the same shape."""
        offsets, mask, site = where
        values = site.frame.values
        started, subgroup = values[Identity.ASYNCHRONOUS], subgroup_of(site.frame)
        reads, started.reads = started.reads, []
        arrays = np.broadcast_arrays(
            offsets,
            values[Identity.WORKGROUP],
            True if mask is None else mask,
            0 if isinstance(completion, Queue) else completion[1],
        )
        chosen = arrays[2].ravel()
        offsets, groups, targets = (arrays[i].ravel()[chosen] for i in (0, 1, 3))
        # An op that writes nothing, as all is masked, has read its operands nevertheless. An op
        # that signals several mbarriers tells each the bytes that are its own.
        pairs = (
            [(group, 0) for group in _groups(site)]
            if isinstance(completion, Queue)
            else sorted(set(zip(groups.tolist(), targets.tolist(), strict=True)))
        )
        for group, target in pairs:
            mine = (groups == group) & (targets == target)
            held = [(read, _of_group(where, group)) for read, where in reads]
            place = offsets[mine]
            transfer = _Transfer(storage, place, site, group, subgroup, started.count, held)
            storage.writes.begin(place)
            for read, part in held:
                read.reads.begin(part)
            if isinstance(completion, Queue):
                self._queued.setdefault((completion, subgroup), []).append(transfer)
            else:
                key = (completion[0], target)
                self._signalling.setdefault(key, []).append(transfer)
        storage.queue = completion if isinstance(completion, Queue) else None

    def deliver(self, mbarriers: MBarriers, offset: int) -> None:
        """Completes ops that signal this mbarrier, as long as its phase lacks nothing but bytes."""
        coming = self._signalling.get((mbarriers, offset), [])
        while coming and mbarriers.missing[offset] == 0 and mbarriers.bytes[offset] > 0:
            transfer = coming.pop(0)
            transfer.complete()
            agent = self._clocks.asynchronous(transfer.subgroup, None)
            mbarriers.deliver(offset, agent, transfer.count, transfer.bytes, transfer.site)

    def commit(self, queue: Queue, subgroup: int, groups: Any) -> None:
        """Closes the newest group of ``queue`` of the subgroup of ``groups`` (1-D)."""
        here = set(groups.tolist())
        for transfer in self._queued.get((queue, subgroup), ()):
            if transfer.number == NO_GROUP and transfer.group in here:
                transfer.number = int(self._committed[queue][transfer.group, subgroup])
        self._committed[queue][groups, subgroup] += 1

    def complete(self, queue: Queue, subgroup: int, groups: Any, pending: Any) -> None:
        """Completes all but the newest ``pending`` (one for each of ``groups``) groups."""
        until = dict(
            zip(groups.tolist(), self._committed[queue][groups, subgroup] - pending, strict=True)
        )
        pending_transfers: list[_Transfer] = []
        agent = self._clocks.asynchronous(subgroup, queue)
        # All lanes of a subgroup wait for its products, one lane for its stores.
        threads = threads_of(subgroup)[: 2 if queue is Queue.PRODUCTS else 1]
        for transfer in self._queued.get((queue, subgroup), ()):
            if transfer.number == NO_GROUP or transfer.number >= until.get(transfer.group, 0):
                pending_transfers.append(transfer)
                continue
            if queue is Queue.STORES:
                self._stored.append(transfer)  # when it is written, is unknown
                transfer.free()
            else:
                transfer.complete()
            for thread in threads:
                who = np.array([transfer.group])
                self._clocks.completed(who, thread, agent, transfer.count)
        self._queued[queue, subgroup] = pending_transfers

    def finish(self, findings: Findings) -> None:
        """Reports ops without a wait, at the end of the work-items."""
        # Ops that signal an mbarrier need no commit.
        lost = [(t, True) for started in self._signalling.values() for t in started]
        lost += [(t, t.number != NO_GROUP) for started in self._queued.values() for t in started]
        for transfer in (*self._stored, *(t for t, _ in lost)):
            transfer.complete()
        for t, committed in lost:
            report_lost(t.storage, len(t.offsets), committed, t.site, findings)


def _groups(site: Site) -> list[int]:
    """The workgroups that run the site."""
    frame = site.frame
    active = True if frame.mask is None else frame.mask
    here, active = np.broadcast_arrays(frame.values[Identity.WORKGROUP], active)
    workgroups: list[int] = np.unique(here[active]).tolist()
    return workgroups


def _of_group(where: Where, group: int) -> Any:
    """The distinct offsets that lanes of that workgroup access."""
    offsets, mask, site = where
    groups = site.frame.values[Identity.WORKGROUP]
    arrays = np.broadcast_arrays(offsets, groups, True if mask is None else mask)
    return np.unique(arrays[0][(arrays[1] == group) & arrays[2]])
