"""A scheduled kernel."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tilewright.ir.stmt import Kernel
from tilewright.notebook import unfolded_html
from tilewright.passes import Record


class Stages(dict[str, Kernel]):
    """Kernels by the name of their stage; each one's text is ``print(stages["naive"])``."""

    def _repr_html_(self) -> str:
        return unfolded_html({name: str(kernel) for name, kernel in self.items()})


@dataclass(repr=False)
class ScheduledKernel:
    """The kernel at its last stage, all stages by name, and the kernels that pack operands (by the
    name of the argument).

    ``records`` has all stages in order, those that changed nothing too, and the seconds of each:
    since the stage before it, or since the schedule was begun. ``notes`` say what a transform
    refused, and what was done instead.
    """

    kernel: Kernel
    stages: Stages = field(default_factory=Stages)
    packs: dict[str, Kernel] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _since: float = field(default_factory=time.perf_counter)

    def __repr__(self) -> str:
        return f"<schedule of {self.kernel.name}: stages {', '.join(self.stages)}>"

    def _repr_html_(self) -> str:
        return self.stages._repr_html_()

    def stage(self, name: str, kernel: Kernel) -> None:
        """Takes ``kernel`` as the next stage; one that changed nothing is left out."""
        changed = kernel is not self.kernel or not self.stages
        if changed:
            self.stages[name] = kernel
        now = time.perf_counter()
        self.records.append(Record(name, kernel, changed, now - self._since))
        self._since = now
        self.kernel = kernel
