"""Places in a user's program, from what PyTorch remembers of each node."""

from __future__ import annotations

import linecache
import re

from torch.fx import Node

from tilewright.errors import Span

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def span_of(node: Node) -> Span | None:
    """The line of the user's program that a node came from: the innermost that is not PyTorch's."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    for file, line in reversed(frames):
        if "/torch/" in file:
            continue
        lines = linecache.getlines(file)
        number = int(line) - 1
        if number < len(lines):
            start = sum(map(len, lines[:number]))
            text = lines[number]
            indent = len(text) - len(text.lstrip())
            return Span("".join(lines), start + indent, start + len(text.rstrip()), file)
    return None
