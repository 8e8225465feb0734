"""Launches: the work-items of workgroups as lanes, and barriers.

A perfect nest of workgroup, subgroup and lane loops is one *launch*: its iterations become lanes of
the frame, for all workgroups of the frame at once. Lanes run in lockstep, which stands for any
order that barriers allow, because runs of work-items are watched for races.

Where the nest ends with subgroups and has `lane` loops inside, the frame has a lane per subgroup,
and such a loop extends it. What a subgroup does as one counts as done by its first work-item.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import InterpreterFault, UnsupportedError
from tilewright.interpret.copies import Copies
from tilewright.interpret.findings import FaultKind, Findings
from tilewright.interpret.lanes import Frame, Identity, Site, fault, first_lane
from tilewright.interpret.races import CONCURRENT, LanesRun, Run, SubgroupsRun, TeamRun
from tilewright.ir.buffer import Buffer
from tilewright.ir.functions import (
    FUNCTIONS,
    Arrive,
    AwaitPhase,
    Fence,
    Group,
    Initialize,
    Synchronize,
)
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Block, Call, Compute, For, LoopKind, Stmt
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import nested, walk_stmts


def thread_nest(loop: For) -> tuple[list[For], Stmt]:
    """The loops of the perfect nest that begins with ``loop``, and the body of each work-item."""
    loops = [loop]
    while True:
        body = loops[-1].body
        while isinstance(body, Block) and len(body.body) == 1:
            body = body.body[0]
        if not isinstance(body, For) or body.kind not in THREADS:
            break
        loops.append(body)
    by_subgroups = loops[-1].kind is LoopKind.SUBGROUP
    for stmt in walk_stmts(body):
        if isinstance(stmt, For) and stmt.kind in THREADS:
            if by_subgroups and stmt.kind is LoopKind.LANE:
                continue
            raise UnsupportedError(
                f"the {stmt.kind.value} loop over {stmt.var.name!r} stands inside of what "
                f"work-items run",
                why="the loops over the work-items of a workgroup are one perfect nest",
                cure="move it outwards, next to the other loops over work-items",
            )
    return loops, body


def owns_calls(loop: For) -> bool:
    """Whether the iterations of ``loop`` (over workgroups, or threads of a CPU) call functions with
    effects themselves: not as work-items, nor in a loop of that kind inside."""
    pending = [loop.body]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, Call) and stmt.function in FUNCTIONS:
            if FUNCTIONS[stmt.function].effects:
                return True
        elif not isinstance(stmt, For) or stmt.kind not in (*THREADS, *CONCURRENT):
            pending += nested(stmt)
    return False


@dataclass(frozen=True)
class Synchronized:
    """The synchronization in a nest, which decides about the runs to watch."""

    clusters: bool
    subgroups: bool
    specialized: bool  # by mbarriers and asynchronous ops: subgroups may run different code


def synchronized(body: Stmt) -> Synchronized:
    """The synchronization of the work-items that run ``body``."""
    stmts = list(walk_stmts(body))
    effects = [
        effect
        for stmt in stmts
        if isinstance(stmt, Call) and stmt.function in FUNCTIONS
        for effect in FUNCTIONS[stmt.function].effects
    ]
    barriers = [effect for effect in effects if isinstance(effect, Synchronize)]
    return Synchronized(
        any(effect.group is Group.CLUSTER for effect in barriers),
        any(effect.group is Group.SUBGROUP for effect in barriers),
        any(isinstance(effect, Initialize | Arrive | AwaitPhase | Fence) for effect in effects)
        or any(isinstance(stmt, Compute) and stmt.completion is not None for stmt in stmts),
    )


class GridRun:
    """The work-items that run at one time: those of all workgroups of a frame.

    ``outer`` axes of its frame are over workgroups, the next ones over work-items; or, with
    ``lanes``, over subgroups of so many.
    """

    def __init__(
        self, outer: tuple[int, ...], threads: tuple[int, ...], subgroup: int, lanes: int = 0
    ) -> None:
        self.outer, self.threads, self.lanes = outer, threads, lanes
        self.workgroups, self.items = math.prod(outer), math.prod(threads) * max(1, lanes)
        self.subgroup = lanes or subgroup
        self.subgroups = -(-self.items // self.subgroup)
        self.copies = Copies(self)
        self.watched: dict[Group, TeamRun] = {}

    def run(self, execute: Callable[[Frame], None], frame: Frame) -> None:
        """``execute`` for all of them."""
        execute(frame)

    def identify(self, frame: Frame) -> None:
        """Enters the identities of its lanes in ``frame``, which has this launch's axes."""
        shape = (*self.outer, *(1 for _ in self.threads))
        item: Any = 0
        if self.threads:
            item = np.arange(0, self.items, max(1, self.lanes))
            item = item.reshape((*(1 for _ in self.outer), *self.threads))
        frame.values[Identity.WORK_ITEM] = item
        frame.values[Identity.LANES] = self.lanes
        frame.values[Identity.SUBGROUP] = item // self.subgroup
        frame.values[Identity.WORKGROUP] = (
            np.arange(self.workgroups).reshape(shape) if self.outer else 0
        )

    def on_lanes(self, frame: Frame, loop: For) -> Frame:
        """``frame``, of subgroups, with an axis for their lanes."""
        inner = frame.extend(loop.var, np.arange(self.lanes), loop.kind)
        first = inner.values[Identity.WORK_ITEM]
        inner.values[Identity.WORK_ITEM] = first + np.arange(self.lanes)
        return inner

    def per_item(self, values: Any, frame: Frame) -> Any:
        """``values``, one per lane of ``frame``, as one per work-item, in their order."""
        flat = np.broadcast_to(values, frame.shape).ravel()
        return np.repeat(flat, self.workgroups * self.items // len(flat))

    def running(self, frame: Frame) -> Any:
        """The mask of the work-items that run ``frame``, in the order of their numbers."""
        return self.per_item(True if frame.mask is None else frame.mask, frame)

    def work_items(self, frame: Frame, numbers: Any) -> Frame:
        """The work-items with these ``numbers`` (1-D, among all of the launch) as a frame."""
        items_per_lane = self.workgroups * self.items // frame.lanes
        items = frame.gather(numbers // items_per_lane)
        items.values[Identity.WORK_ITEM] = numbers % self.items
        return items

    def watch(
        self, start: int, stored: frozenset[Buffer], synchronized: Synchronized
    ) -> Sequence[Run]:
        """The runs to watch, with stamps from ``start`` on."""
        if self.items == 1:
            return []
        teams = self.workgroups
        if synchronized.subgroups:
            across = SubgroupsRun(start, teams, self.subgroups, stored)
            lanes = LanesRun(start, teams * self.subgroups, self.items, stored, self.subgroups)
            self.watched = {Group.WORKGROUP: across, Group.SUBGROUP: lanes}
        else:
            self.watched = {Group.WORKGROUP: TeamRun(start, teams, self.items, stored)}
        return list(self.watched.values())

    def synchronize(self, effect: Synchronize, site: Site, findings: Findings) -> None:
        """A barrier at ``site``."""
        if effect.group is Group.CLUSTER:
            raise UnsupportedError(
                f"no subgroup acts as one here: {headline(site.stmt)}",
                why="the workgroups of a cluster are told apart by their subgroups",
                cure="let a loop over subgroups be the innermost of the nest of work-items",
            )
        self._renew(effect.group, self._teams(effect.group, site, findings))

    def shuffle(self, values: Any, lanes: Any, site: Site, findings: Findings) -> Any:
        """``values`` of the lanes of the same subgroup that ``lanes`` says, for each lane of the
        site's frame. Reports missing lanes of a subgroup, and numbers of lanes outside of it."""
        frame = site.frame
        self._teams(Group.SUBGROUP, site, findings)
        wanted = np.broadcast_to(lanes, frame.shape)
        outside = (wanted < 0) | (wanted >= self.subgroup)
        if frame.mask is not None:
            outside = outside & frame.mask
        if np.any(outside):
            findings.report(
                FaultKind.OUT_OF_BOUNDS,
                site.stmt,
                int(np.count_nonzero(outside)),
                lambda: fault(
                    f"a shuffle from a lane that the subgroup of {self.subgroup} does not have",
                    site,
                    first_lane(outside),
                    why="its value differs from device to device",
                    cure="keep the lane within the subgroup",
                ),
            )
        rows = np.broadcast_to(values, frame.shape).reshape(-1, self.subgroup)
        places = np.clip(wanted, 0, self.subgroup - 1).reshape(-1, self.subgroup)
        return np.take_along_axis(rows, places, axis=1).reshape(frame.shape)

    def _count(self, group: Group) -> int:
        return self.workgroups * (self.subgroups if group is Group.SUBGROUP else 1)

    def _renew(self, group: Group, teams: Any) -> None:
        """Orders all accesses of ``teams`` (None: of all) before later ones."""
        for level, run in self.watched.items():
            if level is Group.WORKGROUP and group is Group.SUBGROUP:
                continue
            if teams is not None and self._count(level) != len(teams):
                run.renew(np.repeat(teams, self.subgroups))
            else:
                run.renew(teams)

    def _teams(self, group: Group, site: Site, findings: Findings) -> Any:
        """The teams that are at this barrier (None: all). Reports teams that are there in part."""
        frame = site.frame
        if frame.mask is None:
            return None
        mask = np.broadcast_to(frame.mask, frame.shape)
        # There are no axes inside of the launch's: they would be of loops without an order.
        parts = self.per_item(mask, frame).reshape(self.workgroups, self.items)
        if group is Group.SUBGROUP:
            pad = self.subgroups * self.subgroup - self.items
            # The last subgroup may be smaller: missing lanes count as its last one.
            parts = np.pad(parts, ((0, 0), (0, pad)), mode="edge")
            parts = parts.reshape(self._count(group), self.subgroup)
        some, every = parts.any(axis=1), parts.all(axis=1)
        if not np.array_equal(some, every):
            missing = ~mask
            if group is Group.WORKGROUP:
                inside = len(frame.shape) - len(self.outer)
                partial = (some & ~every).reshape((*self.outer, *(1 for _ in range(inside))))
                missing = missing & partial
            findings.report(
                FaultKind.DIVERGENT_BARRIER,
                site.stmt,
                int(np.count_nonzero(some & ~every)),
                lambda: divergent(group, site, missing),
            )
        return some


def divergent(group: Group, site: Site, missing: Any) -> InterpreterFault:
    """The error for a barrier at which the lanes ``missing`` do not come."""
    lane = first_lane(missing)
    return fault(
        f"divergent barrier: not all work-items of the {group.value} reach it",
        site,
        lane,
        why="a barrier waits for all of them; the values are those of one that does not come",
        cure=f"move the barrier out of what only some work-items of the {group.value} run",
    )
