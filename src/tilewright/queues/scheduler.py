"""The graph of all queues: the one place that changes the states of commands, under one lock."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.errors import QueueError
from tilewright.queues.events import (
    DONE,
    FAILED,
    HELD,
    READY,
    RUNNING,
    WAITING,
    Event,
    HeldList,
    Line,
)
from tilewright.queues.refusals import (
    closed_buffer,
    closed_queue,
    forked_queue,
    of_parent,
    skipped,
    submits_inside,
    waits_for_itself,
    waits_inside,
)
from tilewright.queues.spans import READ, WRITE, Span, Spans
from tilewright.queues.workers import Here, Workers

# What a command touches: the span of a buffer, or the bytes of an array of somebody else's, and
# what it does with them.
Touched = tuple[Span | tuple[int, int], int]


class Scheduler(Workers):
    """The graph, the commands that are ready, and the workers; there is one of a process."""

    def __init__(self) -> None:
        super().__init__()
        self.generation = 0
        # Queues, for those who leave.
        self.lines: weakref.WeakSet[Any] = weakref.WeakSet()
        # Spans of buffers that are garbage: finalizers must not take the lock.
        self.dropped: deque[Span] = deque()
        self._leaving = False
        self._reset()
        os.register_at_fork(
            before=self.lock.acquire,
            after_in_parent=self.lock.release,
            after_in_child=self._forked,
        )
        atexit.register(self._leave)

    def _reset(self) -> None:
        self.spans = Spans()
        self._without_workers()
        self._open: list[Event] = []  # host accesses that have the memory
        self._held: list[HeldList] = []  # to be fused

    def _forked(self) -> None:
        # The child has none of the workers: what was not finished never is, there.
        self.generation += 1
        self.here = Here()
        self._reset()
        self.lock.release()

    # Submission.

    def submit(
        self,
        event: Event,
        line: Line,
        touched: Sequence[Touched],
        after: Iterable[Event] = (),
        held: HeldList | None = None,
    ) -> None:
        """Puts ``event`` into the graph: behind the commands ``after``, whose success it needs, and
        those that touch the same memory; and into the list ``held``, unless that was let go. Does
        not wait.

        Raises `QueueError` where one of these failed that it needs, and where nothing can be
        submitted.
        """
        if not self._workers:
            self._hire()
        with self.lock:
            self._check(line)
            edges = [(before, True) for before in after]
            if line.in_order and line.unfinished:
                edges.append((next(reversed(line.unfinished)), False))
            event.line = line
            if held is not None and held.reason is None:
                event.held = held
            self._connect(event, touched, edges)
            line.unfinished[event] = None
            if event.held is not None:
                self._hold(event, event.held)
            elif not event.blockers:
                self._start(event)
        if self._ended:
            self._after(())

    def open(self, event: Event, touched: Sequence[Touched]) -> None:
        """As `submit`, of a host access: returns when the host has the memory, until `close`.

        Raises the error of a command that should have written it, and `QueueError` where this
        thread itself has what that waits for.
        """
        event.is_host = True
        with self.lock:
            self._check(None)
            self._connect(event, touched, [])
            if not event.blockers:
                self._start(event)
        self._after(())
        try:
            self._until(event, RUNNING)
        except BaseException:
            with self.lock:
                event.is_host = False  # it is finished as soon as it would have begun
                ended = self._end(event, None) if event.state is RUNNING else []
            self._after(ended)
            raise
        if event.error is not None:
            self.report(event)
            raise event.error
        self.here.open.append(event)

    def close(self, event: Event) -> None:
        """Ends a host access."""
        if event in self.here.open:
            self.here.open.remove(event)
        with self.lock:
            ended = [] if event.finished else self._end(event, None)
        self._after(ended)

    def _check(self, line: Line | None) -> None:
        """Raises `QueueError` where nothing can be submitted to ``line``, now and here."""
        if self.here.inside is not None:
            raise submits_inside(self.here.inside)
        if self._leaving:
            raise QueueError("the interpreter is ending", cure="submit before it does")
        if line is None:
            return
        if line.generation != self.generation:
            raise forked_queue()
        if line.closed:
            raise closed_queue()

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

    # Memory of buffers.

    def close_span(self, span: Span) -> None:
        """Returns when no command touches a buffer's ``span``; nothing can be submitted on it."""
        edges: list[tuple[Event, bool]] = []
        with self.lock:
            if span.closed:
                return
            span.before(READ | WRITE, edges)
        for event, _ in edges:
            if event.generation == self.generation:
                self.wait(event)
        with self.lock:
            if not span.closed:
                span.closed = True
                self.spans.remove(span)

    def _drop(self) -> None:
        while self.dropped:
            self.spans.remove(self.dropped.popleft())

    # Lists to be fused.

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

    # Changes of states: the lock is held.

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

    def _start(self, event: Event) -> None:
        """Nothing comes before ``event`` any more, which has work to do, or is the host's."""
        if event.is_host:
            event.state = RUNNING
            self._open.append(event)
            _release(event)
            return
        # Any worker takes it: one that was woken may get to run late.
        event.state = READY
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
                    self._start(after)
            _release(event)
            ended.append(event)
        return ended

    # Waiting.

    def wait(self, event: Event) -> None:
        """Returns when ``event`` is finished. Raises `QueueError` where that would never be."""
        if not event.finished:
            self._until(event, DONE)

    def _until(self, event: Event, state: object) -> None:
        """Returns when ``event`` is in ``state``, or finished."""
        with self.lock:
            if event.finished or event.state is state:
                return
            if event.generation != self.generation:
                raise of_parent(event)
            if self.here.inside is not None:
                raise waits_inside(self.here.inside, event)
            self._check_open(event)
            if event.held is not None:
                self._let_go(event.held, f"the host waits for {event.name}")
            waiter = threading.Lock()
            waiter.acquire()
            event.waiters.append(waiter)
            if event.finished:
                _release(event)
        self._after(())
        waiter.acquire()

    def _check_open(self, event: Event) -> None:
        """Raises `QueueError` where ``event`` is, or comes after, a host access of this thread."""
        behind, reached = list(self.here.open), set(self.here.open)
        while behind:
            for after, _ in behind.pop().dependents:
                if after not in reached:
                    reached.add(after)
                    behind.append(after)
        if event in reached:
            raise waits_for_itself(event)

    def call_back(self, event: Event, function: Callable[[Event], object]) -> None:
        """Calls ``function`` when ``event`` is finished."""
        with self.lock:
            if not event.finished:
                event.callbacks.append(function)
                return
        self._call(event, function)

    def report(self, event: Event) -> None:
        """Somebody sees the error of ``event``, which says what it comes from."""
        (event.cause or event).seen = True

    def failure(self, line: Line) -> Event | None:
        """The first command of ``line`` that failed, and whose error nobody has seen; nobody is
        told of the others any more."""
        with self.lock:
            failures = [event for event in line.failures if not (event.cause or event).seen]
            line.failures.clear()
        for event in failures:
            self.report(event)
        return failures[0] if failures else None

    def _leave(self) -> None:
        # At exit: what was submitted runs, and errors that nobody has seen are printed.
        with self.lock:
            self._leaving = True
            ended = [event for host in self._open[:] for event in self._end(host, None)]
        self._after(ended)
        self.here.open.clear()
        for line in list(self.lines):
            if line.generation != self.generation:
                continue
            for event in tuple(line.unfinished):
                self.wait(event)
            failed = self.failure(line)
            if failed is not None and failed.error is not None:
                print("an error of a queue that nobody waited for:", file=sys.stderr)
                traceback.print_exception(failed.error)


def _release(event: Event) -> None:
    """Wakes those who wait for ``event``."""
    for waiter in event.waiters:
        waiter.release()
    event.waiters.clear()


# The graph of this process.
SCHEDULER = Scheduler()
