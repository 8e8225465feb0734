"""Progress on stderr, where that is a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

T = TypeVar("T")


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
