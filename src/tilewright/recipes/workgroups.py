"""Convolution and matmul in workgroups: the schedule, step by step.

naive
-> combined (M, N and the batch are one dim each, whatever they were)
-> whole (dims grow to whole tiles, what is beyond is masked)
-> mapped (tiles of C for workgroups and for the work-items of each, M over one axis and N over the
   other, with what they need inside)
-> stepped (the reduction in steps)
-> shared (what a step reads is copied to memory that the work-items share, by all of them)
-> pipelined (and copied ahead)
-> tensorized, lowered
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.errors import ScheduleError
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Compute, For, Kernel, LoopKind
from tilewright.ir.visit import variables, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import WorkgroupConfig
from tilewright.recipes.roles import MAIN, RESULT, extents, find_compute, roles, strides
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.recipes.streaming import lower_rest, parallelize_outermost
from tilewright.schedule.distribute import distribute, serial_loops
from tilewright.schedule.extend import extend
from tilewright.schedule.linearize import linearize
from tilewright.schedule.loops import lower_computes
from tilewright.schedule.merge import merge_loops
from tilewright.schedule.pad import pad
from tilewright.schedule.pipeline import Fill, pipeline
from tilewright.schedule.share import share
from tilewright.schedule.tensorize import tensorize
from tilewright.schedule.tile import tile
from tilewright.schedule.unit import drop_unit_dims

PRODUCERS = ("init", MAIN)
STEP = "step"


def schedule(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> ScheduledKernel:
    """Carries ``config`` out."""
    result = ScheduledKernel(kernel)
    result.stage("naive", kernel)
    result.stage("combined", combined(drop_unit_dims(kernel)))
    main = find_compute(result.kernel, MAIN)
    check(config, main, machine)
    result.stage("whole", _whole(result.kernel, config))
    result.stage("mapped", _mapped(result.kernel, config))
    result.stage("stepped", _stepped(result.kernel, config))
    result.stage("shared", _shared(result.kernel, config))
    if config.stages > 1 and _has_loop(result.kernel, STEP):
        fill = Fill(config.fill)
        result.stage("pipelined", pipeline(result.kernel, STEP, config.stages, fill))
    if config.instruction:
        instruction = machine.instruction(config.instruction)
        result.stage("tensorized", tensorize(result.kernel, MAIN, instruction, {"n": config.lanes}))
    result.stage("lowered", _lowered(result.kernel, machine, config))
    result.stage("parallel", parallelize_outermost(result.kernel, machine))
    return result


def combined(kernel: Kernel) -> Kernel:
    """``kernel`` with one dim per role of the result, ordered as the result lies in memory."""
    for part in ("batch", "m", "n"):
        main = find_compute(kernel, MAIN)
        dims: Sequence[str] = getattr(roles(main), part)
        if len(dims) < 2:
            continue
        out = find_compute(kernel, RESULT)
        steps = strides(out, out.out)
        # A dim that blocks of the layout cut has no one step: it stays where it is.
        ordered = (
            sorted(dims, key=lambda d: -(steps[d] or 0)) if all(steps[d] for d in dims) else dims
        )
        kernel = linearize(kernel, list(ordered), "_".join(ordered))
    return kernel


def check(config: WorkgroupConfig, main: Compute, machine: Machine) -> None:
    """Refuses a config that names dims the op does not have, or sizes beyond the machine."""
    sizes, parts = extents(main), roles(main)
    for what, names, allowed in (
        ("lanes", (config.lanes,), parts.kept),
        ("group", tuple(config.group), parts.kept),
        ("item", tuple(config.item), parts.kept),
        ("order", config.order, parts.kept),
        ("step", tuple(config.step), parts.k),
        ("reduce_order", config.reduce_order, parts.k),
    ):
        for name in names:
            if name not in allowed:
                raise _refusal(
                    config,
                    f"{what}={name!r} is no dim that this may name",
                    f"the op's dims are {sizes}, of which {sorted(parts.k)} are reduced",
                    "choose one of " + ", ".join(allowed),
                )
    if config.fill not in {fill.value for fill in Fill}:
        raise _refusal(
            config,
            f"fill={config.fill!r} is no way to fill a tile",
            "there are copies, registers and asynchronous copies",
            "choose one of " + ", ".join(fill.value for fill in Fill),
        )
    for dim, size in config.group.items():
        if size % config.item.get(dim, 1):
            raise _refusal(
                config,
                f"a tile of {size} along {dim!r} is no whole number of work-items' tiles",
                f"each work-item takes {config.item.get(dim, 1)}",
                "make the one a multiple of the other",
            )
    _check_machine(config, machine)


def _check_machine(config: WorkgroupConfig, machine: Machine) -> None:
    hierarchy = machine.hierarchy
    if hierarchy is None:
        raise _refusal(
            config,
            f"{machine.name} has no workgroups",
            "its threads share no memory of their own",
            "use a ContractionConfig",
        )
    items = work_items(config)
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


def work_items(config: WorkgroupConfig) -> int:
    """The work-items of a workgroup."""
    return math.prod(size // config.item.get(dim, 1) for dim, size in config.group.items())


def _refusal(config: WorkgroupConfig, what: str, why: str, cure: str) -> ScheduleError:
    return ScheduleError(what, where=f"config {config!r}", why=why, cure=cure)


def _has_loop(kernel: Kernel, name: str) -> bool:
    return any(isinstance(s, For) and s.var.name == name for s in walk_stmts(kernel.body))


def _whole(kernel: Kernel, config: WorkgroupConfig) -> Kernel:
    """Dims padded to whole tiles and steps."""
    main = find_compute(kernel, MAIN)
    sizes = extents(main)
    for dim, step in config.step.items():
        kernel = pad(kernel, MAIN, {dim: -(-sizes[dim] // step) * step})
    whole = {dim: -(-sizes[dim] // size) * size for dim, size in config.group.items()}
    return extend(kernel, RESULT, whole)


def _mapped(kernel: Kernel, config: WorkgroupConfig) -> Kernel:
    """Tiles of C for workgroups, and in them for work-items: neighbours along the lanes."""
    parts = roles(find_compute(kernel, MAIN))
    group = {d: config.group.get(d, 1) for d in parts.kept}
    item = {d: config.item.get(d, 1) for d in config.group}
    rows = [d for d in config.order if d != config.lanes]
    levels = [(LoopKind.GRID, group), (LoopKind.WORKGROUP, item)]
    return distribute(
        kernel, RESULT, levels, config.order, producers=PRODUCERS, storage=(*rows, config.lanes)
    )


def _stepped(kernel: Kernel, config: WorkgroupConfig) -> Kernel:
    main = find_compute(kernel, MAIN)
    kept = {v for index in main.out.index for v in variables(index)}
    reduced = [d.var.name for d in main.dims if d.var not in kept]
    sizes = {d: config.step.get(d, 1) for d in reduced}
    order = [d for d in config.reduce_order if d in sizes]
    kernel = tile(kernel, MAIN, sizes, [*order, *(d for d in sizes if d not in order)])
    loops = serial_loops(kernel, MAIN)
    return merge_loops(kernel, loops, STEP) if loops else kernel


def _shared(kernel: Kernel, config: WorkgroupConfig) -> Kernel:
    """Copies of A and B in the order in which work-items read them: along the reduction first."""
    main = find_compute(kernel, MAIN)
    kept = {v for index in main.out.index for v in variables(index)}
    items = [
        stmt.var
        for stmt in walk_stmts(kernel.body)
        if isinstance(stmt, For) and stmt.kind is LoopKind.WORKGROUP
    ]
    reduced = [d.var for d in main.dims if d.var not in kept]
    inner = [d.var for d in main.dims if d.var in kept]
    layout = {}
    padding = {}
    cast = {}
    for operand in main.operands[:2]:
        used = frozenset[Var]().union(*(variables(e) for e in operand.view.index))
        if operand.view.mask is not None:
            used |= variables(operand.view.mask)
        name = operand.var.name
        layout[name] = [v.name for v in (*reduced, *items, *inner) if v in used]
        first = [v.name for v in reduced if v in used]
        if first and config.padding.get(name):
            padding[name] = {first[-1]: config.padding[name]}
        if operand.var.type is not main.out.buffer.dtype:
            cast[name] = main.out.buffer.dtype
    return share(
        kernel,
        MAIN,
        [o.var.name for o in main.operands[:2]],
        STEP if _has_loop(kernel, STEP) else items[-1].name,
        layout=layout,
        row_padding=padding,
        cast=cast,
        vector=config.vector,
    )


def _lowered(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> Kernel:
    vector = machine.lanes(find_compute(kernel, RESULT).operands[0].var.type)
    copies = dict.fromkeys(
        s.name
        for s in walk_stmts(kernel.body)
        if isinstance(s, Compute) and s.dims and s.dims[-1].var.name.startswith("element")
    )
    for name in copies:
        dims = [d.var.name for d in find_compute(kernel, name).dims]
        kernel = lower_computes(kernel, [name], vector=dims[-1], lanes=config.vector, unroll=dims)
    names = [s.name for s in walk_stmts(kernel.body) if isinstance(s, Compute)]
    inner = [*PRODUCERS, RESULT]
    kernel = lower_computes(
        kernel,
        [name for name in inner if name in names],
        vector=config.lanes,
        lanes=vector,
        order=(*config.reduce_order, *(d for d in config.item if d != config.lanes)),
        unroll=(*config.item, *config.step, config.lanes),
    )
    return lower_rest(kernel)
