"""How far a long compilation is: a bar on stderr, where that is a terminal."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

# Seconds without a word: short ones need none.
_PATIENCE = 1.0


@contextmanager
def long_compilation(what: str = "cutting the graph") -> Iterator[Bar]:
    """A bar while something is compiled, which begins with ``what``: a new one, or the one that is
    there already. Meanwhile Python looks through all there is for garbage once at most, then among
    what is new: all that a process with a network has, it would look through many times."""
    outer = _outer.get()
    if outer is not None:
        outer.begin(what)
        yield outer
        return
    with Bar(what) as bar, _frozen_once():
        token = _outer.set(bar)
        try:
            yield bar
        finally:
            _outer.reset(token)


@contextmanager
def _frozen_once() -> Iterator[None]:
    """What is left when Python has looked through everything is frozen.

    Not before: to freeze begins the count anew by which Python looks for garbage, which it would
    never do among what was there when many short compilations follow each other.
    """
    freezes = False

    def told(phase: str, info: dict[str, int]) -> None:
        nonlocal freezes
        # Who has frozen something goes on having it so.
        if phase == "stop" and info["generation"] == 2 and gc.get_freeze_count() == 0:
            freezes = True
            gc.freeze()

    gc.callbacks.append(told)
    try:
        yield
    finally:
        gc.callbacks.remove(told)
        if freezes:
            gc.unfreeze()


class Bar:
    """Told how many kernels of how many are compiled. A bar appears after a second, whatever is
    done then; until kernels are compiled, it says ``what`` is done."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: Any = None
        self._done: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __call__(self, done: int, total: int) -> None:
        with self._lock:
            self._done = done, total
            self._update()

    def begin(self, what: str) -> None:
        """Says what is done now. How long it takes is not known."""
        with self._lock:
            self._what, self._done = what, None
            self._update()

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            self._timer = threading.Timer(_PATIENCE, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _show(self) -> None:
        # It takes a while to load, and is of no use without a terminal.
        from rich.console import Console
        from rich.progress import Progress

        with self._lock:
            if self._timer is None:
                return  # It is over.
            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=None)
            self._bar.start()
            self._update()

    def _update(self) -> None:
        if self._bar is None:
            return
        if self._done is None:
            self._bar.reset(self._task, total=None, description=self._what)
            return
        done, total = self._done
        self._bar.update(self._task, description="compiling kernels", completed=done, total=total)


_outer: ContextVar[Bar | None] = ContextVar("outer", default=None)
