"""Kernels compiled ahead by processes of their own, which leave them in the disk cache.

Scheduling is Python, of which one process runs a thread at a time. So the kernels that no cache has
go to as many processes as there are cores but one, and this process takes from the same list. They
take as long to start as passes over a large graph take, so they start before these. Times that a
pass asks for are predicted by all of them, too; who has scheduled a kernel for that compiles it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from tilewright.config import settings
from tilewright.engine.choosing import predicted_seconds
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.users import registered_identity

# Fewer kernels take less long than processes take to start, and so do the passes over graphs of
# fewer statements.
_FEWEST = 8
_LARGE = 200
_START = "import sys; sys.path[:0] = {path!r}; from tilewright.graph.worker import main; main()"

Task = tuple[Kernel, tuple[str, ...]]


class Tasks:
    """A list that threads take from, each task once. ``begun`` says of some, by their numbers, who
    has done a part of them."""

    def __init__(self, tasks: Sequence[Task], begun: Mapping[int, object] | None = None) -> None:
        self._tasks = dict(enumerate(tasks))
        self._begun = begun or {}
        self._lock = threading.Lock()

    def rest(self, taker: object = None, last_first: bool = False) -> Iterator[tuple[int, Task]]:
        """All that are left with their numbers, as they are taken: what ``taker`` has begun, then
        what none has, then the others; of these the first, or the last one."""
        sign = -1 if last_first else 1
        while True:
            with self._lock:
                if not self._tasks:
                    return
                number = min(self._tasks, key=lambda n: (self._rank(n, taker), sign * n))
                task = self._tasks.pop(number)
            yield number, task

    @contextmanager
    def ending(self) -> Iterator[None]:
        """At an error, none begins another one."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._tasks.clear()
            raise

    def _rank(self, number: int, taker: object) -> int:
        begun = self._begun.get(number)
        return 1 if begun is None else 0 if begun is taker else 2


class Helpers:
    """Processes that compile, while the context is open. Where one fails, nothing is lost: what is
    not in the cache is compiled by who needs it."""

    def __init__(self) -> None:
        self._spare: list[_Helper] = []
        # Who has scheduled which kernel, to predict its time.
        self._scheduled: dict[tuple[str, tuple[str, ...]], _Helper] = {}

    def begin(self, statements: int) -> None:
        """Starts those that a graph of so many statements, whose passes come first, will need."""
        if statements >= _LARGE:
            self._start(_most())

    def predict(self, tasks: Sequence[Task], machine: Machine, target: str) -> None:
        """Predicts the times of ``tasks`` on ``machine``, which is that of ``target``, as far as
        processes have begun: `predicted_seconds` has them then."""
        once = {_key(task): task for task in tasks}
        if not self._spare or len(once) < 2:
            return
        left = Tasks(list(once.values()))

        def done(helper: _Helper, task: Task) -> None:
            self._scheduled[_key(task)] = helper

        jobs = [(helper, helper.work(_Job(left, _common(target), done))) for helper in self._spare]
        with left.ending():
            for _, (kernel, constant) in left.rest():
                predicted_seconds(kernel, machine, constant)
        for helper, job in jobs:
            helper.wait(job)

    @contextmanager
    def at(
        self, tasks: Sequence[Task], target: str, threads: int, done: Callable[[], None]
    ) -> Iterator[Tasks]:
        """Meanwhile processes work on ``tasks`` for ``target`` and so many ``threads``; ``done`` is
        called after each. In the end all that was taken is compiled, but for what they could
        not."""
        self._start(0 if len(tasks) < _FEWEST else min(_most(), len(tasks) // 2 - 1))
        begun = {n: self._scheduled.get(_key(task)) for n, task in enumerate(tasks)}
        left = Tasks(tasks, {n: helper for n, helper in begun.items() if helper is not None})
        job = _Job(left, _common(target) | {"threads": threads}, lambda helper, task: done())
        working = self._spare if tasks else []
        for helper in working:
            helper.work(job)
        try:
            with left.ending():
                yield left
        finally:
            for helper in working:
                helper.finish()
            working.clear()

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        for helper in self._spare:
            helper.finish()

    def _start(self, count: int) -> None:
        while len(self._spare) < count:
            self._spare.append(_Helper())


def _key(task: Task) -> tuple[str, tuple[str, ...]]:
    """What tells a task from others."""
    kernel, constant = task
    return to_text(kernel), constant


def _common(target: str) -> dict[str, Any]:
    """What all tasks for ``target`` have in common."""
    return {"target": target, "database": str(settings().database or "")}


def _most() -> int:
    """How many processes there may be."""
    # A worker does not know the recipes that a user registered here.
    alone = not settings().cache_enabled or registered_identity()
    return 0 if alone else settings().threads - 1


def _path() -> list[str]:
    """Where modules are found here, for a process that runs elsewhere."""
    return [os.path.abspath(name) for name in sys.path if name]


@dataclass(frozen=True, eq=False)
class _Job:
    """Tasks that helpers take. What they have in ``common`` goes with each; ``done`` is told the
    helper and the task."""

    tasks: Tasks
    common: Mapping[str, Any]
    done: Callable[[_Helper, Task], None]


@dataclass(frozen=True, eq=False)
class _Begun:
    """A job that a helper has been given."""

    job: _Job
    over: threading.Event = field(default_factory=threading.Event)


class _Helper:
    """A process that compiles, and the thread that gives it tasks."""

    def __init__(self) -> None:
        self._working = threading.Event()
        self._jobs: SimpleQueue[_Begun | None] = SimpleQueue()
        command = [sys.executable, "-c", _START.format(path=_path())]
        self._process: subprocess.Popen[str] | None = None
        with suppress(OSError):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=os.sep,
            )
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def work(self, job: _Job) -> _Begun:
        """Begins to take tasks."""
        begun = _Begun(job)
        self._jobs.put(begun)
        return begun

    def wait(self, begun: _Begun) -> None:
        """Waits for the tasks that it has taken of a job whose list is empty. A process that has
        not started, or has ended, holds none."""
        while self._working.is_set() and self._thread.is_alive() and not begun.over.wait(0.05):
            pass

    def _feed(self) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        with suppress(OSError, ValueError):
            if not process.stdout.readline():
                return
            self._working.set()
            while (begun := self._jobs.get()) is not None:
                job = begun.job
                for _, task in job.tasks.rest(self, last_first=True):
                    kernel, constant = task
                    what = {"text": to_text(kernel), "constant": constant, **job.common}
                    process.stdin.write(json.dumps(what) + "\n")
                    process.stdin.flush()
                    if not process.stdout.readline():
                        return
                    job.done(self, task)
                begun.over.set()

    def finish(self) -> None:
        """Waits for what it has begun. A process that is not there yet is not waited for."""
        process = self._process
        if process is None:
            return
        self._jobs.put(None)
        if not self._working.is_set():
            process.kill()
        self._thread.join()
        process.kill()
        process.communicate()
