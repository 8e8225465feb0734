"""What a compilation did: every stage and pass with its time, whether it changed the kernel, by
which transforms, and the kernel after it; as text on stderr, or as a page.

`TILEWRIGHT_DEBUG` says how much is printed:

| level | printed                                                                       |
| ----- | ----------------------------------------------------------------------------- |
| 1     | the time of each stage and pass, a line each; or that it came from the cache  |
| 2     | and whether it changed the kernel                                             |
| 3     | and the transforms of each step, and the kernel after it if it changed        |
| 4     | and the target's code                                                         |
| 5     | and every rewrite of an expression, with its rule, before the stages' times   |
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager as ContextManager
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from tilewright.config import settings
from tilewright.engine.overview import Overview
from tilewright.engine.page import Entry, page_text
from tilewright.errors import ArgumentError
from tilewright.ir.expr import Expr
from tilewright.ir.printer import to_text
from tilewright.ir.stages import Stage, Taken
from tilewright.ir.stmt import Kernel
from tilewright.notebook import table_html
from tilewright.passes import PASSES, run
from tilewright.simplify import traced

_CHANGED = {None: "", True: "yes", False: "no"}


@dataclass(frozen=True)
class TraceStep:
    """One line of a trace. ``kind`` is ``stage`` (of the schedule), ``pass`` or ``part`` (of the
    compilation); a part has no kernel, and ``changed`` is None. ``before`` is the kernel before
    the step; the first one of a schedule has none. ``taken`` are the steps of the schedule in a
    stage."""

    kind: str
    name: str
    seconds: float
    changed: bool | None = None
    kernel: Kernel | None = None
    before: Kernel | None = None
    taken: tuple[Taken, ...] = ()

    @property
    def transforms(self) -> list[tuple[str, Kernel, Kernel]]:
        """The transforms of the step, as Python, with the kernels before and after each."""
        return [(str(taken), taken.before, taken.kernel) for taken in self.taken]

    def line(self, verbose: bool) -> str:
        """The step as text; ``verbose`` says whether it changed anything."""
        said = "" if self.changed is None or not verbose else "changed" if self.changed else "-"
        return f"{self.kind:6}{self.name:24}{self.seconds * 1e3:9.2f} ms  {said}".rstrip()


def _step(kind: str, stage: Stage, before: Kernel | None) -> TraceStep:
    return TraceStep(
        kind, stage.name, stage.seconds, stage.changed, stage.kernel, before, stage.steps
    )


class Trace:
    """Collects the steps of one compilation, and prints as much of them as ``level`` asks for."""

    def __init__(self, level: int | None = None, stream: TextIO | None = None) -> None:
        self.level = settings().debug if level is None else level
        self.steps: list[TraceStep] = []
        self.kernels: list[Kernel] = []
        """What the target gets: the kernel, and those that pack its operands."""
        self._stream = stream
        self._printed: Kernel | None = None

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part of the compilation, timed."""
        start = time.perf_counter()
        yield
        self.took(name, time.perf_counter() - start)

    def took(self, name: str, seconds: float) -> None:
        """A part of the compilation that was timed elsewhere; it may have run beside others."""
        self._add(TraceStep("part", name, seconds))

    def stages(self, entries: Iterable[Stage]) -> None:
        """Takes the stages of a schedule."""
        before = None
        for stage in entries:
            if before is not None and before.name != stage.kernel.name:
                before = None  # of another group
            self._add(_step("stage", stage, before))
            before = stage.kernel

    def passes(self, kernel: Kernel) -> Kernel:
        """``kernel`` after all passes. From level 2 on, what each makes is verified."""
        before = kernel

        def note(stage: Stage) -> None:
            nonlocal before
            self._add(_step("pass", stage, before))
            before = stage.kernel

        return run(kernel, PASSES, note, check=self.level >= 2)

    def kernel(self, kernel: Kernel) -> None:
        """Takes what the target gets; prints it, where it is not what was printed last."""
        self.kernels.append(kernel)
        if self.level >= 3 and kernel is not self._printed:
            self._show(kernel)

    def code(self, text: Callable[[], str]) -> None:
        """Prints the target's code, which is not made before it is asked for."""
        if self.level >= 4:
            self._print(text())

    def rewrites(self) -> ContextManager[None]:
        """Inside it, every rewrite is printed where the level asks for it."""
        return traced(self._rewrite) if self.level >= 5 else nullcontext()

    def page_text(
        self,
        title: str = "Tilewright",
        texts: Mapping[str, str] | None = None,
        overview: Overview | None = None,
    ) -> str:
        """The steps as a page, with the transforms of each, ``texts`` by their names, and the
        ``overview`` in front."""
        entries: list[Entry] = []
        for step in self.steps:
            entries += _entries(step)
        for kernel in self.kernels:
            entries.append(Entry("the target gets", kernel.name, after=to_text(kernel)))
        entries += [Entry("also", name, after=text) for name, text in (texts or {}).items()]
        return page_text(title, entries, overview)

    def __repr__(self) -> str:
        return f"<trace of {len(self.steps)} steps>"

    def _repr_html_(self) -> str:
        rows = [
            (step.kind, step.name, f"{step.seconds * 1e3:.2f} ms", _CHANGED[step.changed])
            for step in self.steps
        ]
        return table_html(rows, ("step", "name", "time", "changed"))

    def page(self, path: str | Path, title: str = "Tilewright") -> None:
        """Writes `page_text` to a file. Raises `ArgumentError` where it cannot be written."""
        try:
            Path(path).write_text(self.page_text(title), encoding="utf-8")
        except OSError as error:
            raise ArgumentError(
                f"cannot write {path}",
                why=error.strerror or str(error),
                cure="choose another place",
            ) from error

    def _add(self, step: TraceStep) -> None:
        self.steps.append(step)
        if self.level >= 1:
            self._print(step.line(self.level >= 2))
        if self.level >= 3 and step.kernel is not None and step.changed:
            for call, _, _ in step.transforms:
                self._print(f"      {call}")
            self._show(step.kernel)

    def _show(self, kernel: Kernel) -> None:
        self._print(to_text(kernel))
        self._printed = kernel

    def _rewrite(self, rule: str, before: Expr, after: Expr) -> None:
        self._print(f"  {rule}: {before!r} => {after!r}")

    def _print(self, text: str) -> None:
        print(text, file=self._stream if self._stream is not None else sys.stderr)


def _entries(step: TraceStep) -> Iterator[Entry]:
    """The lines of a page for one step: its own, and its transforms'."""
    note = f"{step.seconds * 1e3:.1f} ms"
    if step.kernel is None:
        yield Entry("compilation", f"{step.kind} {step.name}", note)
        return
    group = f"kernel {step.kernel.name}"
    # Stages of a group are called after it, as is the heading.
    label = f"{step.kind} {step.name.removeprefix(f'{step.kernel.name}: ')}"
    if not step.changed:
        yield Entry(group, label, "unchanged")
        return
    before = None if step.before is None else to_text(step.before)
    yield Entry(group, label, note, before, to_text(step.kernel))
    for call, old, new in step.transforms:
        yield Entry(group, call, "", to_text(old), to_text(new), inner=True)
