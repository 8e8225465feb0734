"""A scheduled kernel."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.stmt import Kernel


@dataclass
class Schedule:
    """The kernel at its last stage, all stages by name, and the kernels that pack operands (by the
    name of the argument)."""

    kernel: Kernel
    stages: dict[str, Kernel] = field(default_factory=dict)
    packs: dict[str, Kernel] = field(default_factory=dict)

    def stage(self, name: str, kernel: Kernel) -> None:
        """Takes ``kernel`` as the next stage; one that changed nothing is left out."""
        if kernel is not self.kernel or not self.stages:
            self.stages[name] = kernel
        self.kernel = kernel
