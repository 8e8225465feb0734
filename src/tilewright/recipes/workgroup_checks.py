"""What a `WorkgroupConfig` may not ask for: refusals say what, why, and what to choose instead."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.errors import ScheduleError
from tilewright.facts.affine import affine
from tilewright.ir.buffer import SHARED, own_bytes
from tilewright.ir.expr import Var
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Allocate, Compute, Kernel, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.config import COPY_UNIT, WorkgroupConfig
from tilewright.recipes.dots import group_of
from tilewright.recipes.roles import extents, roles, taps_of
from tilewright.recipes.storing import TILE
from tilewright.schedule.pipeline import Fill


def check(config: WorkgroupConfig, main: Compute, machine: Machine) -> None:
    """Refuses a config that names dims the op does not have, or sizes beyond the machine."""
    sizes, parts = extents(main), roles(main)
    operands = tuple(o.var.name for o in main.operands[:2])
    for what, names, allowed in (
        ("lanes", (config.lanes,), parts.kept),
        ("group", tuple(config.group), parts.kept),
        ("cluster", tuple(config.cluster), tuple(config.group)),
        ("item", tuple(config.item), parts.kept),
        ("order", config.order, parts.kept),
        ("step", tuple(config.step), parts.k),
        ("k", (config.k,) if config.k else (), parts.k),
        ("reduce_order", config.reduce_order, parts.k),
        ("slices", tuple(dim for dim, _ in config.slices), parts.k),
        ("padding", tuple(config.padding), (*operands, TILE)),
        ("swizzle", tuple(config.swizzle), operands),
        ("epilogue_tile", tuple(config.epilogue_tile), tuple(config.item)),
        ("item_slices", tuple(dim for dim, _ in config.item_slices), parts.k),
    ):
        noun = "operand" if what in ("padding", "swizzle") else "dim"
        for name in names:
            if name not in allowed:
                raise _refusal(
                    config,
                    f"{what}={name!r} is no {noun} that this may name",
                    f"the op's dims are {sizes}, of which {sorted(parts.k)} are reduced",
                    "choose one of " + ", ".join(allowed),
                )
    fills = (*(fill.value for fill in Fill), COPY_UNIT)
    if config.fill not in fills:
        raise _refusal(
            config,
            f"fill={config.fill!r} is no way to fill a tile",
            "there are copies, registers, asynchronous copies and those of whole tiles",
            "choose one of " + ", ".join(fills),
        )
    _check_slices(config)
    _check_dots(config, machine)
    if config.stream_k:
        inside = taps_of(main) if config.halo else []
        stepped = [d for d in parts.k if d not in inside]
        _check_stream(config, math.prod(-(-sizes[d] // config.step.get(d, 1)) for d in stepped))
    for dim, part in config.item.items():
        size = config.group.get(dim, 1)
        if size % part:
            raise _refusal(
                config,
                f"a tile of {size} along {dim!r} is no whole number of work-items' tiles",
                f"each work-item takes {part}",
                "make the one a multiple of the other",
            )
    if config.halo:
        _check_halo(config, main)
    for dim, part in config.epilogue_tile.items():
        if config.item[dim] % part:
            raise _refusal(
                config,
                f"epilogue_tile={{{dim!r}: {part}}} is no part of what a work-item has",
                f"it has {config.item[dim]} along {dim!r}, which go through in equal pieces",
                "choose a divisor of that",
            )
    _check_cluster(config, sizes, machine)
    _check_machine(config, machine)


def check_fused(config: WorkgroupConfig, main: Compute) -> None:
    """Refuses dims to be fused that ``main`` does not reduce, or too few of them."""
    reduced = roles(main).k
    wrong = [dim for dim in config.fused if dim not in reduced]
    if wrong or len(config.fused) == 1:
        raise _refusal(
            config,
            f"fused={config.fused!r}",
            f"{wrong[0]!r} is no reduced dim" if wrong else "one dim is one already",
            "name two or more of " + ", ".join(reduced),
        )


def _check_dots(config: WorkgroupConfig, machine: Machine) -> None:
    group = group_of(machine, config)
    step = config.step.get(config.k, 1)
    if step % group:
        raise _refusal(
            config,
            f"{config.instruction} adds up {group} neighbours at a time",
            f"k is {config.k!r} here, of which a step has {step}" if config.k else "k names no dim",
            f"choose a reduced dim for `k`, and a `step` of it that is a multiple of {group}",
        )


def _check_halo(config: WorkgroupConfig, main: Compute) -> None:
    if not taps_of(main):
        raise _refusal(
            config,
            "halo=True without taps",
            "no reduced dim moves along with one of M, so that nothing is read twice",
            "leave halo out",
        )
    for index in main.operands[0].view.index:
        if not all(isinstance(atom, Var) for atom in affine(index).terms):
            raise _refusal(
                config,
                f"halo=True where A is read at {to_text(index)}",
                "what a tile reads is no box of the tensor",
                "leave halo out",
            )


def _check_slices(config: WorkgroupConfig) -> None:
    if len(config.item_slices) > 1:
        raise _refusal(
            config,
            f"the work-items reduce parts of {len(config.item_slices)} dims",
            "the parts of one are added up in memory of the workgroup",
            "slice the longest one only",
        )
    if config.atomic and len(config.slices) != 1:
        raise _refusal(
            config,
            f"atomic=True with {len(config.slices)} sliced dims",
            "what is added as it comes are the slices of one",
            "slice one dim, or leave atomic out",
        )


def items_kind(machine: Machine, config: WorkgroupConfig) -> LoopKind:
    """What has an item's tile: a work-item, or a subgroup whose lanes multiply matrices."""
    return LoopKind.WORKGROUP if lanes_of(machine, config) == 1 else LoopKind.SUBGROUP


