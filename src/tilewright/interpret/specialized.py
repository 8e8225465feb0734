"""Subgroups that run different code, and wait for each other at mbarriers.

Each subgroup (of all workgroups of the frame at once) is a program of its own, which runs until it
must wait (`coroutines`). Vector clocks order their accesses (`clocks`). Nests over subgroups with
mbarriers or asynchronous ops inside run so; all others run in lockstep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.errors import UnsupportedError
from tilewright.interpret.barriers import Barrier
from tilewright.interpret.clocks import (
    ORDINARY,
    ClockLog,
    ClockRun,
    Clocks,
    subgroup_of,
    threads_of,
)
from tilewright.interpret.coroutines import Coroutines, Wait
from tilewright.interpret.findings import FaultKind, Findings
from tilewright.interpret.groups import GridRun, Synchronized, divergent
from tilewright.interpret.lanes import Frame, Identity, Site, fault
from tilewright.interpret.mbarriers import MBarriers
from tilewright.interpret.memory import Memory
from tilewright.interpret.races import VERBS, LanesRun, Run
from tilewright.interpret.storage import Started, Storage
from tilewright.interpret.transfers import Transfers
from tilewright.ir.buffer import Buffer, Space, part_extent
from tilewright.ir.functions import Group, Queue, Synchronize
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Stmt, View

# So many lanes go step by step on every device: those of larger subgroups are apart.
_IN_STEP = 32


class SpecializedLaunch(GridRun):
    """The subgroups of the workgroups of a frame, each a program of ``lanes`` lanes."""

    def __init__(
        self,
        outer: tuple[int, ...],
        threads: tuple[int, ...],
        lanes: int,
        memory: Memory,
        cluster: int = 0,
    ) -> None:
        """With a ``cluster``, the last of the ``outer`` axes is over so many workgroups that reach
        each other: they count as one, with the subgroups of all."""
        self._ranks = max(1, cluster)
        if cluster:
            outer, threads = outer[:-1], (cluster, *threads)
        super().__init__(outer, threads, lanes, lanes)
        self._memory = memory
        self.clocks = Clocks(self.workgroups, self.subgroups, self._ranks)
        self.transfers = Transfers(self.workgroups, self.clocks)
        self._coroutines = Coroutines(memory)
        self._mbarriers: dict[Storage, MBarriers] = {}
        self._barriers: dict[tuple[Group, range], Barrier] = {}
        # How often the lanes of each subgroup have met, and then, when it last waited at each
        # mbarrier.
        self._meetings = [0] * self.subgroups
        self._waits: dict[tuple[int, Storage], Any] = {}
        self._lanes: LanesRun | None = None

    def watch(self, start: int, stored: frozenset[Buffer], how: Synchronized) -> list[Run]:
        teams = self.workgroups * self.subgroups
        self._lanes = LanesRun(start, teams, self.items, stored, self.subgroups)
        return [ClockRun(self.clocks, self._lanes, self.lanes)]

    def run(self, execute: Callable[[Frame], None], frame: Frame) -> None:
        """``execute`` for each subgroup."""
        programs = []
        whole = [slice(0, size) for size in self.outer]
        for place in np.ndindex(self.threads):
            box = [*whole, *(slice(i, i + 1) for i in place)]
            part = frame.narrow(box).scope()
            programs.append(lambda part=part: execute(part))
        ended = self._coroutines.run(programs)
        self.transfers.finish(self._memory.findings if ended else Findings())
        if ended:
            self._check_ends(frame)

    def _check_ends(self, frame: Frame) -> None:
        """Reports accesses to the part of a workgroup that may have ended before them."""
        for storage in list(self._memory.storages.values()):
            buffer = storage.buffer
            logs = [log for _, log in storage.logs.values() if isinstance(log, ClockLog)]
            if buffer.space is not Space.CLUSTER or not logs:
                continue
            part = part_extent(buffer)
            for group, rank in np.ndindex(self.workgroups, self._ranks):
                start = (group * self._ranks + rank) * part
                members = self.clocks.members(rank)
                for log in logs:
                    where = slice(start, start + part)
                    late = log.after_end(self.clocks, where, group, members)
                    if late is not None:
                        self._report_late(buffer, late, rank, frame)

    def _report_late(self, buffer: Buffer, late: tuple[str, int], rank: int, frame: Frame) -> None:
        verb, agent = late
        site = Site(Allocate(buffer), frame)
        self._memory.findings.report(
            FaultKind.AFTER_END,
            site.stmt,
            1,
            lambda: fault(
                f"{self.clocks.agent(agent)} {VERBS[verb]} {buffer.name!r} of workgroup {rank}, "
                "which may have ended",
                site,
                (0,) * len(frame.shape),
                why="the memory of a workgroup is there until its subgroups end",
                cure="let all of the cluster meet at the end: call cluster_barrier()",
            ),
        )

    # Frames here are of one subgroup of each workgroup, with an axis of lanes or without.

    def _by_lane(self, values: Any, frame: Frame) -> Any:
        """``values`` per workgroup and lane: (workgroups, lanes or 1)."""
        return np.broadcast_to(values, frame.shape).reshape(self.workgroups, -1)

    def _here(self, frame: Frame, mask: Any = None) -> Any:
        """The mask of running lanes per workgroup: (workgroups, lanes or 1)."""
        here = self._by_lane(True if frame.mask is None else frame.mask, frame)
        return here if mask is None else here & self._by_lane(mask, frame)

    def _threads(self, here: Any, subgroup: int) -> list[tuple[int, Any]]:
        """The threads of `Clocks` that are here as wholes, each with its workgroups."""
        first, others = here[:, 0], here[:, 1:].all(axis=1) & here.any(axis=1)
        if here.shape[1] == 1:
            others = first
        here_whole = (np.flatnonzero(first), np.flatnonzero(others))
        return list(zip(threads_of(subgroup), here_whole, strict=True))

    def per_item(self, values: Any, frame: Frame) -> Any:
        result = np.zeros((self.workgroups, self.subgroups, self.lanes), np.asarray(values).dtype)
        result[:, subgroup_of(frame)] = self._by_lane(values, frame)
        return result.ravel()

    def work_items(self, frame: Frame, numbers: Any) -> Frame:
        width = frame.lanes // self.workgroups
        group, item = numbers // self.items, numbers % self.items
        items = frame.gather(group * width + (item % self.lanes if width > 1 else 0))
        items.values[Identity.WORK_ITEM] = item
        return items

    def started(self, frame: Frame, completion: View | Queue | None) -> Frame:
        """``frame`` for an asynchronous op of its subgroup with this completion."""
        inner = frame.scope()
        queue = completion if isinstance(completion, Queue) else None
        if queue is Queue.PRODUCTS:
            self._meetings[subgroup_of(frame)] += 1
        count = self.clocks.start(subgroup_of(frame))
        inner.values[Identity.ASYNCHRONOUS] = Started(count, queue)
        return inner

    # Synchronization.

    def synchronize(self, effect: Synchronize, site: Site, findings: Findings) -> None:
        """A barrier of the cluster, of the workgroup, or of the subgroup."""
        subgroup, here = subgroup_of(site.frame), self._here(site.frame)
        self._meetings[subgroup] += 1
        groups = np.flatnonzero(here.any(axis=1))
        if not np.array_equal(here.any(axis=1), here.all(axis=1)):
            self._report_divergent(effect.group, site, here, findings)
        threads = threads_of(subgroup)
        if effect.group is not Group.SUBGROUP:
            barrier = self._barrier(effect.group, subgroup)
            barrier.meet(subgroup, groups, self._coroutines, site)
        else:
            told = np.maximum(*(self.clocks.told(groups, thread) for thread in threads))
            for thread in threads:
                self.clocks.learn(groups, thread, told)
        self._order_lanes(subgroup, groups)

    def _barrier(self, group: Group, subgroup: int) -> Barrier:
        """The barrier where ``subgroup`` meets the others of its workgroup, or of the cluster."""
        members, name = range(self.subgroups), "a barrier of the cluster"
        if group is Group.WORKGROUP:
            members = self.clocks.members(subgroup * self._ranks // self.subgroups)
            name = "a barrier"
        key = (group, members)
        if key not in self._barriers:
            self._barriers[key] = Barrier(self.clocks, members, name)
        return self._barriers[key]

    def _order_lanes(self, subgroup: int, groups: Any) -> None:
        """Orders what the lanes of the subgroup did before what they will do."""
        if self._lanes is not None and len(groups):
            teams = np.zeros(self.workgroups * self.subgroups, np.bool_)
            teams[groups * self.subgroups + subgroup] = True
            self._lanes.renew(teams)

    def _report_divergent(self, group: Group, site: Site, here: Any, findings: Findings) -> None:
        partial = here.any(axis=1) & ~here.all(axis=1)
        missing = (~here & partial[:, None]).reshape(site.frame.shape)
        findings.report(
            FaultKind.DIVERGENT_BARRIER,
            site.stmt,
            int(np.count_nonzero(partial)),
            lambda: divergent(group, site, missing),
        )

    def commit(self, queue: Queue, frame: Frame) -> None:
        """Closes the newest group of ``queue`` of the subgroup."""
        groups = np.flatnonzero(self._here(frame).any(axis=1))
        self.transfers.commit(queue, subgroup_of(frame), groups)

    def complete(self, queue: Queue, pending: Any, frame: Frame) -> None:
        """Completes all but the newest ``pending`` groups of ``queue``."""
        groups = np.flatnonzero(self._here(frame).any(axis=1))
        left = self._by_lane(pending, frame)[groups, 0]
        self.transfers.complete(queue, subgroup_of(frame), groups, left)

    def fence(self, frame: Frame) -> None:
        """Asynchronous operations after it know what the lanes of the frame know."""
        for thread, groups in self._threads(self._here(frame), subgroup_of(frame)):
            self.clocks.fence(groups, thread)

    # mbarriers. Places are (storage, offsets, mask), as the frame has them.

    def mbarriers(self, storage: Storage) -> MBarriers:
        """Those in the buffer of ``storage``."""
        mbarriers = self._mbarriers.get(storage)
        if mbarriers is None:
            mbarriers = MBarriers(storage, self.clocks.agents, self._memory.findings)
            self._mbarriers[storage] = mbarriers
        return mbarriers

    def initialize(self, place: tuple[Storage, Any, Any], arrivals: Any, site: Site) -> None:
        """The elements at ``place`` become mbarriers."""
        storage, offsets, mask = place
        here = self._here(site.frame, mask)
        offsets, arrivals = (self._by_lane(v, site.frame)[here] for v in (offsets, arrivals))
        self.mbarriers(storage).initialize(offsets, arrivals, site)

    def arrive(self, place: tuple[Storage, Any, Any], bytes_: Any, site: Site) -> None:
        """One arrival per lane of the frame."""
        storage, offsets, mask = place
        here = self._here(site.frame, mask)
        if here.shape[1] > 1 and here.all():
            # No phase ends before all lanes are there.
            self._meetings[subgroup_of(site.frame)] += 1
        told = self._tell(here, subgroup_of(site.frame))
        offsets, bytes_ = (self._by_lane(v, site.frame)[here] for v in (offsets, bytes_))
        mbarriers = self.mbarriers(storage)
        initialized = mbarriers.check(offsets, site)
        mbarriers.arrive(offsets[initialized], told[initialized], bytes_[initialized], site)

    def _tell(self, here: Any, subgroup: int) -> Any:
        """The knowledge of each lane that is here, in their order."""
        groups, lanes = np.nonzero(here)
        told = np.zeros((len(groups), 2, self.clocks.agents), np.int64)
        first, (leader, others) = lanes == 0, threads_of(subgroup)
        told[first] = self.clocks.told(groups[first], leader)
        if here.shape[1] > 1:
            # What the other lanes did is told only if all of them are here.
            row = self.clocks.knowledge[:, others].copy()
            every = here[:, 1:].all(axis=1)
            row[~every, :, others] = 0
            told[~first] = row[groups[~first]]
            self.clocks.knowledge[every, others, ORDINARY, others] += 1
        return told

    def await_phase(self, place: tuple[Storage, Any, Any], parity: Any, site: Site) -> None:
        """Waits until the mbarriers' phases of that parity are over."""
        storage, offsets, mask = place
        here = self._here(site.frame, mask)
        subgroup, mbarriers = subgroup_of(site.frame), self.mbarriers(storage)
        offsets, parity = (self._by_lane(v, site.frame)[here] for v in (offsets, parity))
        initialized = mbarriers.check(offsets, site)
        places, parities = offsets[initialized], parity[initialized]

        def waiting() -> Any:
            return ~mbarriers.over(places, parities)

        def ready() -> bool:
            for offset in np.unique(places[waiting()]):
                self.transfers.deliver(mbarriers, int(offset))
            return not waiting().any()

        def what() -> str:
            offset = int(places[np.argmax(waiting())])
            number = offset % storage.concrete.layout.extent
            return (
                f"{self.clocks.name(subgroup)} waits at {storage.buffer.name}[{number}], whose "
                f"{mbarriers.state(offset)}"
            )

        self._check_late(subgroup, storage, places, site)
        self._coroutines.wait(Wait(ready, what, site))
        self._learn(here, subgroup, mbarriers.told(offsets))

    def _check_late(self, subgroup: int, storage: Storage, places: Any, site: Site) -> None:
        """Reports a wait at an mbarrier where lanes may still wait for an earlier phase: a parity
        does not tell a phase from the second after it."""
        if self.lanes <= _IN_STEP:
            return
        waits = self._waits.get((subgroup, storage))
        if waits is None:
            waits = self._waits[subgroup, storage] = np.full(storage.data.size, -1, np.int64)
        late = int(np.count_nonzero(waits[places] == self._meetings[subgroup]))
        waits[places] = self._meetings[subgroup]
        if late:
            self._memory.findings.report(
                FaultKind.MBARRIER,
                site.stmt,
                late,
                lambda: fault(
                    f"{self.clocks.name(subgroup)} waits at {storage.buffer.name!r} again, and its "
                    "lanes have not met since",
                    site,
                    (0,) * len(site.frame.shape),
                    why="a lane that is two phases late would wait for one that does not end",
                    cure="let the lanes meet between two waits: call subgroup_barrier()",
                ),
            )

    def _learn(self, here: Any, subgroup: int, told: Any) -> None:
        """Orders the lanes that are here after what ``told`` knows, one entry for each of them."""
        row = np.zeros((self.workgroups, 2, self.clocks.agents), np.int64)
        np.maximum.at(row, np.nonzero(here)[0], told)
        for thread, groups in self._threads(here, subgroup):
            self.clocks.learn(groups, thread, row[groups])
        _, others = threads_of(subgroup)
        counts = self.clocks.knowledge[:, others, ORDINARY, others]
        whole = here.all(axis=1) & (row[:, ORDINARY, others] >= np.maximum(counts - 1, 1))
        self._order_lanes(subgroup, np.flatnonzero(whole))


def specialized_launch(launches: list[GridRun], stmt: Stmt) -> SpecializedLaunch:
    """The innermost of ``launches``, for ``stmt``, which needs subgroups that act as one."""
    launch = launches[-1] if launches else None
    if isinstance(launch, SpecializedLaunch):
        return launch
    raise UnsupportedError(
        f"no subgroup acts as one here: {headline(stmt)}",
        why="mbarriers, and what runs asynchronously, are a subgroup's",
        cure="put it inside of a nest over work-items whose innermost loop is over subgroups",
    )
