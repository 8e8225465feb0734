"""Child processes for compilers that may crash, so that this process survives.

Other projects' compilers end their process on unexpected input. So users' code is compiled in a
child process, which serves many requests; if it crashes, the next request starts another one.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from io import BufferedReader, BufferedWriter
from typing import IO

from tilewright.targets.llvm.emitter import FAILED, READY, receive, send

# The messages of a crashed compiler may be long; the reason stands near the end.
_MOST_MESSAGES = 4000
_asking: list[ChildProcess] = []


def at_work() -> bool:
    """Whether a child process does something for this one."""
    return bool(_asking)


def kept(code: bytes, suffix: str) -> str:
    """The name of a new file that holds the code which a compiler refused: reports have it."""
    with tempfile.NamedTemporaryFile(prefix="tilewright-", suffix=suffix, delete=False) as file:
        file.write(code)
    return file.name


class NotStartedError(Exception):
    """The child process cannot be started."""


class ChildProcess:
    """A program that serves requests, in a process that is started on demand, and again after a
    crash. ``program`` gives its Python code, ``compiler`` names what may crash ("LLVM")."""

    def __init__(self, program: Callable[[], str], compiler: str) -> None:
        self._program = program
        self._compiler = compiler
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._messages: IO[bytes] | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    def begin(self) -> None:
        """Starts the process, unless it runs, without waiting until it serves."""
        if self._lock.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._started()
            finally:
                self._lock.release()

    def ask(self, kind: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Status and data of the reply; for a request that crashes the process, ``FAILED`` and how
        it ended. Raises `NotStartedError` if it cannot be started."""
        with self._lock:
            _asking.append(self)
            try:
                # A second try, as the process may have been killed from outside.
                for _ in range(2):
                    with suppress(EOFError, OSError):
                        return self._exchange(kind, data)
            finally:
                _asking.remove(self)
            if not self._ready:
                raise NotStartedError
            return FAILED, self._ending.encode()

    def _exchange(self, kind: bytes, data: bytes) -> tuple[bytes, bytes]:
        process = self._started()
        finished = False
        try:
            requests, replies = _pipes(process)
            self._ready = self._ready or replies.read(1) == READY
            if not self._ready:
                raise EOFError
            send(requests, kind, data)
            status = replies.read(1)
            reply = status, receive(replies)
            finished = True
            return reply
        finally:
            # The rest of an interrupted exchange would be taken for the next reply.
            if not finished:
                self._close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._ready = False
            self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
            # It has this process's module path, even if that was changed.
            code = f"import sys; sys.path[:] = {sys.path!r}; {self._program()}"
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,
            )
        return self._process

    def _close(self) -> None:
        """Ends the process, and keeps its messages."""
        process, self._process = self._process, None
        if process is None or self._messages is None:
            return
        for pipe in _pipes(process):
            with suppress(OSError):
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.kill()
        status = process.wait()
        self._messages.seek(0)
        messages = self._messages.read()[-_MOST_MESSAGES:].decode(errors="replace")
        self._messages.close()
        self._ending = f"{self._compiler} ended its process ({status})\n{messages}"

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._close()

    def _forget(self) -> None:
        """In a forked child: the process is the parent's, the lock perhaps held by its thread."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process is not None:
            for pipe in _pipes(process):
                pipe.raw.close()  # drops the contents of the buffer
            process.returncode = 0  # nothing to wait for


def _pipes(process: subprocess.Popen[bytes]) -> tuple[BufferedWriter, BufferedReader]:
    """The pipes for requests and for replies."""
    assert isinstance(process.stdin, BufferedWriter)
    assert isinstance(process.stdout, BufferedReader)
    return process.stdin, process.stdout