def lanes_of(machine: Machine, config: WorkgroupConfig) -> int:
    """The lanes that work on an item's tile together."""
    return machine.instruction(config.instruction).lanes if config.instruction else 1


def loads_ahead(machine: Machine, config: WorkgroupConfig) -> bool:
    """Whether fragments of the next product are loaded during one: where steps are copied ahead by
    themselves and have an even number of products."""
    if lanes_of(machine, config) == 1 or config.fill != Fill.ASYNC.value or config.stages < 2:
        return False
    instruction = machine.instruction(config.instruction)
    in_registers = all(role.fragment is not None for role in instruction.operands)
    products = config.step.get(config.k, 1) // instruction.sizes["k"]
    return in_registers and products % 2 == 0


def _check_stream(config: WorkgroupConfig, steps: int) -> None:
    others = [n for n in ("slices", "item_slices", "persistent") if getattr(config, n)]
    if others:
        raise _refusal(
            config,
            f"stream_k={config.stream_k} with {others[0]}={getattr(config, others[0])!r}",
            "both say how workgroups divide the work",
            f"leave stream_k or {others[0]} out",
        )
    if steps < 2:
        raise _refusal(
            config,
            f"stream_k={config.stream_k} with tiles of one step",
            "shares that end inside a tile end between its steps",
            "make the steps smaller, or choose persistent",
        )


def _check_machine(config: WorkgroupConfig, machine: Machine) -> None:
    hierarchy = machine.hierarchy
    if hierarchy is None:
        raise _refusal(
            config,
            f"{machine.name} has no workgroups",
            "its threads share no memory of their own",
            "use a ContractionConfig",
        )
    specialized = check_warpgroups(config, machine)
    items = (work_items(config) + specialized) * lanes_of(machine, config)
    if lanes_of(machine, config) > 1 and config.item_slices:
        raise _refusal(
            config,
            "the work-items reduce parts, and multiply matrices",
            "what a subgroup holds is not added up by others",
            "leave item_slices out",
        )
    if items > hierarchy.workgroup:
        raise _refusal(
            config,
            f"a workgroup of {items} work-items",
            f"{machine.name} has at most {hierarchy.workgroup}",
            "make the group's tile smaller, or the items' larger",
        )
    if items < 2:
        raise _refusal(
            config,
            "a workgroup of one work-item",
            "it has nobody to share memory with",
            "make the group's tile a multiple of the item's, or use a ContractionConfig",
        )


