"""Commands that are held, to become one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import QueueError
from tilewright.queues.events import HELD, WAITING, Batch, Event, HeldList, Line, Work
from tilewright.queues.graph import Graph, Touched
from tilewright.queues.refusals import closed_buffer
from tilewright.queues.spans import Span


class Lists(Graph):
    """The graph, with commands that are held in lists."""

    def _empty(self) -> None:
        super()._empty()
        # Lists with commands: what is held of a queue that nobody has runs at the end, at least.
        self._held: list[HeldList] = []

    def _connect(
        self, event: Event, touched: Sequence[Touched], edges: list[tuple[Event, bool]]
    ) -> None:
        """Adds ``edges``, and those by memory, to a new event; none where it raises `QueueError`,
        because something failed whose success the event needs."""
        if self.dropped:
            self._drop()
        borrowed: list[Span] = []
        spans: list[tuple[Span, int]] = []
        try:
            for memory, access in touched:
                if memory.__class__ is tuple:
                    memory = self.spans.borrow(*memory)
                    borrowed.append(memory)
                elif memory.closed:  # type: ignore[union-attr]
                    raise closed_buffer(event.name)
                memory.before(access, edges)  # type: ignore[union-attr]
                spans.append((memory, access))  # type: ignore[arg-type]
            for before, _ in edges:
                if before.held is not None and before.held is not event.held:
                    reason = f"{event.name}, submitted at {event.place}, depends on {before.name}"
                    self._let_go(before.held, reason)
            blocking = self._blocking(event, edges)
        except QueueError:
            self.spans.give_back(borrowed)
            raise
        for before, needs in blocking:
            before.dependents.append((event, needs))
        event.blockers = len(blocking)
        if blocking and event.fuses and event.held is None and event.line is not None:
            self._gather(event, event.line, blocking)
        event.borrowed = borrowed
        for span, access in spans:
            span.claim(access, event)

    # Fusion mode.

    def let_go(self, held: HeldList, reason: str) -> None:
        """Ends a list, unless it has ended: its commands run one by one, in order."""
        with self.lock:
            self._let_go(held, reason)
        self._after(())

    def observe(self, event: Event) -> None:
        """The host looks at ``event``, which may be held."""
        held = event.held
        if held is not None:
            self.let_go(held, f"the host asks whether {event.name} is done")

    def fuse(self, held: HeldList, event: Event, line: Line, touched: Sequence[Touched]) -> bool:
        """Ends a list: ``event`` runs in place of its commands, which have nothing left to do, and
        after all that they come after. False where the list was let go before."""
        with self.lock:
            if held.reason is not None:
                return False
            for command in held.commands:
                command.work = None
            event.line, event.held = line, held
            self._connect(event, touched, [(command, True) for command in held.commands])
            line.unfinished[event] = None
            event.dependents.append((held.placeholder, True))
            held.placeholder.blockers += 1
            event.held = None
            self._let_go(held, "")
        self._after(())
        return True

    def give_up(self, held: HeldList, error: BaseException) -> None:
        """Ends a list whose commands do not run: they, and the placeholder, failed."""
        with self.lock:
            if held.reason is not None:
                return
            self._end_list(held, str(error))
            for event in (*held.commands, held.placeholder):
                event.held = None
                if not event.finished:
                    self._ended += self._end(event, error)
        self._after(())

    def _hold(self, event: Event, held: HeldList) -> None:
        if not held.commands:
            self._held.append(held)
        event.state = HELD
        event.blockers += 1  # until the list is let go
        event.dependents.append((held.placeholder, True))
        held.placeholder.blockers += 1
        held.commands.append(event)

    def _end_list(self, held: HeldList, reason: str) -> None:
        held.reason = reason
        if held.commands:
            self._held.remove(held)

    def _let_go(self, held: HeldList, reason: str) -> None:
        if held.reason is not None or held.placeholder.generation != self.generation:
            return
        self._end_list(held, reason)
        for event in (*held.commands, held.placeholder):
            event.held = None
            event.state = WAITING
            event.blockers -= 1
            if not event.blockers:
                if self._ends(event):
                    self._ended += self._end(event, self._outcome(event))
                else:
                    self._start(event)

    # Batches of kernels that may be fused without being told.

    def merge(self, batch: Batch, groups: Sequence[tuple[Sequence[Event], Work]]) -> None:
        """Makes one command of the commands in each of ``groups``: the first one does the work, and
        the others are finished when it is. The work of a decision calls it, before any of them
        runs: all that they come after is in the batch. Where one of them fails already, each is run
        or not by itself."""
        with self.lock:
            if any(command.cause is not None for command in batch.commands):
                return
            firsts = {command: group[0] for group, _ in groups for command in group}
            for command in batch.commands:
                edges, command.dependents = command.dependents, []
                for after, needs in edges:
                    first = firsts.get(after, after)
                    if first is firsts.get(command):
                        after.blockers -= 1
                        continue
                    after.blockers -= 1
                    first.blockers += 1
                    command.dependents.append((first, needs))
            for (first, *others), work in groups:
                first.work = work
                first.name = f"the fusion of {', '.join([first.name, *(o.name for o in others)])}"
                for other in others:
                    other.work, other.parts = None, (first,)
                    other.blockers += 1
                    first.dependents.append((other, True))

    def _gather(self, event: Event, line: Line, blocking: Sequence[tuple[Event, bool]]) -> None:
        """Puts a kernel that comes after the commands ``blocking`` into the batch of its queue, or
        into a new one."""
        batch = line.batch
        if batch is None or not batch.takes(blocking):
            batch = line.batch = self._batch(event, line, blocking)
        event.batch = batch
        batch.commands.append(event)
        batch.decision.dependents.append((event, False))
        event.blockers += 1

    def _batch(self, event: Event, line: Line, blocking: Sequence[tuple[Event, bool]]) -> Batch:
        decision = Event("a decision what to fuse", event.scheduler, event.where)
        batch = Batch(decision, [before for before, _ in blocking])
        decision.line, decision.submitted = line, event.submitted
        decide = line.decide
        assert decide is not None

        def work(threads: int) -> None:
            decide(batch)

        decision.work = work
        line.unfinished[decision] = None
        for before in batch.waits:
            before.dependents.append((decision, False))
        decision.blockers = len(batch.waits)
        return batch
