"""The error for LLVM IR that LLVM refuses, with the name of a file that holds it."""

from __future__ import annotations

import tempfile

from tilewright.errors import CompilationError


def refusal(ir_text: str, message: str, processor: str) -> CompilationError:
    """LLVM's ``message`` on ``ir_text`` for ``processor`` ("the CPU, znver4") as our error."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="tilewright-", suffix=".ll", delete=False, encoding="utf-8"
    ) as file:
        file.write(ir_text)
    return CompilationError(
        "LLVM refused the generated code",
        where=file.name,
        why=message.strip(),
        cure=f"this is a defect of Tilewright: report it with that file and {processor}",
    )
