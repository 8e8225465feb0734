"""A kernel's text with the source lines of its statements beside it."""

from __future__ import annotations

from pathlib import Path

from tilewright.ir.printer import lines_of
from tilewright.ir.stmt import Kernel

# The column of source lines, after shorter lines of text.
_COLUMN = 64


def beside_source(kernel: Kernel) -> str:
    """The text of a kernel, which still parses: a statement from another source line than the one
    above has that line as a comment, unless it is the same text."""
    lines: list[str] = []
    last: tuple[str | None, int] | None = None
    for line, stmt in lines_of(kernel):
        span = None if stmt is None else stmt.span
        if span is None or span.file is None:
            lines.append(line)
            continue
        place, source = (span.file, span.line), span.caret().partition("\n")[0].strip()
        if place == last or source == line.strip():
            lines.append(line)
        else:
            lines.append(f"{line:<{_COLUMN}}  # {Path(span.file).name}:{span.line}: {source}")
        last = place
    return "\n".join(lines)
