"""Commands that are held, to become one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.errors import QueueError
from tilewright.queues.events import HELD, WAITING, Event, HeldList, Line
from tilewright.queues.graph import Graph, Touched
from tilewright.queues.refusals import closed_buffer
from tilewright.queues.spans import Span


class Lists(Graph):
    """The graph, with commands that are held in lists."""

    def _empty(self) -> None:
        super()._empty()
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
            for before, _ in edges if self._held else ():
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
        event.borrowed = borrowed
        for span, access in spans:
            span.claim(access, event)

    # Fusion mode.

    def hold(self, held: HeldList) -> None:
        """Begins a list."""
        with self.lock:
            self._held.append(held)

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
            held.reason = str(error)
            self._held.remove(held)
            for event in (*held.commands, held.placeholder):
                event.held = None
                if not event.finished:
                    self._ended += self._end(event, error)
        self._after(())

    def _hold(self, event: Event, held: HeldList) -> None:
        event.state = HELD
        event.blockers += 1  # until the list is let go
        event.dependents.append((held.placeholder, True))
        held.placeholder.blockers += 1
        held.commands.append(event)

    def _let_go(self, held: HeldList, reason: str) -> None:
        if held.reason is not None:
            return
        held.reason = reason
        self._held.remove(held)
        for event in (*held.commands, held.placeholder):
            event.held = None
            event.state = WAITING
            event.blockers -= 1
            if not event.blockers:
                if self._ends(event):
                    self._ended += self._end(event, self._outcome(event))
                else:
                    self._start(event)
