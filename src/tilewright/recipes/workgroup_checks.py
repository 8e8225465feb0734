"""What a `WorkgroupConfig` may not ask for: refusals say what, why, and what to choose instead."""

from __future__ import annotations

from tilewright.ir.buffer import SHARED, workgroup_bytes
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.parts.asked import Asked, refusal


def check(config: WorkgroupConfig, main: Compute, machine: Machine) -> None:
    """Refuses a config that names dims the op does not have, or sizes beyond the machine: each
    part what it is about."""
    asked = Asked(config, main, machine)
    for part in (
        config.tile,
        config.product,
        config.reduction,
        config.staging,
        config.order,
        config.storing,
    ):
        part.check(asked)
    if machine.hierarchy is None:
        raise asked.refusal(
            f"{machine.name} has no workgroups",
            "its threads share no memory of their own",
            "use a ContractionConfig",
        )
    config.staging.check_unit(asked)
    config.tile.check_count(asked)


def check_shared(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> None:
    """Refuses what a workgroup of the machine has no memory for."""
    assert machine.hierarchy is not None
    buffers = [s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)]
    shared = [b for b in buffers if b.space in SHARED]
    needed = sum(map(workgroup_bytes, shared))
    if needed > machine.hierarchy.shared:
        raise refusal(
            config,
            f"a workgroup shares {needed} bytes",
            f"{machine.name} has {machine.hierarchy.shared}, and "
            + ", ".join(f"{b.name} takes {workgroup_bytes(b)}" for b in shared),
            "make the group's tile, the steps or the number of stages smaller",
        )
