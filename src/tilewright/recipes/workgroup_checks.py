"""What a `WorkgroupConfig` may choose for a kernel, in words, and what it may not: refusals say
what, why, and what to choose instead."""

from __future__ import annotations

from tilewright.ir.buffer import SHARED, workgroup_bytes
from tilewright.ir.stmt import Allocate, Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.layout.roles import MAIN
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.legal import instructions_for, one_of
from tilewright.recipes.parts.asked import Asked, refusal
from tilewright.recipes.parts.staging import FILLS
from tilewright.recipes.preparing import combined
from tilewright.recipes.roles import extents, find_compute, roles
from tilewright.schedule.schedule import KernelSchedule


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
    if machine.threaded:
        raise asked.refusal(
            f"{machine.name} has no workgroups",
            "its threads share no memory of their own",
            "use a ContractionConfig",
        )
    config.staging.check_unit(asked)
    config.tile.check_count(asked)


def check_shared(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> None:
    """Refuses what a workgroup of the machine has no memory for."""
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


def legal(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> dict[str, str]:
    """Of the fields that name dims; whether tiles fit the machine's memory is found out by trying
    them."""
    whole = KernelSchedule(kernel, machine)
    whole.drop_unit_dims()
    combined(whole, halo=config.staging.halo, fused=config.reduction.fused)
    main = find_compute(whole.kernel, MAIN)
    sizes, parts = extents(main), roles(main)
    tiles = "whole numbers; " + ", ".join(f"{dim} has {sizes[dim]}" for dim in parts.kept)
    steps = "whole numbers; " + ", ".join(f"{dim} has {sizes[dim]}" for dim in parts.k)
    staged = ", ".join(operand.var.name for operand in main.operands[:2])
    matrices = config.product.together(machine) > 1
    return {
        "product.instruction": one_of(["", *instructions_for(main, machine)]),
        "product.lanes": one_of(parts.n if matrices else parts.kept),
        "product.k": one_of(["", *parts.k]),
        "tile.group": tiles,
        "tile.item": tiles,
        "reduction.step": steps,
        "reduction.loops": "each once, in any order: " + ", ".join(parts.k),
        "staging.fill": one_of(FILLS),
        "staging.padding": f"a dict with whole numbers of elements for some of {staged}",
        "staging.swizzle": f"a dict with (bits, base, shift) for some of {staged}",
        "order.loops": "each once, in any order: " + ", ".join(parts.kept),
    }
