"""Data races: an element that one runner writes and another accesses, with no order between them.

Runners are iterations of a parallel loop, workgroups, or work-items. Each access carries a *stamp*:
the runner's number, counted from a base. Stamps below the base are of earlier accesses, which are
no races: a new run of a loop takes a new base, and so does a barrier. Per element and kind of
access, the least and the greatest stamp since the base are enough: another runner accessed the
element exactly when one of the two is not the runner's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from tilewright.errors import InterpreterFault
from tilewright.interpret.findings import FaultKind, Findings
from tilewright.interpret.lanes import Frame, Identity, Site, anywhere, at_lane, fault, together
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var
from tilewright.ir.stmt import LoopKind

# Loops over workgroups, concurrent loops, and loops whose iterations are watched unless they are
# independent. Tuples: the hash of an enum's member costs more than comparing it with three.
WORKGROUPS = (LoopKind.GRID, LoopKind.CLUSTER)
CONCURRENT = (*WORKGROUPS, LoopKind.PARALLEL)
# Vector lanes are concurrent, too: what one writes, no other may access in the same loop.
WATCHED = (*CONCURRENT, LoopKind.VECTOR)

# The other accesses that an access must be ordered with; writes, with each other too.
RIVALS = {"read": ("write", "atomic"), "write": ("read", "atomic"), "atomic": ("write", "read")}
_ATOMICS = "or update the element by an atomic operation (tw.atomic_add)"
VERBS = {"read": "reads", "write": "writes", "atomic": "updates"}


class Run(Protocol):
    """Runners that are not ordered with each other."""

    @property
    def stored(self) -> frozenset[Buffer]:
        """The buffers that they write."""

    @property
    def last(self) -> int:
        """The end of the stamps that it takes."""

    @property
    def epoch(self) -> object:
        """The identity of logs: a run of another epoch begins new ones."""

    def log(self, extent: int) -> Log:
        """A log of the accesses to a buffer of ``extent`` elements."""


class Log(Protocol):
    """The accesses to one buffer, as far as they matter to one `Run`."""

    def note(
        self,
        verb: str,
        place: tuple[Any, str],
        where: tuple[Any, Any, Site],
        findings: Findings | None,
    ) -> bool:
        """Notes the access ``where`` (offsets, mask, site); reports a fault, and returns whether
        there is one. ``place``: the run, and the name of the buffer."""


class StampedRun(Protocol):
    """Runners whose accesses are distinguished by stamps."""

    def stamps(self, frame: Frame) -> tuple[Any, Any]:
        """The stamp of each lane of ``frame``, and the base that it counts from."""

    def runner(self, number: int) -> str:
        """The name of the runner with that number."""

    def advice(self, name: str) -> tuple[str, str]:
        """Why runners are not ordered, and the cure for a race on the buffer called ``name``."""


class ParallelRun:
    """One run of a parallel loop, or of a loop over workgroups."""

    def __init__(
        self, var: Var, base: int, stored: frozenset[Buffer], kind: LoopKind = LoopKind.PARALLEL
    ) -> None:
        self.var, self.base, self.stored, self.kind = var, base, stored, kind
        self.last = base
        self.epoch: object = None  # stamps grow from run to run

    def log(self, extent: int) -> Log:
        return AccessLog(extent)

    def stamps(self, frame: Frame) -> tuple[Any, Any]:
        return np.asarray(frame.values[self.var]) + self.base, self.base

    def runner(self, number: int) -> str:
        what = "workgroup" if self.kind is LoopKind.GRID else "iteration"
        return f"{what} {self.var.name}={number}"

    def advice(self, name: str) -> tuple[str, str]:
        var = self.var.name
        if self.kind is LoopKind.GRID:
            cure = f"let each workgroup write its own part of {name}, {_ATOMICS}"
            return "workgroups run in any order, or at once, and nothing orders them", cure
        why = f"the iterations of the {self.kind.value} loop over {var!r} run in any order, "
        cure = f"let {var!r} select disjoint parts of {name!r}, allocate {name!r} inside the loop, "
        return why + "or at once", cure + "or make the loop serial"


class TeamRun:
    """Work-items of workgroups, or their subgroups as wholes, between two synchronizations.

    Each team (a workgroup, or a subgroup of one) has a base of its own, since a synchronization may
    be for some teams only.
    """

    def __init__(self, start: int, teams: int, members: int, stored: frozenset[Buffer]) -> None:
        self.stored = stored
        self.epoch: object = None  # stamps grow from run to run
        self._members = members
        self._bases = np.full(teams, start, np.int64)
        self._same: int | None = start  # the base, where all teams have the same
        self.last = start + members

    def log(self, extent: int) -> Log:
        return AccessLog(extent)

    def team(self, frame: Frame) -> Any:
        """The team of each lane."""
        return frame.values[Identity.WORKGROUP]

    def member(self, frame: Frame) -> Any:
        """Which member of its team each lane is."""
        return frame.values[Identity.WORK_ITEM]

    def stamps(self, frame: Frame) -> tuple[Any, Any]:
        base: Any = self._same
        if base is None:
            base = self._bases[self.team(frame)]
        return base + self.member(frame), base

    def renew(self, teams: Any) -> None:
        """Orders all accesses of ``teams`` (a mask, or None for all) before later ones."""
        start, self.last = self.last, self.last + self._members
        if teams is None or teams.all():
            self._bases[:] = start
            self._same = start
        else:
            self._bases[teams] = start
            self._same = None

    def runner(self, number: int) -> str:
        return f"work-item {number}"

    def advice(self, name: str) -> tuple[str, str]:
        why = "the work-items of a workgroup run in any order, or at once, up to the next barrier"
        cure = f"put a barrier between the accesses, let each work-item have its own {name}, "
        return why, cure + _ATOMICS


class SubgroupsRun(TeamRun):
    """The subgroups of workgroups, each as a whole: they are ordered by workgroup barriers only."""

    def member(self, frame: Frame) -> Any:
        return frame.values[Identity.SUBGROUP]

    def runner(self, number: int) -> str:
        return f"subgroup {number}"

    def advice(self, name: str) -> tuple[str, str]:
        why = "the subgroups of a workgroup run in any order, whatever orders lanes of one subgroup"
        return why, f"put a workgroup barrier between the accesses to {name}"


class LanesRun(TeamRun):
    """The lanes of each subgroup. Across subgroups, `SubgroupsRun` watches."""

    def __init__(
        self, start: int, teams: int, members: int, stored: frozenset[Buffer], subgroups: int
    ) -> None:
        super().__init__(start, teams, members, stored)
        self._subgroups = subgroups

    def team(self, frame: Frame) -> Any:
        values = frame.values
        return values[Identity.WORKGROUP] * self._subgroups + values[Identity.SUBGROUP]


class Accesses(NamedTuple):
    """Accesses of one statement: stamps, bases (or one) and offsets, 1-D, in the order of lanes;
    ``positions`` are the lanes that they are of, within ``shape``."""

    stamps: Any
    base: Any
    offsets: Any
    positions: Any
    shape: tuple[int, ...]

    def where(self, bad: Any) -> tuple[int, tuple[int, ...]]:
        """The first access for which ``bad`` holds, and its lane."""
        first = int(np.argmax(bad))
        position = first if self.positions is None else int(self.positions[first])
        return first, tuple(int(i) for i in np.unravel_index(position, self.shape))


def accesses(run: StampedRun, offsets: Any, mask: Any, frame: Frame) -> Accesses:
    """The accesses to ``offsets`` where ``mask`` holds."""
    stamps, base = run.stamps(frame)
    bases = [base] if np.ndim(base) else []
    if mask is None:
        arrays = together(stamps, offsets, *bases)
        shape, positions = arrays[0].shape, None
        stamps, offsets, *bases = (array.ravel() for array in arrays)
    else:
        chosen, *arrays = together(mask, stamps, offsets, *bases)
        shape, positions = chosen.shape, np.flatnonzero(chosen)
        stamps, offsets, *bases = (array[chosen] for array in arrays)
    return Accesses(stamps, bases[0] if bases else base, offsets, positions, shape)


class _Record:
    """Per element, the least and the greatest stamp of one kind of access since the base."""

    __slots__ = ("greatest", "least")

    def __init__(self, extent: int) -> None:
        self.least = np.full(extent, -1, np.int64)
        self.greatest = np.full(extent, -1, np.int64)

    def others(self, now: Accesses) -> Any:
        """Accesses to elements that another runner accessed since the base; None for none."""
        greatest = self.greatest[now.offsets]
        current = greatest >= now.base
        if not anywhere(current):
            return None
        raced = current & ((greatest != now.stamps) | (self.least[now.offsets] != now.stamps))
        return raced if anywhere(raced) else None

    def note(self, now: Accesses) -> None:
        stamps, base, offsets = now.stamps, now.base, now.offsets
        before = self.greatest[offsets]
        least = np.where(before < base, stamps, np.minimum(self.least[offsets], stamps))
        # Of several assignments to one element the last one stays, and stamps ascend with lanes.
        self.greatest[offsets] = np.maximum(before, stamps)
        self.least[offsets[::-1]] = least[::-1]


class AccessLog:
    """The accesses to one buffer, as far as they matter to one `Run`."""

    __slots__ = ("_extent", "_records")

    def __init__(self, extent: int) -> None:
        self._extent = extent
        self._records: dict[str, _Record] = {}

    def note(
        self,
        verb: str,
        place: tuple[StampedRun, str],
        where: tuple[Any, Any, Site],
        findings: Findings | None,
    ) -> bool:
        """A `Log`'s; the fault is a race."""
        offsets, mask, site = where
        now = accesses(place[0], offsets, mask, site.frame)
        raced = [
            (rival, bad)
            for rival in RIVALS[verb]
            if rival in self._records
            if (bad := self._records[rival].others(now)) is not None
        ]
        record = self._records.get(verb)
        if record is None:
            record = self._records[verb] = _Record(self._extent)
        record.note(now)
        if verb == "write":
            # With this write noted, writes by two lanes of this statement are found, too.
            bad = record.others(now)
            raced += [] if bad is None else [(verb, bad)]
        if not raced:
            return False
        if findings is not None:
            rival, bad = raced[0]
            count = int(np.count_nonzero(np.any([bad for _, bad in raced], axis=0)))
            findings.report(
                FaultKind.RACE,
                site.stmt,
                count,
                lambda: _race(self._records[rival], (rival, verb), place, now, bad, site),
            )
        return True


def _race(
    record: _Record,
    verbs: tuple[str, str],
    place: tuple[StampedRun, str],
    now: Accesses,
    bad: Any,
    site: Site,
) -> InterpreterFault:
    run, name = place
    first, lane = now.where(bad)
    offset, stamp = int(now.offsets[first]), int(now.stamps[first])
    base = int(at_lane(np.asarray(now.base), (first,)))
    other = int(record.least[offset])
    if other == stamp:
        other = int(record.greatest[offset])
    why, cure = run.advice(name)
    return fault(
        f"data race on {name!r}: {run.runner(other - base)} {VERBS[verbs[0]]} the element at "
        f"offset {offset} and {run.runner(stamp - base)} {VERBS[verbs[1]]} it",
        site,
        lane,
        why=why,
        cure=cure,
    )
