"""A fusion of a queue: the list that is held, what became of it, and the same list again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from tilewright.errors import FusionError, TilewrightError
from tilewright.newest import Newest
from tilewright.queues.events import Arguments, Event, HeldList, Line, Work, place_of
from tilewright.queues.fusing import FusedPlan, Fusions, Options, not_fused, replaced
from tilewright.queues.planning import Plan, key_of
from tilewright.queues.scheduler import SCHEDULER
from tilewright.recipes.fusing import FusionReport

# Memory on which a list came again, of which it is kept what runs.
_KEPT = 64


class Submission(NamedTuple):
    """What was submitted, and the results that it got. (Commands do not hold them: those that are
    finished stand in spans of plans, which are kept.)"""

    what: Any
    arguments: tuple[Any, ...]
    arrays: Mapping[str, Any]
    local: Any
    offset: Any
    tunables: Any
    results: Mapping[str, Any]


class Submits(Line, Protocol):
    """A queue, as its fusions see it."""

    last_fusion: Held | None
    profile: bool

    @property
    def fusing(self) -> bool: ...
    @property
    def complete_fusion(self) -> Callable[..., Event]: ...
    def start_fusion(self, *, records: bool = False) -> None: ...
    def cancel_fusion(self) -> None: ...
    def submit(self, what: Any, *arguments: Any, **options: Any) -> Event: ...


class Listed(NamedTuple):
    """What a command in a list has as long as the list is held: another thread may let it go at any
    time, and a command that is finished has nothing any more."""

    name: str
    plan: Plan
    arguments: Arguments
    work: Work | None


class Again(NamedTuple):
    """A list that comes again on the same memory: what runs, and what its kernels were planned to
    be. It holds no memory."""

    plan: FusedPlan
    parts: Sequence[Plan]

    @property
    def holds(self) -> bool:
        """Whether what the kernels take from outside is as it was."""
        return all(part.unchanged is None or part.unchanged() for part in self.parts)


class Held:
    """One fusion: its list, and the ``report`` of what became of it."""

    def __init__(self, queue: Submits, place: tuple[str, int], records: bool) -> None:
        self.event = Event("a fusion", SCHEDULER, place)
        self.held = HeldList(self.event)
        self.report: FusionReport | None = None
        # Whether the same list may come again; what was submitted, before the list was let go and
        # after it; and what the list is if it comes again.
        self.records = records
        self.submissions: list[Submission] = []
        self.again: Again | None = None
        self._queue = queue

    @property
    def names(self) -> list[str]:
        """What its kernels are called."""
        return [command.name for command in self.held.commands]

    def complete(self, options: Options, fusions: Fusions) -> None:
        """Fuses the list, or lets it go. Raises `FusionError` where fusing is required."""
        reason, report = self.held.reason, None
        if reason is None and len(self.held.commands) < 2:
            reason = "there is nothing to fuse: kernels are fused, two at least"
        if reason is None:
            try:
                report = self._fuse(options, fusions)
            except TilewrightError as error:
                reason = str(error)
        if report is not None:
            self.report = report
            return
        reason = self.held.reason or reason or ""
        if options.require:
            refused = FusionError(
                "the kernels of a fusion do not become one",
                where=f"begun at {self.event.place}",
                why=reason,
                cure="leave require= out: they run one by one then",
            )
            self.report = not_fused(self.names, reason)
            SCHEDULER.give_up(self.held, refused)
            raise refused
        SCHEDULER.let_go(self.held, reason)
        self.say()

    def _fuse(self, options: Options, fusions: Fusions) -> FusionReport | None:
        """The report of the fused kernel, which runs; None where the list was let go before."""
        with SCHEDULER.lock:
            if self.held.reason is not None:
                return None
            commands = self.held.commands
            parts: list[Plan] = [command.plan for command in commands]
            keep = [command.keep for command in commands]
            plan = fusions.kept(parts, options)
            if plan is None:
                listed = [Listed(c.name, c.plan, c.arguments, c.work) for c in commands]
        if plan is None:
            plan = fusions.plan(listed, options)
        if not options.check and all(part.lasts for part in parts):
            self.again = Again(plan, parts)
        event = fused_event(plan, self.names, self.event.where)
        event.keep = keep
        event.submitted = self.held.commands[0].submitted
        # Before it may have ended: its error is that of the placeholder.
        self.event.parts = (event,)
        if SCHEDULER.fuse(self.held, event, self._queue, plan.touched):
            return plan.report
        self.event.parts = self.held.commands
        return None

    def say(self) -> None:
        """The list was let go: its report says why."""
        self.report = not_fused(self.names, self.held.reason or "")


def fused_event(plan: FusedPlan, names: Sequence[str], place: tuple[str, int] | None) -> Event:
    """A new command that does what ``plan`` says, in place of those with ``names``."""
    event = Event(f"the fusion of {', '.join(names)}", SCHEDULER, place)
    event.work = plan.work
    return event


class FusionBlock:
    """A ``with`` whose kernels are fused at its end: ``event`` comes after them, ``report`` says
    what became of them."""

    def __init__(self, queue: Submits, options: Mapping[str, Any], place: tuple[str, int]) -> None:
        self._queue = queue
        self._options = options
        self._place = place
        self._fusion: Held | None = None
        self._again: Newest[tuple[Any, ...], Again] = Newest(_KEPT)

    def __enter__(self) -> FusionBlock:
        self._queue.start_fusion(records=True)
        self._fusion = self._queue.last_fusion
        self.event.where = self._place
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._queue.cancel_fusion()
            return
        self._queue.complete_fusion(**self._options)
        again = self._begun().again
        if again is not None:
            self._again[()] = again

    def _begun(self) -> Held:
        if self._fusion is None:
            raise FusionError("the fusion has not begun", cure="use it in a `with`")
        return self._fusion

    @property
    def event(self) -> Event:
        """The event of its kernels."""
        return self._begun().event

    @property
    def report(self) -> FusionReport:
        """What became of its kernels. Raises `FusionError` before the end of the block."""
        report = self._begun().report
        if report is None:
            raise FusionError("the fusion has not ended", cure="ask behind its `with`")
        return report

    def submit(self, replace: Sequence[tuple[Any, Any]] = ()) -> Event:
        """The same kernels again, fused in the same way, with other arguments: of each pair, the
        second one takes the place of the first."""
        pairs, place = list(replace), place_of(1)
        key = key_of([argument for pair in pairs for argument in pair])
        kept = None if key is None else self._again.get(key)
        if kept is not None and not self._queue.fusing and kept.holds:
            return self._at_once(kept, pairs, place)
        again = FusionBlock(self._queue, {}, place)
        with again:
            for was in self._begun().submissions:
                self._queue.submit(
                    was.what,
                    *(replaced(argument, pairs) for argument in was.arguments),
                    local=was.local,
                    offset=was.offset,
                    tunables=was.tunables,
                    **{name: replaced(array, pairs) for name, array in was.arrays.items()},
                )
                # Later kernels take the results that there are now.
                results = again._begun().submissions[-1].results
                pairs += [(old, results[name]) for name, old in was.results.items()]
            again._options = self._with_others(pairs)
        replay = again._begun().again
        if key is not None and replay is not None:
            self._again[key] = replay
        return again.event

    def _at_once(self, kept: Again, pairs: Sequence[Any], place: tuple[str, int]) -> Event:
        """The list again, on memory that it had before: nothing is held."""
        first = self._begun()
        event = fused_event(kept.plan, first.names, place)
        event.keep = (pairs, first.submissions)
        if self._queue.profile:
            event.submitted = perf_counter_ns()
        SCHEDULER.submit(event, self._queue, kept.plan.touched)
        self._queue.last_fusion = first
        return event

    def _with_others(self, pairs: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
        promote = self._options["promote"] or {}
        promoted = {replaced(buffer, pairs): scope for buffer, scope in promote.items()}
        return {**self._options, "promote": promoted}
