"""The threads that run commands, and the line of those that are ready."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from types import SimpleNamespace

from tilewright.config import settings
from tilewright.queues.events import RUNNING, Event


class Here(threading.local):
    """What the present thread is doing: a worker's or a callback's words, of what may neither
    submit nor wait; and the host accesses that are open in it."""

    inside: str | None = None

    def __init__(self) -> None:
        self.open: list[Event] = []


class Workers:
    """The workers of a scheduler, which says by `_end` what follows a command."""

    def __init__(self) -> None:
        self.here = Here()
        self.lock = threading.Lock()
        self._without_workers()

    def _without_workers(self) -> None:
        self._ready: deque[Event] = deque()
        # What idle workers wait for.
        self._idle: list[threading.Lock] = []
        self._workers = 0
        self._running = 0
        # Commands that ended while the lock was held, for `_after`.
        self._ended: list[Event] = []

    def _end(self, event: Event, error: BaseException | None) -> list[Event]:
        raise AssertionError("a scheduler knows what follows")

    def _next(self, wake: threading.Lock) -> Event | None:
        """What a worker does now; None: it is idle until ``wake`` is released."""
        if not self._ready:
            self._idle.append(wake)
            return None
        event = self._ready.popleft()
        event.state = RUNNING
        self._running += 1
        return event

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
                if event.line is not None and event.line.tracing is not None:
                    event.line.tracing.ran(event, error)
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
        if self._ended:
            with self.lock:
                ended = [*ended, *self._ended]
                self._ended.clear()
        for event in ended:
            event.work = event.keep = event.plan = None
            event.arguments = ()
            if event.callbacks:
                called, event.callbacks = event.callbacks, ()
                for function in called:
                    self._call(event, function)

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
