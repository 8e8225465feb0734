"""The recipe for contractions in workgroups that share what they read."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.legal import instruction_lines
from tilewright.recipes.recipe import AnyCandidate, Candidate, RankedRecipe
from tilewright.recipes.start import Start
from tilewright.recipes.workgroup_model import candidates, default_configs, prediction_of, predicts
from tilewright.recipes.workgroups import legal, schedule
from tilewright.schedule.schedule import KernelSchedule


class Workgroups(RankedRecipe[WorkgroupConfig]):
    """Tiles in workgroups that share what they read."""

    name, config = "workgroups", WorkgroupConfig

    def candidates(
        self, start: Start, machine: Machine
    ) -> Iterator[Candidate[WorkgroupConfig, None]]:
        """Without the rounding that may be left out, unless matrices are multiplied: it would only
        cost time."""
        for kernel in dict.fromkeys((start.kernel, start.exact)):
            for config in default_configs(kernel, machine, start.prepacked):
                if kernel is start.exact or self.rounds(config, machine):
                    yield Candidate(config, None)

    def legal(self, kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> dict[str, str]:
        return config.forms() | legal(kernel, machine, config)

    def instructions(self, kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> list[str]:
        return instruction_lines(kernel, machine, config.product.instruction)

    def schedule(self, s: KernelSchedule, machine: Machine, config: WorkgroupConfig) -> None:
        schedule(s, machine, config)

    def rounds(self, config: WorkgroupConfig, machine: Machine) -> bool:
        return config.product.together(machine) > 1

    def considered(
        self, start: Start, machine: Machine, config: WorkgroupConfig
    ) -> list[AnyCandidate]:
        if not predicts(machine):
            return [Candidate(config, None)]
        chosen = prediction_of(start.kernel, machine, config, start.prepacked)
        return [Candidate(config, chosen), *candidates(start.kernel, machine, start.prepacked)]
