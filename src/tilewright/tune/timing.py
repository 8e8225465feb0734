"""Who builds and who times on one machine: one process times at a time, and where it is to do that
alone, nothing is built meanwhile.

Both lock one file: those that build share the lock, the one that times has it alone, and closes the
gate before, a second file. Those that build look every few milliseconds whether the gate is closed:
then they let the lock go, wherever they are in their Python, and wait until it is open again. So
who times waits for a call of LLVM, in this process or in a child of it, and not for a whole kernel.
The system lets locks go where a process ends.

Who waits says so to whoever limits the time of its process (`told`): another one may hang while it
is timed, which is no fault of those that wait for it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from tilewright.targets.child_process import at_work

# Seconds between two looks at the gate.
_LOOKING = 0.003


@contextmanager
def timing(lock: str) -> Iterator[None]:
    """Nobody else who knows the file ``lock`` times in the ``with`` block, and those that are
    `building` wait. "": as many as like."""
    if not lock:
        yield
        return
    with _opened(_gate(lock)) as gate, _opened(lock) as lock_file:
        _take(gate, fcntl.LOCK_EX)
        _take(lock_file, fcntl.LOCK_EX)
        yield


@contextmanager
def building(lock: str) -> Iterator[None]:
    """Nobody who knows the file ``lock`` is `timing` while the ``with`` block goes on, which waits
    for those that want to. "": as they like."""
    if not lock:
        yield
        return
    with _opened(_gate(lock)) as gate, _opened(lock) as lock_file:
        builder = _Builder(gate, lock_file)
        builder.begin()
        if threading.current_thread() is not threading.main_thread():
            yield  # which no signal interrupts
            return
        _looking().append(builder)
        signal.setitimer(signal.ITIMER_REAL, _LOOKING)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            _looking().remove(builder)


@dataclass(frozen=True)
class _Builder:
    """The handles of both files."""

    gate: int
    own: int

    def begin(self) -> None:
        """Waits until the gate is open, and takes the lock."""
        _take(self.gate, fcntl.LOCK_SH)
        _take(self.own, fcntl.LOCK_SH)
        fcntl.flock(self.gate, fcntl.LOCK_UN)

    def look(self) -> None:
        """Makes way where the gate is closed; not while a child process goes on."""
        if at_work():
            return
        try:
            fcntl.flock(self.gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self.own, fcntl.LOCK_UN)
            self.begin()
        else:
            fcntl.flock(self.gate, fcntl.LOCK_UN)


_told: list[Callable[[bool], object]] = []


@contextmanager
def told(listener: Callable[[bool], object]) -> Iterator[None]:
    """In the ``with`` block, ``listener`` is called with True where this process begins to wait for
    others, and with False where it goes on."""
    _told.append(listener)
    try:
        yield
    finally:
        _told.remove(listener)


def _take(handle: int, how: int) -> None:
    """Takes a lock, and says so where that has to wait."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        for listener in _told:
            listener(True)
        fcntl.flock(handle, how)
        for listener in _told:
            listener(False)


@cache
def _looking() -> list[_Builder]:
    """The builders of this process that look at their gates; a signal says when."""
    builders: list[_Builder] = []

    def look(*_: object) -> None:
        for builder in builders:
            builder.look()
        if builders:
            signal.setitimer(signal.ITIMER_REAL, _LOOKING)

    signal.signal(signal.SIGALRM, look)
    return builders


@contextmanager
def _opened(path: str) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _gate(lock: str) -> str:
    return f"{lock}.gate"
