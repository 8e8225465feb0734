"""The graph of all commands that are not finished, and how their states change."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tilewright.queues.events import DONE, FAILED, READY, RUNNING, Event
from tilewright.queues.refusals import of_parent, skipped
from tilewright.queues.spans import Span, Spans
from tilewright.queues.workers import Workers

# What a command touches: the span of a buffer, or the bytes of an array of somebody else's, and
# what it does with them.
Touched = tuple[Span | tuple[int, int], int]


class Graph(Workers):
    """Commands, and which come after which. The lock is held by who calls its methods."""

    def __init__(self) -> None:
        super().__init__()
        self.generation = 0
        # Spans of buffers that are garbage: finalizers must not take the lock.
        self.dropped: deque[Span] = deque()
        self._empty()

    def _empty(self) -> None:
        self.spans = Spans()
        self._without_workers()
        self._open: list[Event] = []  # host accesses that have the memory

    def _blocking(
        self, event: Event, edges: Sequence[tuple[Event, bool]]
    ) -> list[tuple[Event, bool]]:
        """The ``edges`` from commands that are not finished."""
        blocking: list[tuple[Event, bool]] = []
        for edge in edges:
            before, needs = edge
            if before.state is DONE:
                continue
            if before.state is FAILED:
                if needs:
                    self.report(before)
                    raise skipped(event, before.cause or before)
            elif before.generation != self.generation:
                raise of_parent(before)
            else:
                blocking.append(edge)
        return blocking

    def report(self, event: Event) -> None:
        """Somebody sees the error of ``event``, which says what it comes from."""
        (event.cause or event).seen = True

    def _drop(self) -> None:
        while self.dropped:
            self.spans.remove(self.dropped.popleft())

    # Changes of states.

    @staticmethod
    def _ends(event: Event) -> bool:
        """Whether an event that nothing comes before any more has nothing to do."""
        return event.cause is not None or (event.work is None and not event.is_host)

    @staticmethod
    def _outcome(event: Event) -> BaseException | None:
        """The error of such an event: of a placeholder, that of its part."""
        cause = event.cause
        if cause is None:
            return None
        return cause.error if cause in event.parts else skipped(event, cause)

    def _start(self, event: Event, at_once: bool = False) -> None:
        """Nothing comes before ``event`` any more, which has work to do, or is the host's. With
        ``at_once`` it runs before others that are ready: its batch had its turn among them."""
        if event.is_host:
            event.state = RUNNING
            self._open.append(event)
            release(event)
            return
        # Any worker takes it: one that was woken may get to run late.
        event.state = READY
        if at_once:
            self._ready.appendleft(event)
        else:
            self._ready.append(event)
        if self._idle:
            self._idle.pop().release()

    def _end(self, event: Event, error: BaseException | None) -> list[Event]:
        """``event`` is finished, and what that ends or starts. Returns what it ends, which
        `_after` gets when the lock is free."""
        ended: list[Event] = []
        ending: list[tuple[Event, BaseException | None]] = [(event, error)]
        while ending:
            event, error = ending.pop()
            event.error = error
            event.state = DONE if error is None else FAILED
            if event.line is not None:
                del event.line.unfinished[event]
                if error is not None:
                    event.line.failures.append(event)
            elif event in self._open:
                self._open.remove(event)
            self.spans.give_back(event.borrowed)
            dependents, event.dependents = event.dependents, []
            for after, needs in dependents:
                if error is not None and needs and after.cause is None:
                    after.cause = event.cause or event
                after.blockers -= 1
                if after.blockers or after.finished:
                    continue
                if self._ends(after):
                    ending.append((after, self._outcome(after)))
                else:
                    batch = after.batch
                    self._start(after, batch is not None and batch.decision is event)
            release(event)
            ended.append(event)
        return ended


def release(event: Event) -> None:
    """Wakes those who wait for ``event``."""
    if event.waiters:
        for waiter in event.waiters:
            waiter.release()
        event.waiters = ()
