"""LLVM IR text -> SPIR-V, in a process of its own (`emitter`), which starts with the first module.

That a module is right takes a process that has emitted none before; the emitter forks one for each,
which takes about 10 ms. See there for why.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path

from tilewright.errors import CompilationError
from tilewright.targets.llvm.refusal import refusal
from tilewright.targets.spirv import emitter

_UNKNOWN_INTRINSIC = re.compile(rb"\b(llvm\.[\w.]+)\0")


def assemble(ir_text: str) -> bytes:
    """The SPIR-V module for ``ir_text``: the same bytes each time.

    Raises `CompilationError`, which names a file that holds the IR. Safe to call from several
    threads and after a fork.
    """
    code = _request(b"o", ir_text)
    # LLVM takes an unknown llvm.* name for a function of another module.
    unknown = _UNKNOWN_INTRINSIC.search(code)
    if unknown:
        message = f"LLVM's SPIR-V has no intrinsic {unknown.group(1).decode()}"
        raise refusal(ir_text, message, "the target, SPIR-V")
    return code


def assembly(ir_text: str) -> str:
    """Like `assemble`, as assembly text."""
    return _request(b"a", ir_text).decode()


def _request(kind: bytes, ir_text: str) -> bytes:
    status, reply = _emitter.ask(kind, ir_text.encode())
    if status != emitter.DONE:
        raise refusal(ir_text, reply.decode(errors="replace"), "the target, SPIR-V")
    return reply


class _Emitter:
    """This process's emitter, which is started when needed and whenever it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, kind: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Status and data of the reply."""
        with self._lock:
            for _ in range(2):
                # One that somebody has ended since the last request is worth another try.
                with suppress(EOFError, BrokenPipeError):
                    return self._exchange(kind, data)
        raise CompilationError(
            "the process that emits SPIR-V ended",
            why="it was killed, or cannot run",
            cure=f"run `{sys.executable} {_program()}` to see whether it starts",
        )

    def _exchange(self, kind: bytes, data: bytes) -> tuple[bytes, bytes]:
        process = self._started()
        finished = False
        try:
            requests, replies = _pipes(process)
            emitter.send(requests, kind, data)
            status = replies.read(1)
            reply = status, emitter.receive(replies)
            finished = True
            return reply
        finally:
            # What is left of an exchange that was broken off would be the next one's reply.
            if not finished:
                process.kill()
                self._close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # It finds LLVM where this process does, whatever has changed the path.
            code = (
                f"import sys, runpy; sys.path[:] = {sys.path!r}; "
                f"runpy.run_path({_program()!r}, run_name='__main__')"
            )
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._process

    def _close(self) -> None:
        """Ends the process, which does so when its requests end."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in _pipes(process):
                with suppress(OSError):
                    pipe.close()
            process.wait()

    def close(self) -> None:
        with self._lock:
            self._close()

    def forget(self) -> None:
        """In a forked child: the process is the parent's, the lock perhaps another thread's."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process is not None:
            for pipe in _pipes(process):
                pipe.raw.close()  # without what its buffer may hold
            process.returncode = 0  # nothing to wait for


def _program() -> str:
    return str(Path(emitter.__file__))


def _pipes(process: subprocess.Popen[bytes]) -> tuple[BufferedWriter, BufferedReader]:
    """Where requests go, and where replies come from."""
    assert isinstance(process.stdin, BufferedWriter)
    assert isinstance(process.stdout, BufferedReader)
    return process.stdin, process.stdout


_emitter = _Emitter()
atexit.register(_emitter.close)
os.register_at_fork(after_in_child=_emitter.forget)
