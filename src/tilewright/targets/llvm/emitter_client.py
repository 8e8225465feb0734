"""LLVM in a separate process, for users' kernels, on which it may crash; and its errors as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.errors import CompilationError
from tilewright.targets.child_process import ChildProcess, NotStartedError, kept
from tilewright.targets.llvm import emitter


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


def refusal(ir_text: str, message: str, processor: str) -> CompilationError:
    """LLVM's ``message`` on ``ir_text`` for ``processor`` ("the CPU, znver4") as our error, with
    the name of a file that holds the text."""
    return CompilationError(
        "LLVM refused the generated code",
        where=kept(ir_text.encode(), ".ll"),
        why=message.strip(),
        cure=f"this is a defect of Tilewright: report it with that file and {processor}",
    )
