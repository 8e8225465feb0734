"""Kernels compiled ahead by processes of their own, which leave them in the disk cache.

Scheduling is Python, of which one process runs a thread at a time. So the kernels that no cache has
go to as many processes as there are cores but one, and this process takes from the same list. They
take as long to start as passes over a large graph take, so they start before these.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tilewright.config import settings
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.recipes.users import registered_identity

# Fewer kernels take less long than processes take to start, and so do the passes over graphs of
# fewer statements.
_FEWEST = 8
_LARGE = 200
_START = "import sys; sys.path[:0] = {path!r}; from tilewright.graph.worker import main; main()"

Task = tuple[Kernel, tuple[str, ...]]


class Tasks:
    """A list that threads take from, each task once."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = deque(enumerate(tasks))

    def rest(self, last_first: bool = False) -> Iterator[tuple[int, Task]]:
        """All that are left with their numbers, as they are taken: the first, or the last one."""
        take = self._tasks.pop if last_first else self._tasks.popleft
        with suppress(IndexError):
            while True:
                yield take()


class Helpers:
    """Processes that compile, while the context is open. Where one fails, nothing is lost: what is
    not in the cache is compiled by who needs it."""

    def __init__(self) -> None:
        self._spare: list[_Helper] = []

    def begin(self, statements: int) -> None:
        """Starts those that a graph of so many statements, whose passes come first, will need."""
        if statements >= _LARGE:
            self._start(_most())

    @contextmanager
    def at(
        self, tasks: Tasks, count: int, target: str, threads: int, done: Callable[[], None]
    ) -> Iterator[None]:
        """Meanwhile processes work on ``tasks``, of which there are ``count``, for ``target`` and
        so many ``threads``; ``done`` is called after each. In the end all that was taken is
        compiled, but for what they could not."""
        self._start(0 if count < _FEWEST else min(_most(), count // 2 - 1))
        common = {"target": target, "threads": threads, "database": str(settings().database or "")}
        working = self._spare if count else []
        for helper in working:
            helper.work(tasks, common, done)
        try:
            yield
        except BaseException:
            for _ in tasks.rest():
                pass  # none begins another one
            raise
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


def _most() -> int:
    """How many processes there may be."""
    # A worker does not know the recipes that a user registered here.
    alone = not settings().cache_enabled or registered_identity()
    return 0 if alone else settings().threads - 1


def _path() -> list[str]:
    """Where modules are found here, for a process that runs elsewhere."""
    return [os.path.abspath(name) for name in sys.path if name]


class _Helper:
    """A process that compiles, and the thread that gives it tasks."""

    def __init__(self) -> None:
        self._working = threading.Event()
        self._thread: threading.Thread | None = None
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

    def work(self, tasks: Tasks, common: Mapping[str, Any], done: Callable[[], None]) -> None:
        """Begins to take tasks."""
        self._thread = threading.Thread(target=self._feed, args=(tasks, common, done), daemon=True)
        self._thread.start()

    def _feed(self, tasks: Tasks, common: Mapping[str, Any], done: Callable[[], None]) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        with suppress(OSError, ValueError):
            if not process.stdout.readline():
                return
            self._working.set()
            for _, (kernel, constant) in tasks.rest(last_first=True):
                task = {"text": to_text(kernel), "constant": constant, **common}
                process.stdin.write(json.dumps(task) + "\n")
                process.stdin.flush()
                if not process.stdout.readline():
                    return
                done()

    def finish(self) -> None:
        """Waits for what it has begun. A process that is not there yet is not waited for."""
        process = self._process
        if process is None:
            return
        if not self._working.is_set():
            process.kill()
        if self._thread is not None:
            self._thread.join()
        process.kill()
        process.communicate()
