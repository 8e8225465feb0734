"""Processes that do what may end a process: this one asks them, and lives on.

Compilers of others end their process on what they did not expect. So what a user sends goes to such
a process first. One serves many requests; where it ends, the next request starts another one.
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

# What a compiler says before it ends may be long; the reason stands near its end.
_MOST_SAID = 4000


class NotStartedError(Exception):
    """There is no such process."""


class Apart:
    """A program that serves requests, in a process that starts when it is needed and whenever it
    has ended. ``program`` gives its Python code, ``what`` is what may end it ("LLVM")."""

    def __init__(self, program: Callable[[], str], what: str) -> None:
        self._program = program
        self._what = what
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._said: IO[bytes] | None = None
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    def begin(self) -> None:
        """Starts the process, if there is none, and does not wait until it serves."""
        if self._lock.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._started()
            finally:
                self._lock.release()

    def ask(self, kind: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Status and data of the reply; of a request that ends the process, ``FAILED`` and how it
        ended. Raises `NotStartedError` where it does not start."""
        with self._lock:
            # One that somebody else has ended is worth another try.
            for _ in range(2):
                with suppress(EOFError, OSError):
                    return self._exchange(kind, data)
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
            # What is left of an exchange that was broken off would be the next one's reply.
            if not finished:
                self._close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._ready = False
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
            # It finds modules where this process does, whatever has changed the path.
            code = f"import sys; sys.path[:] = {sys.path!r}; {self._program()}"
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
            )
        return self._process

    def _close(self) -> None:
        """Ends the process, and notes what it said."""
        process, self._process = self._process, None
        if process is None or self._said is None:
            return
        for pipe in _pipes(process):
            with suppress(OSError):
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.kill()
        ended = process.wait()
        self._said.seek(0)
        said = self._said.read()[-_MOST_SAID:].decode(errors="replace")
        self._said.close()
        self._ending = f"{self._what} ended its process ({ended})\n{said}"

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._close()

    def _forget(self) -> None:
        """In a forked child: the process is the parent's, the lock perhaps another thread's."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process is not None:
            for pipe in _pipes(process):
                pipe.raw.close()  # without what its buffer may hold
            process.returncode = 0  # nothing to wait for


def _pipes(process: subprocess.Popen[bytes]) -> tuple[BufferedWriter, BufferedReader]:
    """Where requests go, and where replies come from."""
    assert isinstance(process.stdin, BufferedWriter)
    assert isinstance(process.stdout, BufferedReader)
    return process.stdin, process.stdout
