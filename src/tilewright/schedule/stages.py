"""The stages of a schedule: names for what its steps gave so far, for people who look."""

from __future__ import annotations

import time
from dataclasses import replace

from tilewright.ir.stages import Stage, Taken
from tilewright.ir.stmt import Kernel
from tilewright.notebook import unfolded_html


class Stages(dict[str, Kernel]):
    """Kernels by the name of their stage; the text of one is ``print(stages["naive"])``."""

    def _repr_html_(self) -> str:
        return unfolded_html({name: str(kernel) for name, kernel in self.items()})


class StageLog:
    """The stages of a schedule in order, those that changed nothing too, and its notes: what a
    transform refused, and what was done instead. Times are since the stage before, or since the
    log was begun."""

    def __init__(self) -> None:
        self.entries: list[Stage] = []
        self.notes: list[str] = []
        self._since = time.perf_counter()

    def add(self, name: str, kernel: Kernel, steps: tuple[Taken, ...] = ()) -> None:
        """Ends a stage with ``kernel``, which ``steps`` gave."""
        now = time.perf_counter()
        changed = not self.entries or kernel is not self.entries[-1].kernel
        self.entries.append(Stage(name, kernel, changed, now - self._since, steps))
        self._since = now

    def include(self, part: StageLog, name: str) -> None:
        """Adds the stages and notes of a part called ``name``."""
        self.entries += [replace(entry, name=f"{name}: {entry.name}") for entry in part.entries]
        self.notes += part.notes

    def by_name(self) -> Stages:
        """The kernels of stages that changed something."""
        return Stages({entry.name: entry.kernel for entry in self.entries if entry.changed})
