"""What a queue ran, when and on which thread, for viewers of Chrome's trace format such as
Perfetto."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from tilewright.errors import ArgumentError, QueueError
from tilewright.queues.events import Event
from tilewright.writing import write_whole

# Of the format: complete events, the two ends of an arrow, names of threads.
_COMPLETE, _START, _FINISH, _NAMES = "X", "s", "f", "M"
_PROCESS = 1


class _Ran(NamedTuple):
    """A command that ran on ``thread``; ``followed`` are the numbers of those that waited for it.
    Times are in ns."""

    number: int
    name: str
    place: str
    thread: str
    submitted: int
    started: int
    ended: int
    failed: str
    followed: tuple[int, ...]


class Trace:
    """The commands that a queue ran since `Queue.trace`. `write` writes them to ``path``; so does
    the end of its ``with`` block, and that of the queue."""

    def __init__(self, path: Path, queue: Traced) -> None:
        self.path, self._queue = path, queue
        self._ran: list[_Ran] = []
        self._numbers: WeakKeyDictionary[Event, int] = WeakKeyDictionary()
        self._next = itertools.count()

    def ran(self, event: Event, error: BaseException | None) -> None:
        """``event`` has run on the present thread. The lock of the graph is held."""
        self._ran.append(
            _Ran(
                self._number(event),
                event.name,
                event.place,
                threading.current_thread().name,
                event.submitted,
                event.started,
                event.ended,
                "" if error is None else f"{type(error).__name__}: {error}",
                tuple(dict.fromkeys(map(self._number, _followers(event)))),
            )
        )

    def _number(self, event: Event) -> int:
        number = self._numbers.get(event)
        if number is None:
            number = self._numbers[event] = next(self._next)
        return number

    def write(self) -> None:
        """Writes what has run so far. Raises `ArgumentError` where the file cannot be written."""
        try:
            write_whole(self.path, json.dumps({"traceEvents": list(self._events())}).encode())
        except OSError as error:
            raise ArgumentError(
                "the trace cannot be written",
                where=str(self.path),
                why=str(error.strerror or error),
                cure="name a file in a folder that can be written to",
            ) from error

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self._queue.wait()
        finally:
            self.write()

    def _events(self) -> Iterator[dict[str, Any]]:
        """The events of the format; their times are microseconds since the first submission."""
        commands = list(self._ran)
        first = min((command.submitted for command in commands), default=0)
        # A thread with the number of the process would be called its main thread.
        names = sorted({command.thread for command in commands})
        threads = {name: n for n, name in enumerate(names, _PROCESS + 1)}
        yield _event(_NAMES, "process_name", 0, 0, args={"name": self._queue.device})
        for name, thread in threads.items():
            yield _event(_NAMES, "thread_name", 0, thread, args={"name": name})

        def at(time: int) -> float:
            return (time - first) / 1e3

        ran = {command.number: command for command in commands}
        ids = itertools.count(1)  # numbers: Perfetto takes no other ids
        for command in commands:
            begin, end, thread = at(command.started), at(command.ended), threads[command.thread]
            args = {"place": command.place, "submitted": at(command.submitted)}
            if command.failed:
                args["failed"] = command.failed
            kind = {"cat": "command", "dur": end - begin}
            yield _event(_COMPLETE, command.name, begin, thread, **kind, args=args)
            for number in command.followed:
                if number in ran:
                    arrow = {"id": next(ids), "cat": "depends"}
                    after = ran[number]
                    begin_after, other = at(after.started), threads[after.thread]
                    # An arrow is tied to the command that runs when it starts: the last ns of it.
                    last = at(max(command.started, command.ended - 1))
                    yield _event(_START, "depends", last, thread, **arrow)
                    yield _event(_FINISH, "depends", begin_after, other, bp="e", **arrow)


class Traced(Protocol):
    """What a trace asks of a queue."""

    profile: bool

    @property
    def device(self) -> str: ...
    def wait(self) -> None: ...


def new_trace(path: str | Path, queue: Traced) -> Trace:
    """A trace of ``queue``. Raises `QueueError` where that keeps no times."""
    if not queue.profile:
        raise QueueError("a queue without times is traced", cure="make the queue with profile=True")
    return Trace(Path(path), queue)


def _event(kind: str, name: str, at: float, thread: int, **more: Any) -> dict[str, Any]:
    return {"ph": kind, "name": name, "ts": at, "pid": _PROCESS, "tid": thread, **more}


def _followers(event: Event) -> Iterable[Event]:
    """What waits for ``event``: behind commands of a fused list, which run nothing themselves, what
    waits for them."""
    for after, _ in event.dependents:
        if after.work is None and not after.is_host:
            yield from _followers(after)
        else:
            yield after
