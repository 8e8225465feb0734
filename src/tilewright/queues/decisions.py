"""Which kernels of a batch become one kernel, without being told: those that are faster as one, by
predicted time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from tilewright.errors import TilewrightError
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.newest import Newest
from tilewright.queues.events import Batch, Event, Work
from tilewright.queues.fusing import Fusions, Options, not_fused, pattern_of
from tilewright.queues.planning import Launched
from tilewright.queues.scheduler import SCHEDULER
from tilewright.queues.spans import READ, WRITE, Span
from tilewright.recipes.fusing import FusionReport
from tilewright.schedule.fusion.members import ANY
from tilewright.schedule.groups import cut

# The seconds that workers need for a command, beside what its kernel takes.
_COMMAND = 10e-6
_KEPT = 256
# Kernels that become one: more take longer to schedule than they save.
_MOST = 8


class _Kind(Enum):
    """What a kernel does, as far as it says what may follow it in one kernel."""

    ELEMENTWISE = "elementwise"  # or work-items in Python
    REDUCES = "reduces"
    CONTRACTS = "contracts"


class _Uses(NamedTuple):
    """What the kernels of a batch do: their ``kernels``, the spans or bytes that they touch; for
    each kernel what it has ``touched`` (by position in these, with the access of each argument),
    what it ``reads`` and ``writes``, and the kernels that come ``before`` it; and the users of
    memory that is ``dead`` afterwards."""

    kernels: list[Launched]
    memory: list[Any]
    touched: list[list[tuple[int, int]]]
    reads: list[set[int]]
    writes: list[set[int]]
    before: list[set[int]]
    dead: dict[int, set[int]]


class _Dead(NamedTuple):
    """Memory that is promoted, in place of its buffer."""

    span: Span
    identity: int


class Decisions:
    """Decides for a queue, and keeps what was decided: the same kernels, on memory that is the same
    to each other, are decided once."""

    def __init__(self, fusions: Fusions) -> None:
        self._fusions = fusions
        # With the kernels, so that each `id` stays that one's.
        self._kinds: Newest[int, tuple[Kernel, _Kind]] = Newest(_KEPT)
        self._decided: Newest[tuple[Any, ...], tuple[int, FusionReport, Any]] = Newest(_KEPT)

    @property
    def reports(self) -> tuple[FusionReport, ...]:
        """What was decided, the newest last."""
        return tuple(report for _, report, _ in self._decided.copy().values())

    def decide(self, batch: Batch) -> None:
        """Makes one command of the kernels of ``batch`` that become one."""
        commands = batch.commands
        if len(commands) > 1:
            groups = self._groups(commands)
            if groups:
                SCHEDULER.merge(batch, groups)
        batch.commands, batch.waits = [], []

    def _groups(self, commands: Sequence[Event]) -> list[tuple[Sequence[Event], Work]]:
        uses = _uses(commands)
        kinds = [self._kind(launched.kernel) for launched in uses.kernels]
        groups: list[tuple[Sequence[Event], Work]] = []
        left = list(range(len(commands)))
        while left:
            members = _together(left, kinds, uses)
            if len(members) > 1:
                options, key = _pattern(uses, members, commands)
                kept = self._decided.get(key)
                if kept is None:
                    count, report = self._decided_anew(commands, members, uses)
                    kernels = [uses.kernels[n].kernel for n in members]
                    self._decided[key] = count, report, kernels
                else:
                    count = kept[0]
                if count < len(members):
                    members = members[:count]
                    options, key = _pattern(uses, members, commands)
            if len(members) > 1:
                part = [commands[n] for n in members]
                groups.append((part, self._fusions.plan(part, options, key).work))
            left = [n for n in left if n not in members]
        return groups

    def _decided_anew(
        self,
        commands: Sequence[Event],
        members: Sequence[int],
        uses: _Uses,
    ) -> tuple[int, FusionReport]:
        """How many of the kernels at ``members`` become one, from the first, so that they take less
        time; and why."""
        report = not_fused((), "")
        for count in range(len(members), 1, -1):
            part = [commands[n] for n in members[:count]]
            try:
                options, key = _pattern(uses, members[:count], commands)
                report = self._fusions.plan(part, options, key).report
            except TilewrightError as error:
                report = not_fused([command.name for command in part], str(error))
                continue
            times = report.predicted
            if times is None:
                return count, report
            gained = sum(times.members) + (count - 1) * _COMMAND - times.fused
            if gained > 0:
                return count, report
            reason = f"it would take {-gained * 1e6:.1f} us longer, as predicted"
            report = replace(report, fused=False, reason=reason)
        return 1, report

    def _kind(self, kernel: Kernel) -> _Kind:
        kept = self._kinds.get(id(kernel))
        if kept is None:
            kept = self._kinds[id(kernel)] = kernel, _kind_of(kernel)
        return kept[1]


def _uses(commands: Sequence[Event]) -> _Uses:
    numbers = {command: n for n, command in enumerate(commands)}
    memory: dict[Any, int] = {}
    uses = _Uses([], [], [], [], [], [set() for _ in commands], {})
    for n, command in enumerate(commands):
        launched: Launched = command.plan.launched
        touched = [
            (memory.setdefault(span, len(memory)), access)
            for _, (span, access) in launched.arrays.values()
        ]
        uses.kernels.append(launched)
        uses.touched.append(touched)
        uses.reads.append({place for place, access in touched if access & READ})
        uses.writes.append({place for place, access in touched if access & WRITE})
        for after, _ in command.dependents:
            if after in numbers:
                uses.before[numbers[after]].add(n)
    uses.memory.extend(memory)
    uses.dead.update(_dead(commands, uses))
    return uses


def _dead(commands: Sequence[Event], uses: _Uses) -> Iterator[tuple[int, set[int]]]:
    """The memory that nothing looks at after the ``commands``, by position, with those that touch
    it."""
    inside = set(commands)
    users: dict[int, set[int]] = {}
    for n, touched in enumerate(uses.touched):
        for place, _ in touched:
            users.setdefault(place, set()).add(n)
    for place, span in enumerate(uses.memory):
        if (
            span.__class__ is Span
            and span.dead
            and span.writer in inside
            and all(reader in inside or reader.finished for reader in span.readers)
        ):
            yield place, users[place]


def _pattern(
    uses: _Uses, members: Sequence[int], commands: Sequence[Event]
) -> tuple[Options, tuple[Any, ...]]:
    """How the kernels at ``members`` are fused, and what tells them from others: memory that is
    dead is promoted where all that touch it are among them."""
    inside, promote = set(members), list[tuple[Any, str]]()
    for place, users in uses.dead.items():
        if users <= inside:
            span = uses.memory[place]
            promote.append((_Dead(span, id(span)), ANY))
    options = Options(tuple(promote))
    kernels, passed = [uses.kernels[n] for n in members], [commands[n].arguments for n in members]
    return options, pattern_of(kernels, passed, options)


def _kind_of(kernel: Kernel) -> _Kind:
    computes = [stmt for stmt in walk_stmts(kernel.body) if isinstance(stmt, Compute)]
    if all(result.combiner is None for compute in computes for result in compute.results):
        return _Kind.ELEMENTWISE
    contracts = any(group.contracts for group in cut(kernel).groups)
    return _Kind.CONTRACTS if contracts else _Kind.REDUCES


def _together(left: Sequence[int], kinds: Sequence[_Kind], uses: _Uses) -> list[int]:
    """The first kernel that is ``left``, and those after it that may become one with it: they
    share memory, one of them reduces, and what comes before one of them is one of them, or comes
    before them all, so that groups never wait for each other in a circle."""
    first = left[0]
    members = [first]
    reduces = kinds[first] is not _Kind.ELEMENTWISE
    reads, writes = set(uses.reads[first]), set(uses.writes[first])
    for n in left[1:]:
        touched = uses.reads[n] | uses.writes[n]
        shares = touched & writes or (not reduces and touched & reads)
        if (
            not shares
            or kinds[n] is _Kind.CONTRACTS
            or (reduces and kinds[n] is _Kind.REDUCES)
            or any(place >= first and place not in members for place in uses.before[n])
        ):
            continue
        members.append(n)
        reduces = reduces or kinds[n] is _Kind.REDUCES
        reads |= uses.reads[n]
        writes |= uses.writes[n]
        if len(members) == _MOST:
            break
    return members
