"""Events: what a caller has of a command, and the nodes of the graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from tilewright.errors import QueueError


class Scheduler(Protocol):
    """What events ask of `scheduler.Scheduler`."""

    generation: int

    def observe(self, event: Event) -> None: ...
    def wait(self, event: Event) -> None: ...
    def report(self, event: Event) -> None: ...
    def call_back(self, event: Event, function: Callable[[Event], object]) -> None: ...


class Line(Protocol):
    """What the scheduler knows of a queue: ``unfinished`` are its commands in the order in which
    they were submitted, ``failures`` those whose errors nobody has seen, ``threads`` run a kernel
    that runs alone. ``generation`` counts the forks before it. ``tracing`` is told what ran."""

    in_order: bool
    closed: bool
    generation: int
    threads: int
    unfinished: dict[Event, None]
    failures: list[Event]
    tracing: Any
    # Of a queue that fuses without being told: what becomes of a batch, and the newest batch.
    decide: Callable[[Batch], None] | None
    batch: Batch | None


class State(Enum):
    """Where a command is between its submission and its end; `tilewright.queues` says what leads
    from one to the next."""

    HELD = "held"
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


HELD, WAITING, READY, RUNNING = State.HELD, State.WAITING, State.READY, State.RUNNING
DONE, FAILED = State.DONE, State.FAILED

# Arguments of a command: by place of a launch, else by name.
Arguments = Mapping[Any, Any] | tuple[Any, ...]
# What a command does, with so many threads.
Work = Callable[[int], None]


class Profile(NamedTuple):
    """When a command was submitted, began and ended: ns of `time.perf_counter_ns`."""

    submit: int
    start: int
    end: int


def place_of(depth: int) -> tuple[str, int]:
    """The place that called the function ``depth`` calls above."""
    frame = sys._getframe(depth + 1)
    return frame.f_code.co_filename, frame.f_lineno


class Event:
    """A command that was submitted: `wait` for it, ask whether it is `done`.

    ``name`` says what it is, ``place`` where it was submitted (``file:line``), ``results`` has the
    buffers for results of a kernel that the caller did not give, by name.
    """

    # Defaults of the class: a submission sets few of them, and takes microseconds.
    state: State = State.WAITING
    work: Work | None = None
    results: Mapping[str, Any] = {}
    error: BaseException | None = None
    # What the command holds on to until it is finished.
    keep: Any = None
    # Edges from commands that are not finished, and those to later ones: with each, whether that
    # one needs what this one writes.
    blockers = 0
    # What failed first, where this one failed because it needs what that should have written.
    cause: Event | None = None
    # Somebody was told that this one failed.
    seen = False
    # The list to be fused that holds it; what it runs, on which arguments (by place or name).
    held: HeldList | None = None
    plan: Any = None
    arguments: Arguments = ()
    # Whether it may become a part of one kernel without being told, and the kernels among which.
    fuses = False
    batch: Batch | None = None
    # The commands whose times and errors are its own, of the placeholder of a fusion.
    parts: Sequence[Event] = ()
    # Whether the host has the memory while the command runs: no worker runs it.
    is_host = False
    # The queue that it was submitted to; a host access has none.
    line: Line | None = None
    # Spans of arrays that are no buffers.
    borrowed: Sequence[Any] = ()
    # Locks of threads that wait for it, and what is called when it is finished.
    waiters: tuple[Any, ...] = ()
    callbacks: tuple[Callable[[Event], object], ...] = ()
    # ns; 0 where nobody asked for times.
    submitted = started = ended = 0

    def __init__(self, name: str, scheduler: Scheduler, place: tuple[str, int] | None) -> None:
        self.name = name
        self.scheduler = scheduler
        self.generation = scheduler.generation
        self.dependents: list[tuple[Event, bool]] = []
        self.where = place

    @property
    def place(self) -> str:
        """Where it was submitted: ``file:line``."""
        return "an unknown place" if self.where is None else f"{self.where[0]}:{self.where[1]}"

    @property
    def finished(self) -> bool:
        """Whether it is done or failed."""
        return self.state is DONE or self.state is FAILED

    @property
    def done(self) -> bool:
        """Whether the command is finished, well or not; does not wait. A list of kernels to be
        fused that it stands in is given up: who asks again and again would never see its end."""
        if self.held is not None:
            self.scheduler.observe(self)
        return self.finished

    def wait(self) -> None:
        """Returns when the command is done.

        Raises what the command raised, with the place of its submission as a note; `QueueError`
        where a command failed that it depends on, in a host task or a callback, and in the child of
        a fork.
        """
        self.scheduler.wait(self)
        if self.error is not None:
            self.scheduler.report(self)
            raise self.error

    def add_callback(self, function: Callable[[Event], object]) -> None:
        """Calls ``function`` with this event when the command is finished: on the thread that ran
        it, or now if it is finished. It may not submit and not wait; what it raises goes to
        `sys.unraisablehook`."""
        self.scheduler.call_back(self, function)

    @property
    def profile(self) -> Profile:
        """When it was submitted, began and ended. Raises `QueueError` before it is finished, and
        for a queue without ``profile``."""
        if not self.finished:
            raise QueueError(
                f"{self.name} is not finished",
                where=self.place,
                cure="wait for the event before you ask for its times",
            )
        if self.parts and all(part.submitted for part in self.parts):
            return Profile(
                min(part.submitted for part in self.parts),
                min(part.started for part in self.parts),
                max(part.ended for part in self.parts),
            )
        if not self.submitted:
            raise QueueError(
                f"there are no times of {self.name}",
                where=self.place,
                cure="make the queue with profile=True",
            )
        return Profile(self.submitted, self.started, self.ended)

    def __repr__(self) -> str:
        return f"<event of {self.name}, {self.state.value}>"


class Outcome(Event):
    """A ``command`` as its caller has it, with its ``results``: the command itself does not hold
    them, so that it shows when nobody has them any more."""

    def __init__(self, command: Event, results: Mapping[str, Any]) -> None:
        super().__init__(command.name, command.scheduler, command.where)
        self._command = command
        self.results = results

    @property
    def state(self) -> State:  # type: ignore[override]
        return self._command.state

    @property
    def finished(self) -> bool:
        return self._command.finished

    @property
    def done(self) -> bool:
        return self._command.done

    def wait(self) -> None:
        self._command.wait()

    def add_callback(self, function: Callable[[Event], object]) -> None:
        self._command.add_callback(lambda _: function(self))

    @property
    def profile(self) -> Profile:
        return self._command.profile

    def __repr__(self) -> str:
        return repr(self._command)


def command_of(event: Event) -> Event:
    """What stands in the graph for an event that a caller has."""
    return event._command if isinstance(event, Outcome) else event


class HeldList:
    """The commands between the start of a fusion and its end, in order. The ``placeholder`` comes
    after them all. ``reason`` says why the list was let go, None while it is held."""

    def __init__(self, placeholder: Event) -> None:
        self.placeholder = placeholder
        self.commands: list[Event] = []
        self.reason: str | None = None
        placeholder.held = self
        placeholder.parts = self.commands
        placeholder.state = HELD
        placeholder.blockers = 1  # until the list is let go

    def inside(self, events: Sequence[Event]) -> Sequence[Event]:
        """``events`` that a command of the list comes after: the placeholder, which comes after the
        whole list, stands for the commands that were submitted before."""
        if self.placeholder not in events:
            return events
        return [*(event for event in events if event is not self.placeholder), *self.commands]


class Batch:
    """Kernels of a queue that may be fused without being told, in order. They come after the
    ``decision``, a command that says which of them become one, and which comes itself after all
    that the first of them ``waits`` for. A batch takes kernels that wait for the same, or for
    others in it: none of them waits longer than by itself."""

    MOST = 64

    def __init__(self, decision: Event, waits: Sequence[Event]) -> None:
        self.decision = decision
        self.waits = waits
        self.commands: list[Event] = []

    def takes(self, blocking: Sequence[tuple[Event, bool]]) -> bool:
        """Whether a kernel belongs to it that comes after the commands ``blocking``."""
        if self.decision.state is not WAITING or len(self.commands) >= self.MOST:
            return False
        inside = any(before.batch is self for before, _ in blocking)
        outside = {before for before, _ in blocking if before.batch is not self}
        waits = {event for event in self.waits if not event.finished}
        return outside == waits or (inside and outside < waits)
