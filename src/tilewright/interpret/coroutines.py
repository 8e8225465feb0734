"""Programs that wait for each other: each runs until it must wait, one at a time.

Each has a Python thread of its own; a baton says which one runs. A program that waits hands the
baton back, and gets it again once what it waits for has happened. Where nothing can happen any
more, all are stuck: a deadlock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tilewright.errors import InterpreterFault
from tilewright.interpret.findings import FaultKind
from tilewright.interpret.lanes import Site, fault
from tilewright.interpret.memory import Memory
from tilewright.interpret.storage import Storages


class Wait(NamedTuple):
    """The event that a program waits for: whether it has happened, and its description."""

    ready: Callable[[], bool]
    what: Callable[[], str]
    site: Site


class Abandoned(BaseException):
    """Ends a program because another one failed, or the user interrupted them."""


@dataclass
class _Program:
    action: Callable[[], None]
    storages: Storages
    baton: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None
    waits: Wait | None = None
    error: BaseException | None = None
    done: bool = False


class Coroutines:
    """Runs programs that share ``memory``; each allocates its own beside it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._back = threading.Semaphore(0)
        self._abandoned = False
        self._programs: list[_Program] = []
        self._running: _Program | None = None

    def run(self, actions: Sequence[Callable[[], None]]) -> bool:
        """Runs all of ``actions``, the first one first; returns whether all ended. Reports a
        deadlock, where all that are left wait."""
        outside = self._memory.storages
        self._programs = [_Program(action, dict(outside)) for action in actions]
        try:
            while left := [p for p in self._programs if not p.done]:
                went_on = False
                for program in left:
                    if program.waits is None or program.waits.ready():
                        self._switch(program)
                        went_on = True
                if not went_on:
                    self._report([p.waits for p in left if p.waits is not None])
                    return False
            return True
        finally:
            self._abandon()
            self._memory.storages = outside

    def wait(self, wait: Wait) -> None:
        """Returns once ``wait`` has happened. Called by a program."""
        if wait.ready():
            return
        program = self._running
        assert program is not None
        program.waits = wait
        self._back.release()
        program.baton.acquire()
        if self._abandoned:
            raise Abandoned
        program.waits = None

    def _switch(self, program: _Program) -> None:
        """Lets ``program`` run until it waits or ends."""
        self._running = program
        self._memory.storages = program.storages
        if program.thread is None:
            program.thread = threading.Thread(target=self._body, args=(program,), daemon=True)
            program.thread.start()
        program.baton.release()
        self._back.acquire()
        if program.error is not None:
            raise program.error

    def _body(self, program: _Program) -> None:
        program.baton.acquire()
        try:
            if not self._abandoned:
                with np.errstate(all="ignore"):  # per thread
                    program.action()
        except Abandoned:
            pass
        except BaseException as error:
            program.error = error
        program.done = True
        self._back.release()

    def _abandon(self) -> None:
        """Ends the programs that have not ended, one after the other."""
        self._abandoned = self._memory.abandoned = True
        for program in self._programs:
            if program.thread is not None and program.thread.is_alive():
                self._memory.storages = program.storages
                program.baton.release()
                program.thread.join()
        self._memory.abandoned = False

    def _report(self, waits: list[Wait]) -> None:
        stmt = waits[0].site.stmt
        self._memory.findings.report(FaultKind.DEADLOCK, stmt, 1, lambda: _deadlock(waits))


def _deadlock(waits: list[Wait]) -> InterpreterFault:
    return fault(
        "deadlock: " + "; ".join(wait.what() for wait in waits),
        waits[0].site,
        (0,) * len(waits[0].site.frame.shape),
        why="each subgroup that has not ended waits, and none is left to end a wait",
        cure="let each wait have its arrivals, in an order in which the first ones need no other",
    )
