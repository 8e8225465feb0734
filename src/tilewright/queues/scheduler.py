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
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

from tilewright.config import settings
from tilewright.errors import QueueError
from tilewright.queues.events import DONE, FAILED, READY, RUNNING, Event, Line
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

# What a command touches: the span of a buffer, or the bytes of an array of somebody else's, and
# what it does with them.
Touched = tuple[Span | tuple[int, int], int]


class _Here(threading.local):
    """What the present thread is doing: a worker's or a callback's words, of what may neither
    submit nor wait; and the host accesses that are open in it."""

    inside: str | None = None

    def __init__(self) -> None:
        self.open: list[Event] = []


class Scheduler:
    """The graph, the commands that are ready, and the workers; there is one of a process."""

    def __init__(self) -> None:
        self.generation = 0
        self.here = _Here()
        # Queues, for those who leave.
        self.lines: weakref.WeakSet[Any] = weakref.WeakSet()
        # Spans of buffers that are garbage: finalizers must not take the lock.
        self.dropped: deque[Span] = deque()
        self.lock = threading.Lock()
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
        self._ready: deque[Event] = deque()
        # What idle workers wait for.
        self._idle: list[threading.Lock] = []
        self._workers = 0
        self._running = 0
        # Host accesses that have the memory.
        self._open: list[Event] = []

    def _forked(self) -> None:
        # The child has none of the workers: what was not finished never is, there.
        self.generation += 1
        self.here = _Here()
        self._reset()
        self.lock.release()

    # Submission.

    def submit(
        self, event: Event, line: Line, touched: Sequence[Touched], after: Iterable[Event] = ()
    ) -> None:
        """Puts ``event`` into the graph: behind the commands ``after``, whose success it needs, and
        those that touch the same memory. Does not wait.

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
            self._connect(event, touched, edges)
            line.unfinished[event] = None
            if not event.blockers:
                self._start(event)

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

    # Changes of states: the lock is held.

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
                if after.blockers:
                    continue
                if after.cause is not None:
                    ending.append((after, skipped(after, after.cause)))
                elif after.work is None and not after.is_host:
                    ending.append((after, None))
                else:
                    self._start(after)
            _release(event)
            ended.append(event)
        return ended

    def _next(self, wake: threading.Lock) -> Event | None:
        """What a worker does now; None: it is idle until ``wake`` is released."""
        if not self._ready:
            self._idle.append(wake)
            return None
        event = self._ready.popleft()
        event.state = RUNNING
        self._running += 1
        return event

    # Workers.

    def _hire(self) -> None:
        count = settings().threads
        with self.lock:
            if self._workers:
                return
            self._workers = count
        for number in range(count):
            name = f"tilewright-queues-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        self.here.inside = "a host task"
        wake = threading.Lock()
        wake.acquire()
        while True:
            with self.lock:
                event = self._next(wake)
            if event is None:
                wake.acquire()
                continue
            error = self._run(event)
            with self.lock:
                self._running -= 1
                ended = self._end(event, error)
            self._after(ended)
            del event, ended, error  # what a worker has while it sleeps would not be freed

    def _run(self, event: Event) -> BaseException | None:
        assert event.line is not None and event.work is not None
        # Kernels that run at once share the threads: one that is alone gets all.
        threads = event.line.threads // max(1, self._running + len(self._ready))
        if event.submitted:
            event.started = perf_counter_ns()
        error: BaseException | None = None
        try:
            event.work(max(1, threads))
        except BaseException as raised:
            raised.add_note(f"in {event.name}, submitted at {event.place}")
            error = raised
        if event.submitted:
            event.ended = perf_counter_ns()
        return error

    def _after(self, ended: Sequence[Event]) -> None:
        """What is done without the lock when commands are finished: what they held may be freed,
        and callbacks are called."""
        for event in ended:
            event.work = event.keep = None
            for function in event.callbacks:
                self._call(event, function)
            event.callbacks.clear()

    def _call(self, event: Event, function: Callable[[Event], object]) -> None:
        before, self.here.inside = self.here.inside, "a callback"
        try:
            function(event)
        except BaseException as error:
            sys.unraisablehook(
                SimpleNamespace(
                    exc_type=type(error),
                    exc_value=error,
                    exc_traceback=error.__traceback__,
                    err_msg=f"a callback of {event.name}, submitted at {event.place}",
                    object=function,
                )
            )
        finally:
            self.here.inside = before

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
            waiter = threading.Lock()
            waiter.acquire()
            event.waiters.append(waiter)
        waiter.acquire()

    def _check_open(self, event: Event) -> None:
        """Raises `QueueError` where ``event`` comes after a host access of this thread."""
        behind, looked = list(self.here.open), set(self.here.open)
        while behind:
            for after, _ in behind.pop().dependents:
                if after is event:
                    raise waits_for_itself(event)
                if after not in looked:
                    looked.add(after)
                    behind.append(after)

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
