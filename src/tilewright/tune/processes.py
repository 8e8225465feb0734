"""Processes that run functions for a search, and may crash or hang without harm to it: an executor
as `concurrent.futures` has them.

A process takes one task at a time, in a thread of this process that waits for it. A task that takes
longer than its limit ends with the process, and so does one that ends the process; the next task
gets a new one. To wait for other processes (`timing`) does not count. When this process ends,
however, its processes end.
"""

from __future__ import annotations

import os
import pickle
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO, Any

from tilewright.errors import TuningError
from tilewright.tune.marks import BEGUN, WAITS

_START = "import sys; sys.path[:] = {path!r}; from tilewright.tune.worker import main; main({pipe})"
# Seconds until a process has loaded what it runs.
_LOADING = 120.0
# Of what a process said before it ended, as the reason stands near the end.
_MOST_SAID = 2000


class CrashedError(Exception):
    """The process ended that ran the task."""


class HungError(Exception):
    """The task took longer than its limit."""


class LostError(Exception):
    """The worker is gone that ran the task: nothing is known of the task."""


@dataclass(frozen=True)
class Last:
    """What a task gives as its ``result`` where its process must not run another one."""

    result: Any


@dataclass
class _Task:
    future: Future[Any]
    call: bytes


class Processes(Executor):
    """So many processes, which are started when there is something to do. ``limit`` is how many
    seconds a task may take; ``environment`` is theirs (None: that of this process)."""

    def __init__(self, count: int, limit: float, environment: dict[str, str] | None = None) -> None:
        self.limit = limit
        self._environment = environment
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._ended = False
        self._processes: list[_Process | None] = [None] * count
        self._threads = [
            threading.Thread(target=self._work, args=(place,), daemon=True)
            for place in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs ``fn`` in a process, which gets it pickled. The future raises `CrashedError`,
        `HungError`, or what the function raised; `TuningError` where no process can be started."""
        future: Future[Any] = Future()
        self._tasks.put(_Task(future, pickle.dumps((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes, and what they are doing where not to ``wait`` for it."""
        self._ended = True
        for _ in self._threads:
            self._tasks.put(None)
        if not wait:
            for process in self._processes:
                if process is not None:
                    process.kill()
        for thread in self._threads:
            thread.join()

    def _work(self, place: int) -> None:
        while (task := self._tasks.get()) is not None:
            if self._ended or not task.future.set_running_or_notify_cancel():
                task.future.cancel()
                continue
            try:
                result = self._run(place, task.call)
            except BaseException as error:
                task.future.set_exception(error)
            else:
                task.future.set_result(result)
        self._end(place)

    def _run(self, place: int, call: bytes) -> Any:
        process = self._processes[place]
        if process is None:
            process = self._processes[place] = _Process(self._environment)
        try:
            process.connection.send_bytes(call)
            # That it begins; what a process loads first may take seconds.
            answer = process.receive(_LOADING)
            while answer in (BEGUN, WAITS):
                answer = process.receive(None if answer == WAITS else self.limit)
            raised, result = pickle.loads(answer)
        except (EOFError, OSError) as error:
            said = self._end(place)
            raise CrashedError(said) from error
        except HungError:
            self._end(place)
            raise
        if isinstance(result, Last):
            self._end(place)
            result = result.result
        if raised:
            raise result
        return result

    def _end(self, place: int) -> str:
        """Ends a process; returns how it ended, and what it said last."""
        process, self._processes[place] = self._processes[place], None
        return "" if process is None else process.end()


class _Process:
    """One process, and the connection to it."""

    def __init__(self, environment: dict[str, str] | None) -> None:
        ours, theirs = _pair()
        path = [os.path.abspath(name) for name in sys.path if name]
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=path, pipe=theirs)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                env=environment,
                pass_fds=(theirs,),
            )
        except OSError as error:
            os.close(ours)
            raise TuningError(
                "no process can be started that tries what is tuned", why=str(error)
            ) from error
        finally:
            os.close(theirs)
        self.connection = Connection(ours)

    def receive(self, limit: float | None) -> bytes:
        """What it says next. Raises `HungError` where that is nothing for so many seconds."""
        if not self.connection.poll(limit):
            raise HungError(f"it took longer than {limit:g} s")
        return self.connection.recv_bytes()

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> str:
        # One that crashes may still write its last words.
        with suppress(subprocess.TimeoutExpired):
            self.connection.close()
            self._process.wait(0.2)
        self._process.kill()
        status = self._process.wait()
        self._said.seek(0)
        said = self._said.read()[-_MOST_SAID:].decode(errors="replace").strip()
        self._said.close()
        return _ending(status) + (f": {said}" if said else "")


def _ending(status: int) -> str:
    return f"signal {-status} ended it" if status < 0 else f"it ended with {status}"


def _pair() -> tuple[int, int]:
    """Both ends of a connection: ours, and that of a process, which inherits it."""
    ours, theirs = socket.socketpair()
    os.set_inheritable(theirs.fileno(), True)
    return ours.detach(), theirs.detach()
