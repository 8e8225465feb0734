"""Statements: runs a kernel, at any stage of its compilation, on numpy arrays.

What runs is the meaning of the IR, not a simulation of a machine: loops of all kinds run in order.
Loops whose iterations are independent run as lanes in lockstep, which is fast and gives the same.
Workgroups and their work-items always do, and are watched for races: where there is none, any other
order between two barriers gives the same. Subgroups that run different code take turns instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.errors import UnsupportedError
from tilewright.interpret.calls import Calls
from tilewright.interpret.computes import Computes
from tilewright.interpret.coroutines import Abandoned
from tilewright.interpret.findings import Findings, Raising
from tilewright.interpret.fragments import Fragments
from tilewright.interpret.groups import (
    GridRun,
    Synchronized,
    owns_calls,
    synchronized,
    thread_nest,
)
from tilewright.interpret.lanes import Frame, Identity, Site, anywhere
from tilewright.interpret.lockstep import Lockstep
from tilewright.interpret.memory import Memory
from tilewright.interpret.profile import Profile
from tilewright.interpret.races import CONCURRENT, WATCHED, WORKGROUPS, ParallelRun, Run
from tilewright.interpret.specialized import SpecializedLaunch
from tilewright.interpret.storage import Storage
from tilewright.interpret.values import Evaluator, scalar_values
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.printer import headline
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Compute,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Opaque,
    Stmt,
    Store,
    While,
)
from tilewright.ir.verify_groups import THREADS, lanes_inside
from tilewright.ir.visit import walk_stmts
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Hierarchy


def run(
    kernel: Kernel,
    arguments: Mapping[str, Any],
    *,
    hierarchy: Hierarchy | None = None,
    findings: Findings | None = None,
    profile: Profile | None = None,
    instructions: Sequence[Instruction] = (),
    repeats: int | None = None,
) -> bool:
    """Runs ``kernel`` on ``arguments`` by parameter name: flat memory (1-D, as `pack` makes it),
    and numbers for scalar parameters.

    Parameters that the kernel writes are updated in place; elements that it does not write stay.
    Returns whether anything was stored to them (True where the kernel may write none).
    ``hierarchy`` (or that of ``profile``, which is told of every access) says how many consecutive
    work-items form a subgroup where loops don't; without one, a subgroup barrier orders nothing.
    ``instructions`` are those of the machine: their operands in registers are checked.
    ``repeats`` is the most that a `while` may repeat; more is an `UnsupportedError`.

    `ArgumentError` for an argument that does not fit. `InterpreterFault` for an access out of
    bounds, a read of uninitialized memory, a store to an input, a data race, a barrier that not all
    work-items reach, a lane's access to another one's registers, a matrix that is not held as its
    instruction has it, an access to what an asynchronous copy has yet to write, a missing fence, a
    misused mbarrier, or a deadlock; but with ``findings``, such faults are collected there, and the
    kernel goes on (after a deadlock, without those who wait).
    """
    memory = Memory(Raising() if findings is None else findings, profile)
    values = scalar_values(kernel, arguments)
    memory.bind(kernel, arguments)
    if hierarchy is None and profile is not None:
        hierarchy = profile.hierarchy
    subgroup = 1 if hierarchy is None else hierarchy.subgroup
    # Infinities, NaNs and wrapping are values here, not mistakes.
    with np.errstate(all="ignore"):
        interpreter = _Interpreter(memory, subgroup, profile, Fragments(instructions), repeats)
        interpreter.run(kernel.body, Frame(values))
    written = [memory.storages[param.buffer] for param in kernel.arrays if param.access != "in"]
    return not written or any(storage.stored for storage in written)


class _Interpreter:
    def __init__(
        self,
        memory: Memory,
        subgroup: int,
        profile: Profile | None,
        fragments: Fragments,
        repeats: int | None,
    ) -> None:
        self._memory = memory
        self._repeats = math.inf if repeats is None else repeats
        self._subgroup = subgroup
        self._profile = profile
        self._evaluator = Evaluator(memory)
        self._calls = Calls(memory, self._evaluator)
        self._computes = Computes(memory, self._evaluator, self._calls.launches, fragments)
        self._lockstep = Lockstep(memory, self._evaluator)
        self._stamps = 0
        # By the id of a loop, which the kernel keeps alive.
        self._owners: dict[int, bool] = {}
        self._synchronized: dict[int, Synchronized] = {}
        self._run: dict[type[Stmt], Callable[[Any, Frame], None]] = {
            Block: self._block,
            Allocate: self._alone,
            For: self._for,
            While: self._while,
            Opaque: self._opaque,
            If: self._if,
            Let: self._let,
            Store: self._store,
            Call: self._calls.run,
            Compute: self._computes.run,
        }

    def run(self, body: Stmt, frame: Frame) -> None:
        """Runs a kernel's body. What stands outside of loops over workgroups runs once, alone."""
        if any(isinstance(stmt, Call) for stmt in walk_stmts(body)):
            self._launch(GridRun((), (), 1), body, frame)
        else:
            self.execute(body, frame)

    def execute(self, stmt: Stmt, frame: Frame) -> None:
        """Runs ``stmt`` in all lanes of ``frame``. A let adds to the frame's variables."""
        self._run[type(stmt)](stmt, frame)

    def _value(self, expr: Any, frame: Frame, stmt: Stmt) -> Any:
        return self._evaluator.evaluate(expr, frame, stmt)

    def _block(self, stmt: Block, frame: Frame) -> None:
        scope = frame.scope()
        allocated: list[tuple[Buffer, Storage | None]] = []
        try:
            for part in stmt.body:
                if isinstance(part, Allocate):
                    allocated.append((part.buffer, self._memory.allocate(part.buffer, scope)))
                else:
                    self.execute(part, scope)
        finally:
            for buffer, before in reversed(allocated):
                self._memory.release(buffer, before)

    def _alone(self, stmt: Allocate, frame: Frame) -> None:
        """An allocation that is a block of its own has no users."""

    def _let(self, stmt: Let, frame: Frame) -> None:
        frame.values[stmt.var] = self._value(stmt.value, frame, stmt)

    def _store(self, stmt: Store, frame: Frame) -> None:
        value = self._value(stmt.value, frame, stmt)
        index = [self._value(i, frame, stmt) for i in stmt.index]
        self._memory.store(stmt.buffer, index, value, Site(stmt, frame))

    def _if(self, stmt: If, frame: Frame) -> None:
        condition = self._value(stmt.condition, frame, stmt)
        if np.ndim(condition) and np.all(condition == condition.flat[0]):
            condition = condition.flat[0]  # no mask to carry along
        if not np.ndim(condition):
            chosen = stmt.then if condition else stmt.orelse
            if chosen is not None:
                self.execute(chosen, frame.scope())
            return
        self._masked(stmt.then, frame.restrict(condition))
        if stmt.orelse is not None:
            self._masked(stmt.orelse, frame.restrict(np.logical_not(condition)))

    def _opaque(self, stmt: Opaque, frame: Frame) -> None:
        self.execute(stmt.body, frame.scope())

    def _while(self, stmt: While, frame: Frame) -> None:
        """Lanes leave at different times: those whose condition does not hold any more are masked
        until the last one has left."""
        running = frame
        repeated = 0
        while True:
            if self._memory.abandoned:
                raise Abandoned
            condition = self._value(stmt.condition, running, stmt)
            if np.ndim(condition):
                running = running.restrict(condition)
                if not anywhere(running.mask):
                    return
            elif not condition:
                return
            if repeated >= self._repeats:
                raise UnsupportedError(
                    f"the while repeats more than {self._repeats} times",
                    where=headline(stmt),
                    span=stmt.span,
                    why="whether it ends for these arguments is unknown",
                    cure="let its condition end it for all arguments, say by counting",
                )
            repeated += 1
            self.execute(stmt.body, running.scope())

    def _masked(self, stmt: Stmt, frame: Frame) -> None:
        if anywhere(frame.mask):
            self.execute(stmt, frame)

    def _for(self, stmt: For, frame: Frame) -> None:
        if stmt.kind in THREADS:
            self._threads(stmt, frame)
            return
        extent = self._value(stmt.extent, frame, stmt)
        if self._reaches_across(stmt):
            # All of the cluster at once, since its workgroups wait for each other.
            whole = frame.extend(stmt.var, np.arange(int(extent)), stmt.kind)
            whole.values[Identity.CLUSTER] = int(extent)
            self._parallel_run(stmt, int(extent), lambda: self._iterate(stmt, whole))
            return
        if np.ndim(extent):
            self._parallel_run(stmt, int(np.max(extent)), lambda: self._ragged(stmt, frame, extent))
            return
        count = int(extent)
        size = self._lockstep.chunk(stmt, frame, count)
        if 1 < size == count and self._lockstep.safe(stmt, frame, 0, count):
            # Independent iterations cannot race: no need to watch them.
            self._lanes(stmt, frame, 0, count)
        else:
            self._parallel_run(stmt, count, lambda: self._in_chunks(stmt, frame, count, size))

    def _reaches_across(self, stmt: For) -> bool:
        """Whether ``stmt`` is over workgroups that synchronize, or use their cluster's memory."""
        if stmt.kind is not LoopKind.CLUSTER:
            return False
        nest = self._lockstep.nest(stmt)
        used = any(buffer.space is Space.CLUSTER for buffer in (*nest.stores, *nest.loads))
        return used or synchronized(stmt.body).clusters

    def _parallel_run(self, stmt: For, count: int, action: Callable[[], None]) -> None:
        """``action`` runs ``stmt``, whose accesses are checked for races if its kind is watched."""
        if stmt.kind not in WATCHED or count < 2:
            action()
            return
        stored = frozenset(self._lockstep.nest(stmt).stores)
        if stmt.kind is LoopKind.CLUSTER:
            # The launch watches accesses to the cluster's own memory.
            stored = frozenset(buffer for buffer in stored if buffer.space is not Space.CLUSTER)
        self._memory.runs.append(ParallelRun(stmt.var, self._stamps, stored, stmt.kind))
        self._stamps += count
        try:
            action()
        finally:
            self._memory.runs.pop()

    def _in_chunks(self, stmt: For, frame: Frame, count: int, size: int) -> None:
        for start in range(0, count, size):
            stop = min(start + size, count)
            # Workgroups have no order to keep: if they depend on each other, that is a race.
            unordered = stmt.kind in WORKGROUPS
            if stop - start > 1 and (unordered or self._lockstep.safe(stmt, frame, start, stop)):
                self._lanes(stmt, frame, start, stop)
            else:
                self._serial(stmt, frame, start, stop)

    def _lanes(self, stmt: For, frame: Frame, start: int, stop: int) -> None:
        self._iterate(stmt, frame.extend(stmt.var, np.arange(start, stop), stmt.kind))

    def _serial(self, stmt: For, frame: Frame, start: int, stop: int) -> None:
        scope = frame.scope()
        for iteration in range(start, stop):
            scope.values[stmt.var] = iteration
            self._iterate(stmt, scope)

    def _ragged(self, stmt: For, frame: Frame, extent: Any) -> None:
        """A loop whose extent differs from lane to lane."""
        for iteration in range(int(np.max(extent))):
            inner = frame.restrict(iteration < extent)
            inner.values[stmt.var] = iteration
            if anywhere(inner.mask):
                self._iterate(stmt, inner)

    def _iterate(self, stmt: For, frame: Frame) -> None:
        """The body of ``stmt``. Without loops over work-items, a workgroup is one work-item."""
        if stmt.kind in CONCURRENT:
            owner = self._owners.get(id(stmt))
            if owner is None:
                owner = self._owners[id(stmt)] = owns_calls(stmt)
            if owner:
                self._launch(GridRun(frame.shape, (), 1), stmt.body, frame.scope())
                return
        self.execute(stmt.body, frame)

    def _threads(self, stmt: For, frame: Frame) -> None:
        """The work-items of the workgroups that are lanes of ``frame``; or the lanes of its
        subgroups."""
        launch = self._calls.launches[-1] if self._calls.launches else None
        if launch is not None and launch.lanes and stmt.kind is LoopKind.LANE:
            self.execute(stmt.body, launch.on_lanes(frame, stmt))
            return
        loops, body = thread_nest(stmt)
        inner = frame
        for loop in loops:
            extent = self._value(loop.extent, inner, loop)
            if np.ndim(extent):
                raise UnsupportedError(
                    f"workgroups have different numbers of work-items: {headline(loop)}",
                    why="a kernel is launched with one size of workgroups",
                    cure="take the greatest, and let an `if` leave out work-items",
                )
            if extent <= 0:
                return
            inner = inner.extend(loop.var, np.arange(int(extent)), loop.kind)
        threads = inner.shape[len(frame.shape) :]
        lanes = [n for n, loop in zip(threads, loops, strict=True) if loop.kind is LoopKind.LANE]
        synchronization = self._synchronized.get(id(stmt))
        if synchronization is None:
            synchronization = self._synchronized[id(stmt)] = synchronized(body)
        axes = frame.shape, threads
        inside = lanes_inside(body)
        inner_launch: GridRun
        cluster = frame.values.get(Identity.CLUSTER, 0)
        if (synchronization.specialized or cluster) and loops[-1].kind is LoopKind.SUBGROUP:
            inner_launch = SpecializedLaunch(*axes, max(1, inside), self._memory, cluster)
        else:
            subgroup = math.prod(lanes) if lanes else self._subgroup
            inner_launch = GridRun(*axes, subgroup, inside)
        stored = frozenset(self._lockstep.nest(stmt).stores)
        self._launch(
            inner_launch, body, inner, inner_launch.watch(self._stamps, stored, synchronization)
        )

    def _launch(
        self, launch: GridRun, body: Stmt, frame: Frame, watched: Sequence[Run] = ()
    ) -> None:
        """Runs ``body`` in the work-items of ``launch``, from beginning to end."""
        launch.identify(frame)
        outside = len(self._memory.runs)
        self._memory.runs += watched
        self._calls.launches.append(launch)
        if self._profile is not None:
            self._profile.launches.append(launch)
        try:
            launch.run(partial(self.execute, body), frame)
        finally:
            del self._memory.runs[outside:]
            self._calls.launches.pop()
            if self._profile is not None:
                self._profile.launches.pop()
        self._stamps = max(self._stamps, *(run.last for run in watched), 0)
        launch.copies.finish(self._memory.findings)
