"""What threads ask of the graph of all queues, under its lock."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tilewright.errors import QueueError
from tilewright.queues.events import (
    DONE,
    RUNNING,
    Event,
    HeldList,
    Line,
)
from tilewright.queues.graph import Touched, release
from tilewright.queues.lists import Lists
from tilewright.queues.refusals import (
    closed_queue,
    forked_queue,
    of_parent,
    submits_inside,
    waits_for_itself,
    waits_inside,
)
from tilewright.queues.spans import READ, WRITE, Span
from tilewright.queues.workers import Here


class Scheduler(Lists):
    """The graph, the commands that are ready, and the workers; there is one of a process."""

    def __init__(self) -> None:
        super().__init__()
        # Queues, for those who leave.
        self.lines: weakref.WeakSet[Any] = weakref.WeakSet()
        self._leaving = False
        os.register_at_fork(
            before=self.lock.acquire,
            after_in_parent=self.lock.release,
            after_in_child=self._forked,
        )
        atexit.register(self._leave)

    def _forked(self) -> None:
        # The child has none of the workers: what was not finished never is, there.
        self.generation += 1
        self.here = Here()
        self._empty()
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
            edges = [(before, True) for before in after] if after else []
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

    def version(self, span: Span) -> int | None:
        """Which contents ``span`` has, for a command that reads it and is running: as many commands
        wrote it. None where a later one will write it, or others may have."""
        with self.lock:
            return span.version if span.written and not span.shared else None

    def share(self, span: Span) -> None:
        """The memory of ``span`` is given to the host, which may write it at any time."""
        with self.lock:
            for other in (span, *span.peers):
                other.shared = True

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
            event.waiters = (*event.waiters, waiter)
            if event.finished:
                release(event)
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
                event.callbacks = (*event.callbacks, function)
                return
        self._call(event, function)

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


# The graph of this process.
SCHEDULER = Scheduler()
