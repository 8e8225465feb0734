"""What the checks of a config's parts look at, and how they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright.errors import ScheduleError
from tilewright.ir.stmt import Compute
from tilewright.machines.machine import Machine
from tilewright.recipes.roles import Roles, extents, roles


def refusal(config: object, what: str, why: str, cure: str) -> ScheduleError:
    """What is said to a config that asks for ``what`` it cannot have."""
    return ScheduleError(what, where=f"config {config!r}", why=why, cure=cure)


@dataclass(frozen=True)
class Asked:
    """A `WorkgroupConfig` (whose file imports this one), the contraction that it is for, whose dims
    were combined, and the machine."""

    config: Any
    main: Compute
    machine: Machine

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The extents of the dims."""
        return extents(self.main)

    @cached_property
    def roles(self) -> Roles:
        """The roles of the dims."""
        return roles(self.main)

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of A and B."""
        return tuple(operand.var.name for operand in self.main.operands[:2])

    def refusal(self, what: str, why: str, cure: str) -> ScheduleError:
        """What is said to this config."""
        return refusal(self.config, what, why, cure)

    def check_names(
        self, what: str, names: Iterable[str], allowed: Sequence[str], noun: str = "dim"
    ) -> None:
        """Refuses what ``what`` may not name."""
        for name in names:
            if name not in allowed:
                raise self.refusal(
                    f"{what}={name!r} is no {noun} that this may name",
                    f"the op's dims are {self.sizes}, of which {sorted(self.roles.k)} are reduced",
                    "choose one of " + ", ".join(allowed),
                )
