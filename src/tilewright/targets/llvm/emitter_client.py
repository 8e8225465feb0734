"""LLVM in a separate process, for users' kernels, on which it may crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.targets.child_process import ChildProcess, NotStartedError
from tilewright.targets.llvm import emitter
from tilewright.targets.llvm.refusal import refusal


def program_of(*arguments: str) -> str:
    """The Python code that runs the emitter as a program."""
    path = str(Path(emitter.__file__))
    return (
        f"import runpy; sys.argv[:] = {[path, *arguments]!r}; "
        f"runpy.run_path({path!r}, run_name='__main__')"
    )


_emitter = ChildProcess(program_of, "LLVM")


def begin_apart() -> None:
    """Starts the process without waiting for it, unless it runs already."""
    _emitter.begin()


def emit_apart(
    kind: bytes, ir_text: str, processor: str, triple: str, **machine: Any
) -> bytes | None:
    """The binary (``kind`` is ``b"o"``) or the text (``b"a"``) that LLVM makes of ``ir_text``; None
    if no process can be started.

    ``machine`` are the arguments of `llvmlite`'s target machine. Raises `CompilationError` for
    ``processor`` ("the CPU, znver4"), also when LLVM crashes.
    """
    try:
        status, reply = _emitter.ask(kind, emitter.request(ir_text, triple, **machine))
    except NotStartedError:
        return None
    if status != emitter.DONE:
        raise refusal(ir_text, reply.decode(errors="replace"), processor)
    return reply
