"""Kernels compiled ahead by processes of their own, which leave them in the disk cache.

Scheduling is Python, of which one process runs a thread at a time. So the kernels that no cache has
go to as many processes as there are cores but one, and this process takes from the same list.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tilewright.config import settings
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.recipes.users import registered_identity

# Fewer kernels take less long than processes take to start.
_FEWEST = 8
_START = "import sys; sys.path[:0] = {path!r}; from tilewright.graph.worker import main; main()"

Task = tuple[Kernel, tuple[str, ...]]


class Tasks:
    """A list that threads take from, each task once."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = list(enumerate(tasks))[::-1]
        self._lock = threading.Lock()

    def next(self) -> tuple[int, Task] | None:
        """A task and its number; None where none is left."""
        with self._lock:
            return self._tasks.pop() if self._tasks else None

    def rest(self) -> Iterator[tuple[int, Task]]:
        """All that are left, as they are taken."""
        while (found := self.next()) is not None:
            yield found


@contextmanager
def helping(
    tasks: Tasks, count: int, target: str, threads: int, done: Callable[[], None]
) -> Iterator[None]:
    """Meanwhile processes work on ``tasks``, of which there are ``count``, for ``target`` and so
    many ``threads``; ``done`` is called after each. In the end all that was taken is compiled,
    but for what they could not."""
    # A worker does not know the recipes that a user registered here.
    alone = count < _FEWEST or not settings().cache_enabled or registered_identity()
    helpers = 0 if alone else min(settings().threads, count // 2) - 1
    database = str(settings().database or "")
    common = {"target": target, "threads": threads, "database": database}
    found = [_Helper(tasks, common, done) for _ in range(helpers)]
    try:
        yield
    except BaseException:
        for _ in tasks.rest():
            pass  # none begins another one
        raise
    finally:
        for each in found:
            each.finish()


def _path() -> list[str]:
    """Where modules are found here, for a process that runs elsewhere."""
    return [os.path.abspath(each) for each in sys.path if each]


class _Helper:
    """A process that compiles, and the thread that gives it tasks. Where it fails, nothing is lost:
    what is not in the cache is compiled by who needs it."""

    def __init__(self, tasks: Tasks, common: Mapping[str, Any], done: Callable[[], None]) -> None:
        self._working = threading.Event()
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
            for _, (kernel, constant) in tasks.rest():
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
        self._thread.join()
        process.kill()
        process.communicate()