def check_warpgroups(config: WorkgroupConfig, machine: Machine) -> bool:
    """Whether a subgroup of its own has tiles copied for those that multiply them; refuses what
    does not go together with that."""
    instruction = machine.instruction(config.instruction) if config.instruction else None
    in_memory = instruction is not None and any(role.rows for role in instruction.operands)
    whole = config.fill == COPY_UNIT
    if whole and not in_memory:
        raise _refusal(
            config,
            f"fill={config.fill!r} with instruction={config.instruction!r}",
            "tiles that are copied whole are for instructions on matrices in shared memory",
            "choose such an instruction, or another fill",
        )
    others: tuple[str, ...] = ("item_slices", "halo", "padding", "swizzle") if in_memory else ()
    others += ("stream_k",) if whole else ()
    for name in others:
        if getattr(config, name):
            raise _refusal(
                config,
                f"{name}={getattr(config, name)!r} with instruction={config.instruction!r}",
                "how tiles lie is the instruction's choice"
                + (", and a subgroup copies all of one result in order" if whole else ""),
                f"leave {name} out",
            )
    _check_pieces(config, instruction)
    if whole and work_items(config) < 2:
        raise _refusal(
            config,
            f"one subgroup multiplies with fill={COPY_UNIT!r}",
            "what it has copied for it, others are to share",
            "make the group's tile a multiple of the item's",
        )
    return whole


def _check_pieces(config: WorkgroupConfig, instruction: Instruction | None) -> None:
    """Refuses pieces of results of which lanes hold more and less, where a unit stores them."""
    if config.fill != COPY_UNIT or instruction is None:
        return
    rows = instruction.sizes["m"]
    for dim, part in config.epilogue_tile.items():
        if dim != config.lanes and part % rows:
            raise _refusal(
                config,
                f"epilogue_tile={{{dim!r}: {part}}} with instruction={config.instruction!r}",
                f"all lanes hold as much of {rows} rows, which one product has",
                f"choose a multiple of {rows}, or pieces along {config.lanes!r}",
            )


def _check_cluster(config: WorkgroupConfig, sizes: Mapping[str, int], machine: Machine) -> None:
    """Refuses clusters that the machine does not have, that share nothing, or that have workgroups
    without work."""
    if not config.cluster:
        return
    size = math.prod(config.cluster.values())
    most = machine.hierarchy.cluster if machine.hierarchy is not None else 1
    if size > most:
        raise _refusal(
            config,
            f"cluster={config.cluster!r}",
            f"{machine.name} has clusters of at most {most} workgroups"
            if most > 1
            else f"{machine.name} has no clusters",
            "choose a smaller one, or leave cluster out",
        )
    if len(config.cluster) > 1 or config.fill != COPY_UNIT:
        raise _refusal(
            config,
            f"cluster={config.cluster!r} with fill={config.fill!r}",
            "the workgroups of a cluster lie along one dim, and share tiles that are copied whole",
            f"name one dim, and choose fill={COPY_UNIT!r}, or leave cluster out",
        )
    ((dim, count),) = config.cluster.items()
    tiles = -(-sizes[dim] // config.group[dim])
    if tiles < count:
        raise _refusal(
            config,
            f"cluster={config.cluster!r} along {dim!r}, of which there are {tiles} tiles",
            f"each of the {count} workgroups has one",
            "choose a smaller cluster, or a smaller tile, or leave cluster out",
        )


def check_shared(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> None:
    """Refuses what a workgroup of the machine has no memory for."""
    assert machine.hierarchy is not None
    buffers = [s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)]
    shared = [b for b in buffers if b.space in SHARED]
    needed = sum(map(own_bytes, shared))
    if needed > machine.hierarchy.shared:
        raise _refusal(
            config,
            f"a workgroup shares {needed} bytes",
            f"{machine.name} has {machine.hierarchy.shared}, and "
            + ", ".join(f"{b.name} takes {own_bytes(b)}" for b in shared),
            "make the group's tile, the steps or the number of stages smaller",
        )


def work_items(config: WorkgroupConfig) -> int:
    """The items of a workgroup: its work-items, or subgroups that multiply matrices."""
    tiles = math.prod(size // config.item.get(dim, 1) for dim, size in config.group.items())
    return tiles * math.prod(parts for _, parts in config.item_slices)


def _refusal(config: WorkgroupConfig, what: str, why: str, cure: str) -> ScheduleError:
    return ScheduleError(what, where=f"config {config!r}", why=why, cure=cure)
