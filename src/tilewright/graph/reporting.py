"""How far a long compilation is: a bar on stderr, where that is a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

# Seconds without a word: short ones need none.
_PATIENCE = 1.0


class Bar:
    """Told how many kernels of how many are compiled; a bar appears after a second."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None and self._is_due() and done < total:
            # It takes a while to load, and is of no use without a terminal.
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("compiling kernels", total=total)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _is_due(self) -> bool:
        return sys.stderr.isatty() and time.perf_counter() - self._start > _PATIENCE
