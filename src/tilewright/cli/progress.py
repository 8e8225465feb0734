"""Progress on stderr, where that is a terminal, and what one there reads of many cases."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

T = TypeVar("T")
# So many cases have a line each on a terminal.
_FEW = 20


def brief(total: int, verbose: bool) -> bool:
    """Whether only those of ``total`` cases have a line that failed: of many on a terminal, unless
    one asked for all. What goes to a file or a pipe is for programs, and has all lines."""
    return total > _FEW and not verbose and sys.stdout.isatty()


def progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """``items``, with a bar while they come; without one in pipes, and for a few of them."""
    console = Console(stderr=True)
    if not console.is_terminal or total < 3:
        yield from items
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        for item in items:
            yield item
            bar.advance(task)
