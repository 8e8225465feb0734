"""LLVM IR text -> SPIR-V, in a child process, which starts with the first module.

LLVM's output is right only in a process that has emitted no module before: the emitter forks one
for each module, which takes about 10 ms. See `targets.llvm.emitter` for the reason.
"""

from __future__ import annotations

import re
import sys
from functools import partial

from tilewright.errors import CompilationError
from tilewright.targets.child_process import ChildProcess, NotStartedError
from tilewright.targets.llvm import emitter
from tilewright.targets.llvm.emitter_client import program_of, refusal
from tilewright.targets.spirv.lower import TRIPLE

_UNKNOWN_INTRINSIC = re.compile(rb"\b(llvm\.[\w.]+)\0")
_emitter = ChildProcess(partial(program_of, "fork"), "LLVM")


def assemble(ir_text: str) -> bytes:
    """The SPIR-V module for ``ir_text``: the same bytes each time.

    Raises `CompilationError` with the name of a file that holds the IR. Safe to call from several
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


def begin() -> None:
    """Starts the process without waiting for it, unless it runs already."""
    _emitter.begin()


def _request(kind: bytes, ir_text: str) -> bytes:
    try:
        status, reply = _emitter.ask(kind, emitter.request(ir_text, TRIPLE, opt=1))
    except NotStartedError as error:
        raise CompilationError(
            "the process that emits SPIR-V ended",
            why="it was killed, or cannot run",
            cure=f"run `{sys.executable} {emitter.__file__}` to see whether it starts",
        ) from error
    if status != emitter.DONE:
        raise refusal(ir_text, reply.decode(errors="replace"), "the target, SPIR-V")
    return reply
