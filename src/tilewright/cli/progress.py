"""Progress on stderr, if that is a terminal, and shorter reports there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

T = TypeVar("T")
# The most cases with a line each on a terminal.
_FEW = 20


def brief(total: int, verbose: bool) -> bool:
    """Whether only failed cases get a line: for many cases on a terminal, unless ``verbose``. Files
    and pipes are for programs, and get all lines."""
    return total > _FEW and not verbose and sys.stdout.isatty()


def progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """``items``, with a progress bar; without one in pipes, and for less than 3 items."""
    console = Console(stderr=True)
    if not console.is_terminal or total < 3:
        yield from items
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        for item in items:
            yield item
            bar.advance(task)
