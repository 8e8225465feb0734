"""What a compilation did: every stage and pass with its time, whether it changed the kernel, and
the kernel behind it; as text on stderr, or as a page.

`TILEWRIGHT_DEBUG` says how much is printed:

| level | printed                                                                    |
| ----- | -------------------------------------------------------------------------- |
| 1     | the time that each stage and pass took, one line each                       |
| 2     | and whether it changed the kernel                                           |
| 3     | and the kernel that the target gets                                         |
| 4     | and the target's code                                                       |
| 5     | and every rewrite of an expression, with its rule, before the stages' times |
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager as ContextManager
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tilewright.config import settings
from tilewright.errors import ArgumentError
from tilewright.ir.expr import Expr
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.passes import PASSES, Record, run
from tilewright.simplify import traced


@dataclass(frozen=True)
class Step:
    """One line of a trace. ``kind`` is ``stage`` (of the schedule), ``pass`` or ``part`` (of the
    compilation); a part has no kernel, and ``changed`` is None."""

    kind: str
    name: str
    seconds: float
    changed: bool | None = None
    kernel: Kernel | None = None

    def line(self, verbose: bool) -> str:
        """The step as text; ``verbose`` says whether it changed anything."""
        said = "" if self.changed is None or not verbose else "changed" if self.changed else "-"
        return f"{self.kind:6}{self.name:24}{self.seconds * 1e3:9.2f} ms  {said}".rstrip()


class Trace:
    """Collects the steps of one compilation, and prints as much of them as ``level`` asks for."""

    def __init__(self, level: int | None = None, stream: TextIO | None = None) -> None:
        self.level = settings().debug if level is None else level
        self.steps: list[Step] = []
        self._stream = stream

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part of the compilation, timed."""
        start = time.perf_counter()
        yield
        self.took(name, time.perf_counter() - start)

    def took(self, name: str, seconds: float) -> None:
        """A part of the compilation that was timed elsewhere; it may have run beside others."""
        self._add(Step("part", name, seconds))

    def stages(self, records: Iterable[Record]) -> None:
        """Takes the stages of a schedule."""
        for each in records:
            self._add(Step("stage", each.name, each.seconds, each.changed, each.kernel))

    def passes(self, kernel: Kernel) -> Kernel:
        """``kernel`` behind all passes. From level 2 on, what each makes is verified."""

        def note(record: Record) -> None:
            self._add(Step("pass", record.name, record.seconds, record.changed, record.kernel))

        return run(kernel, PASSES, note, check=self.level >= 2)

    def kernel(self, kernel: Kernel) -> None:
        """Prints what the target gets."""
        if self.level >= 3:
            self._print(to_text(kernel))

    def code(self, text: Callable[[], str]) -> None:
        """Prints the target's code, which is not made before it is asked for."""
        if self.level >= 4:
            self._print(text())

    def rewrites(self) -> ContextManager[None]:
        """Inside it, every rewrite is printed where the level asks for it."""
        return traced(self._rewrite) if self.level >= 5 else nullcontext()

    def page(self, path: str | Path, title: str = "Tilewright") -> None:
        """Writes the steps as a page: a table, each row of which opens to the kernel behind it.

        Raises `ArgumentError` where it cannot be written.
        """
        rows = []
        for step in self.steps:
            line = html.escape(step.line(verbose=True))
            if step.kernel is None or not step.changed:
                rows.append(f"<p>{line}</p>")
            else:
                code = html.escape(to_text(step.kernel))
                rows.append(f"<details><summary>{line}</summary><pre>{code}</pre></details>")
        style = "p, summary { font-family: monospace; white-space: pre; margin: 0.2em 1em }"
        head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{style}</style>'
        text = "\n".join(["<!doctype html>", head, f"<h1>{html.escape(title)}</h1>", *rows, ""])
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ArgumentError(
                f"cannot write {path}",
                why=error.strerror or str(error),
                cure="choose another place",
            ) from error

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        if self.level >= 1:
            self._print(step.line(self.level >= 2))

    def _rewrite(self, rule: str, before: Expr, after: Expr) -> None:
        self._print(f"  {rule}: {before!r} => {after!r}")

    def _print(self, text: str) -> None:
        print(text, file=self._stream if self._stream is not None else sys.stderr)
