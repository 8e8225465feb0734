"""Order between subgroups that run different code: vector clocks.

Each subgroup has several *agents*: its first lane, which does what the subgroup does as one; its
other lanes, which take part in instructions of all lanes; and its asynchronous operations, an agent
for each way of completing them (a wait for products tells nothing of stores). An agent counts how
often it told others of its accesses, and each access carries that count. Each thread knows up to
which count it comes after the accesses of each agent: it learns so by waiting for those who told.
Two accesses of an element, one a write, are a race where the second thread does not know the first
access.

Asynchronous operations see memory through a proxy: they know ordinary writes only as far as a fence
made these known. That is a second row of counts beside the first one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.errors import InterpreterFault
from tilewright.interpret.findings import FaultKind, Findings
from tilewright.interpret.lanes import Frame, Identity, Site, fault
from tilewright.interpret.races import RIVALS, VERBS, AccessLog, LanesRun
from tilewright.interpret.storage import Started
from tilewright.ir.functions import Queue
from tilewright.ir.stmt import Compute

# The two rows of a thread's knowledge: for ordinary accesses, and for asynchronous ones.
ORDINARY, FENCED = 0, 1
# Ways of completing an asynchronous operation (None: it signals an mbarrier).
_KINDS = (None, *Queue)


def subgroup_of(frame: Frame) -> int:
    """The one subgroup of each workgroup that runs ``frame``."""
    return int(np.max(frame.values[Identity.SUBGROUP]))


def threads_of(subgroup: Any) -> tuple[Any, Any]:
    """The numbers of the first lane of ``subgroup`` and of its other lanes, as agents."""
    return 2 * subgroup, 2 * subgroup + 1


class Clocks:
    """The knowledge of the threads of ``groups`` workgroups of ``subgroups`` subgroups.

    ``knowledge[group, thread, row, agent]``: the count up to which it knows the agent's accesses.
    Agents are numbered: threads first (the first lane of each subgroup, and its other lanes, in
    turn), then the asynchronous operations of each subgroup, by their completion.
    """

    def __init__(self, groups: int, subgroups: int, workgroups: int = 1) -> None:
        """``groups`` without an order between them: of one workgroup each, or of the ``workgroups``
        of a cluster, whose subgroups are numbered consecutively."""
        self.subgroups, self._in_workgroup = subgroups, subgroups // workgroups
        self.threads, self.agents = 2 * subgroups, (2 + len(_KINDS)) * subgroups
        self.knowledge = np.zeros((groups, self.threads, 2, self.agents), np.int64)
        threads = np.arange(self.threads)
        self.knowledge[:, threads, ORDINARY, threads] = 1
        self._started = np.zeros(subgroups, np.int64)

    def start(self, subgroup: int) -> int:
        """The count of the next asynchronous operation of ``subgroup``."""
        self._started[subgroup] += 1
        return int(self._started[subgroup])

    def asynchronous(self, subgroup: int, queue: Queue | None) -> int:
        """The agent of the asynchronous operations of ``subgroup`` in ``queue`` (None: of those
        that signal mbarriers)."""
        return self.threads + _KINDS.index(queue) * self.subgroups + subgroup

    def told(self, groups: Any, thread: int) -> Any:
        """The knowledge of ``thread`` of ``groups`` (1-D), which counts on."""
        told = self.knowledge[groups, thread].copy()
        self.knowledge[groups, thread, ORDINARY, thread] += 1
        return told

    def learn(self, groups: Any, thread: int, told: Any) -> None:
        """Orders ``thread`` of ``groups`` after what ``told`` knows."""
        self.knowledge[groups, thread] = np.maximum(self.knowledge[groups, thread], told)

    def fence(self, groups: Any, thread: int) -> None:
        """Asynchronous operations that come after know what ``thread`` knows."""
        self.knowledge[groups, thread, FENCED] = self.knowledge[groups, thread, ORDINARY]
        self.knowledge[groups, thread, ORDINARY, thread] += 1

    def completed(self, groups: Any, thread: int, agent: int, count: int) -> None:
        """Orders ``thread`` after the operations of ``agent`` up to ``count``."""
        row = self.knowledge[groups, thread, :, agent]
        self.knowledge[groups, thread, :, agent] = np.maximum(row, count)

    def agent(self, number: int) -> str:
        """The description of that agent."""
        who = self.name(self.subgroup_of(number))
        if number >= self.threads:
            return f"what {who} started"
        return f"another lane of {who}" if number % 2 else who

    def subgroup_of(self, agent: int) -> int:
        """The subgroup of that agent."""
        return (agent - self.threads) % self.subgroups if agent >= self.threads else agent // 2

    def members(self, workgroup: int) -> range:
        """The subgroups of that workgroup of a cluster."""
        return range(workgroup * self._in_workgroup, (workgroup + 1) * self._in_workgroup)

    def name(self, subgroup: int) -> str:
        """The description of that subgroup."""
        if self._in_workgroup == self.subgroups:
            return f"subgroup {subgroup}"
        workgroup, number = divmod(subgroup, self._in_workgroup)
        return f"subgroup {number} of the cluster's workgroup {workgroup}"


class ClockRun:
    """The subgroups of a launch, for the race checker (a `races.Run`).

    Lanes of one subgroup, which run the same code, are watched by ``within``.
    """

    def __init__(self, clocks: Clocks, within: LanesRun, lanes: int) -> None:
        self.clocks, self.within, self.stored = clocks, within, within.stored
        self._lanes = lanes
        self.epoch: object = self  # clocks begin anew in each launch

    @property
    def last(self) -> int:
        """The end of the stamps that the lanes take."""
        return self.within.last

    def threads(self, frame: Frame) -> Any:
        """The thread of each lane of ``frame``."""
        lane = frame.values[Identity.WORK_ITEM] % self._lanes
        first, others = threads_of(frame.values[Identity.SUBGROUP])
        return np.where(lane == 0, first, others)

    def log(self, extent: int) -> ClockLog:
        """A log of accesses to a buffer of that many elements."""
        return ClockLog(extent)


class ClockLog:
    """The last count with which each agent accessed the elements of a buffer (a `races.Log`)."""

    __slots__ = ("_counts", "_extent", "_within")

    def __init__(self, extent: int) -> None:
        self._extent = extent
        self._counts: dict[tuple[str, int], Any] = {}
        self._within: dict[int, AccessLog] = {}  # of the lanes of each subgroup

    def note(
        self,
        verb: str,
        place: tuple[ClockRun, str],
        where: tuple[Any, Any, Site],
        findings: Findings | None,
    ) -> bool:
        """Notes the access ``where`` (offsets, mask, site); reports a race or a missing fence, and
        returns whether there is one. ``place``: the run, and the name of the buffer."""
        run, name = place
        offsets, mask, site = where
        clocks, frame = run.clocks, site.frame
        started = frame.values.get(Identity.ASYNCHRONOUS)
        subgroup = subgroup_of(frame)
        raced = False
        if started is None and frame.threads:
            within = self._within.setdefault(subgroup, AccessLog(self._extent))
            raced = within.note(verb, (run.within, name), where, findings)
        arrays = np.broadcast_arrays(
            offsets,
            frame.values[Identity.WORKGROUP],
            run.threads(frame),
            True if mask is None else mask,
        )
        places = None if mask is None else np.flatnonzero(arrays[3])
        offsets, groups, threads = (
            a.ravel() if places is None else a.ravel()[places] for a in arrays[:3]
        )
        lanes = len(offsets)
        if started is None and _together(site):
            # The instruction decides which lane accesses which element: any may.
            offsets, groups = np.tile(offsets, 2), np.tile(groups, 2)
            threads = np.repeat(threads_of(subgroup), lanes)
        now = (offsets, groups, threads)
        bad, rival, kind = self._rivals(clocks, verb, now, subgroup, started)
        if started is None:
            counts = clocks.knowledge[groups, threads, ORDINARY, threads]
            for thread in threads_of(subgroup):
                mine = threads == thread
                if mine.any():
                    self._record(verb, thread)[offsets[mine]] = counts[mine]
        else:
            self._record(verb, clocks.asynchronous(subgroup, started.queue))[offsets] = (
                started.count
            )
        if bad is None or raced:
            return raced
        if findings is not None:
            first = int(np.argmax(bad))
            position = first % lanes
            lane = np.unravel_index(
                position if places is None else int(places[position]), arrays[0].shape
            )
            agent = threads[first]
            if started is not None:
                agent = clocks.asynchronous(subgroup, started.queue)
            who = (clocks.agent(rival[1]), rival[0], clocks.agent(int(agent)), verb)
            element = (name, int(offsets[first]))
            error = _race if kind is FaultKind.RACE else _unfenced
            findings.report(
                kind,
                site.stmt,
                int(np.count_nonzero(bad)),
                lambda: error(who, element, site, tuple(int(i) for i in lane)),
            )
        return True

    def after_end(
        self, clocks: Clocks, part: slice, group: int, members: range
    ) -> tuple[str, int] | None:
        """An access (its verb and agent) to the elements in ``part`` by other subgroups than
        ``members`` that none of these waits for before its end: the workgroup may be gone."""
        threads = [thread for subgroup in members for thread in threads_of(subgroup)]
        for (verb, agent), record in self._counts.items():
            if clocks.subgroup_of(agent) in members:
                continue
            latest = clocks.knowledge[group, threads, ORDINARY, agent].max()
            if (record[part] > latest).any():
                return verb, agent
        return None

    def _record(self, verb: str, agent: int) -> Any:
        counts = self._counts.get((verb, agent))
        if counts is None:
            counts = self._counts[verb, agent] = np.zeros(self._extent, np.int64)
        return counts

    def _rivals(
        self,
        clocks: Clocks,
        verb: str,
        now: tuple[Any, Any, Any],
        subgroup: int,
        started: Started | None,
    ) -> tuple[Any, tuple[str, int], FaultKind]:
        """The accesses without an order with an earlier one (None: none), the verb and agent of
        that one, and the kind of fault."""
        offsets, groups, threads = now
        if not len(offsets):
            return None, ("", 0), FaultKind.RACE
        mine = list(threads_of(subgroup))
        verbs = (*RIVALS[verb], *(("write",) if verb == "write" else ()))
        for (other, agent), record in self._counts.items():
            if other not in verbs:
                continue
            counts = record[offsets]
            fenced = started is not None and agent < clocks.threads and other != "read"
            # Quick check: mostly, all of the subgroup's threads know all of it.
            rows = slice(ORDINARY, FENCED + fenced)
            if counts.max() <= clocks.knowledge[:, mine, rows, agent].min():
                continue
            bad = counts > clocks.knowledge[groups, threads, ORDINARY, agent]
            if agent < clocks.threads:
                bad &= threads != agent
            if bad.any():
                return bad, (other, agent), FaultKind.RACE
            if fenced:
                bad = counts > clocks.knowledge[groups, threads, FENCED, agent]
                if bad.any():
                    return bad, (other, agent), FaultKind.MISSING_FENCE
        return None, ("", 0), FaultKind.RACE


def _together(site: Site) -> bool:
    """Whether the lanes of a subgroup carry the statement out as one instruction."""
    stmt = site.stmt
    return isinstance(stmt, Compute) and stmt.instruction is not None and not site.frame.threads


def _race(
    who: tuple[str, str, str, str], place: tuple[str, int], site: Site, lane: tuple[int, ...]
) -> InterpreterFault:
    other, before, me, now = who
    return fault(
        f"data race on {place[0]!r}: {other} {VERBS[before]} the element at offset {place[1]} and "
        f"{me} {VERBS[now]} it",
        site,
        lane,
        why="subgroups run in any order, but for barriers, mbarriers and waits",
        cure=f"let one wait until the other is done with {place[0]}, which arrives at an mbarrier",
    )


def _unfenced(
    who: tuple[str, str, str, str], place: tuple[str, int], site: Site, lane: tuple[int, ...]
) -> InterpreterFault:
    other, _, me, now = who
    return fault(
        f"missing fence: {other} writes the element of {place[0]!r} at offset {place[1]}, and {me} "
        f"{VERBS[now]} it",
        site,
        lane,
        why="asynchronous operations see memory through a proxy, which may lag behind",
        cure="call fence_async() after the writes, before the barrier that tells of them",
    )
