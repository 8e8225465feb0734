"""A kernel's text with the lines of source beside it that its statements come from."""

from __future__ import annotations

from pathlib import Path

from tilewright.ir.printer import lines_of
from tilewright.ir.stmt import Kernel

# Where source begins, but behind longer lines.
_COLUMN = 64


def beside_source(kernel: Kernel) -> str:
    """The text of a kernel, which still parses: where a statement comes from another line of a file
    than the one above, and does not say just what stands there, a comment has that line."""
    found: list[str] = []
    last: tuple[str | None, int] | None = None
    for line, stmt in lines_of(kernel):
        span = None if stmt is None else stmt.span
        if span is None or span.file is None:
            found.append(line)
            continue
        place, source = (span.file, span.line), span.caret().partition("\n")[0].strip()
        if place == last or source == line.strip():
            found.append(line)
        else:
            found.append(f"{line:<{_COLUMN}}  # {Path(span.file).name}:{span.line}: {source}")
        last = place
    return "\n".join(found)
