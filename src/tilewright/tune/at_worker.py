"""What runs on workers of others: a trial, in a process of its own kind (`processes.Processes`), so
that a point that crashes or hangs costs neither the worker nor its other work. Workers of one host
time one trial at a time; where a worker is of another kind than the one that searches, none.
"""

from __future__ import annotations

import atexit
import os
import stat
import tempfile
import threading
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.engine.generator import generator_version
from tilewright.engine.winners import Asked
from tilewright.errors import TilewrightError, TuningError
from tilewright.targets.registry import find_target
from tilewright.testing.verify import one_line
from tilewright.tune.campaign import local
from tilewright.tune.trial import Task

Call = partial[Any]


@dataclass(frozen=True)
class Kind:
    """What workers have to have in common so that their times may be compared: all that code for
    the ``target`` depends on (``features``), and the same ``generator``."""

    target: str
    features: str
    generator: str

    @classmethod
    def of(cls, asked: Asked) -> Kind:
        """The kind that rows of a subject are of."""
        return cls(asked.target, asked.features, asked.generator)

    def fault(self, said: Kind | str) -> str:
        """Why a worker does not do that said this of itself (`kind_here`); "" where it does."""
        if isinstance(said, str):
            return said
        if said.generator != self.generator:
            return "it has another version of Tilewright, or of LLVM"
        return "" if said == self else f"it is {said.features}"


def kind_here(target: str) -> Kind | str:
    """What kind of worker this is, or why it does not do."""
    try:
        here = find_target(target)
    except TilewrightError as error:
        return one_line(error)
    if not here.runs_here:
        return f"{target} does not run there"
    return Kind(here.name, here.identity, generator_version())


class _Own:
    """The processes for trials that this one has: one for each trial at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Executor, ExitStack]] = []

    def run(self, call: Call) -> Any:
        """Runs a call with a `Task` in a process that has nothing to do, or in a new one."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is None:
            stack = ExitStack()
            executor, _ = stack.enter_context(local(1))
            process = executor, stack
        try:
            return process[0].submit(_beside_others, call).result()
        finally:
            with self._lock:
                self._idle.append(process)

    def end(self) -> None:
        """Ends those that have nothing to do."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, stack in idle:
            stack.close()

    def forget(self) -> None:
        """They are those of the process that was forked."""
        self._lock, self._idle = threading.Lock(), []


_own = _Own()
end_processes = _own.end
"""Ends the processes of this one in which nothing is tried."""
atexit.register(_own.end)
os.register_at_fork(after_in_child=_own.forget)


def at_worker(kind: Kind, call: Call) -> Any:
    """Runs a call with a `Task` for a search of this ``kind``. Raises what the future of such a
    process does, and `TuningError` where this worker is of another kind."""
    fault = kind.fault(kind_here(kind.target))
    if fault:
        raise TuningError(
            f"a worker cannot time kernels for {kind.target}",
            where="executor",
            why=fault,
            cure=f"use workers with the same processor ({kind.features[:60]}...), and the same "
            "Tilewright",
        )
    return _own.run(call)


def _beside_others(call: Call) -> Any:
    """Runs a call, timing nothing while another worker of this host does."""
    (task,) = call.args
    assert isinstance(task, Task)
    measuring = replace(task.measuring, lock=str(host_lock()), alone=True)
    return call.func(replace(task, measuring=measuring))


def host_lock() -> Path:
    """The file that this user's workers on this host lock while they time something. Raises
    `TuningError` where somebody else could hold it."""
    folder = Path(tempfile.gettempdir(), f"tilewright-workers-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    there = folder.lstat()
    if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid() or there.st_mode & 0o022:
        raise TuningError(
            f"{folder} is not this user's alone",
            why="trials of a host are timed one at a time by a file in it",
            cure="remove it",
        )
    return folder / "timing.lock"
