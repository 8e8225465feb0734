"""How far a long compilation is: a bar on stderr, where that is a terminal."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import Any

# Seconds without a word: short ones need none.
_PATIENCE = 1.0


class Bar:
    """Told how many kernels of how many are compiled. A bar appears after a second, whatever is
    done then; until kernels are compiled, it says that the graph is looked at."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._done: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __call__(self, done: int, total: int) -> None:
        with self._lock:
            self._done = done, total
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
            self._task = self._bar.add_task("cutting the graph", total=None)
            self._bar.start()
            self._update()

    def _update(self) -> None:
        if self._bar is not None and self._done is not None:
            done, total = self._done
            self._bar.update(
                self._task, description="compiling kernels", completed=done, total=total
            )
