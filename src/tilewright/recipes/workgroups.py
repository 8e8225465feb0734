"""Convolution and matmul in workgroups: the schedule, step by step.

naive
-> combined (M, N and the batch are one dim each, whatever they were)
-> whole (dims grow to whole tiles, what is beyond is masked)
-> packed, sliced (B in the order it is read, where that may be; the reduction in parts)
-> mapped (tiles of C for workgroups and for the work-items of each, M over one axis and N over the
   other, with what they need inside)
-> joined (where work-items reduce parts: the workgroup adds them up, and does what comes after)
-> stepped (the reduction in steps)
-> streamed (the steps of all tiles in even shares of workgroups)
-> shared (what a step reads is copied to memory that the work-items share, by all of them)
-> pipelined (and copied ahead)
-> tensorized, lowered
-> ordered (in which order workgroups take the tiles, and how many there are)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space, Swizzle
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Allocate, Compute, For, Kernel, LoopKind
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import variables, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import StreamingConfig, WorkgroupConfig
from tilewright.recipes.mapping import (
    PRODUCERS,
    adders,
    group_root,
    item_root,
    joined,
    mapped,
    ordered,
    slice_adders,
    sliced,
    streamed,
    streamers,
    zeros,
)
from tilewright.recipes.matrices import (
    Matrices,
    in_fragments,
    matrices,
    on_own_registers,
    packed_order,
    rows_along,
    rows_last,
)
from tilewright.recipes.roles import (
    MAIN,
    RESULT,
    extents,
    find_compute,
    roles,
    strides,
)
from tilewright.recipes.scheduled import ScheduledKernel
from tilewright.recipes.streaming import lower_rest, parallelize_outermost, tiled_root
from tilewright.schedule.access import view_variables
from tilewright.schedule.distribute import serial_loops
from tilewright.schedule.extend import extend
from tilewright.schedule.hoist import hoist_pack
from tilewright.schedule.linearize import linearize
from tilewright.schedule.loops import lower_computes
from tilewright.schedule.merge import merge_loops
from tilewright.schedule.pad import pad
from tilewright.schedule.pipeline import Fill, pipeline
from tilewright.schedule.place import views_of
from tilewright.schedule.promote import promote
from tilewright.schedule.share import share
from tilewright.schedule.storage import BlockList
from tilewright.schedule.tensorize import tensorize
from tilewright.schedule.tile import tile
from tilewright.schedule.trim import trim_dims
from tilewright.schedule.unit import drop_unit_dims

STEP = "step"
# Copies in a row that are written out.
_UNROLLED_COPIES = 16


def schedule(
    kernel: Kernel, machine: Machine, config: WorkgroupConfig, prepack: str | None
) -> ScheduledKernel:
    """Carries ``config`` out. ``prepack`` names the argument that may be packed beforehand."""
    result = ScheduledKernel(kernel)
    _until_shared(result, machine, config, prepack)
    found = matrices(result.kernel, machine, config)
    result.stage("shared", _shared(result.kernel, machine, config))
    if config.stages > 1 and _has_loop(result.kernel, STEP):
        fill = Fill(config.fill)
        result.stage("pipelined", pipeline(result.kernel, STEP, config.stages, fill))
    _check_shared(result.kernel, machine, config)
    if found is not None:
        result.stage("tensorized", in_fragments(result.kernel, found))
    elif config.instruction:
        instruction = machine.instruction(config.instruction)
        result.stage("tensorized", tensorize(result.kernel, MAIN, instruction, {"n": config.lanes}))
    result.stage("lowered", _lowered(result.kernel, machine, config, found))
    result.stage("ordered", ordered(result.kernel, config))
    result.stage("parallel", parallelize_outermost(result.kernel, machine))
    return result


def tiles_of(
    kernel: Kernel, machine: Machine, config: WorkgroupConfig, prepack: str | None
) -> Kernel:
    """The kernel at the stage where tiles are shared: what a model looks at."""
    result = ScheduledKernel(kernel)
    _until_shared(result, machine, config, prepack)
    return _shared(result.kernel, machine, config)


def _until_shared(
    result: ScheduledKernel, machine: Machine, config: WorkgroupConfig, prepack: str | None
) -> None:
    result.stage("naive", result.kernel)
    result.stage("combined", combined(drop_unit_dims(result.kernel)))
    check(config, find_compute(result.kernel, MAIN), machine)
    result.stage("whole", _whole(result.kernel, config))
    _packed(result, machine, config, prepack)
    result.stage("sliced", sliced(result.kernel, config))
    result.stage("mapped", mapped(result.kernel, config, _items_kind(machine, config)))
    if config.item_slices:
        result.stage("joined", joined(result.kernel, config))
    result.stage("stepped", _stepped(result.kernel, config))
    if config.stream:
        result.stage("streamed", streamed(result.kernel, machine, config, STEP))


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
    operands = tuple(o.var.name for o in main.operands[:2])
    for what, names, allowed in (
        ("lanes", (config.lanes,), parts.kept),
        ("group", tuple(config.group), parts.kept),
        ("item", tuple(config.item), parts.kept),
        ("order", config.order, parts.kept),
        ("step", tuple(config.step), parts.k),
        ("k", (config.k,) if config.k else (), parts.k),
        ("reduce_order", config.reduce_order, parts.k),
        ("slices", tuple(dim for dim, _ in config.slices), parts.k),
        ("padding", tuple(config.padding), operands),
        ("swizzle", tuple(config.swizzle), operands),
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
    if config.fill not in {fill.value for fill in Fill}:
        raise _refusal(
            config,
            f"fill={config.fill!r} is no way to fill a tile",
            "there are copies, registers and asynchronous copies",
            "choose one of " + ", ".join(fill.value for fill in Fill),
        )
    _check_slices(config)
    if config.stream:
        _check_stream(config, math.prod(-(-sizes[d] // config.step.get(d, 1)) for d in parts.k))
    for dim, part in config.item.items():
        size = config.group.get(dim, 1)
        if size % part:
            raise _refusal(
                config,
                f"a tile of {size} along {dim!r} is no whole number of work-items' tiles",
                f"each work-item takes {part}",
                "make the one a multiple of the other",
            )
    _check_machine(config, machine)


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


def _items_kind(machine: Machine, config: WorkgroupConfig) -> LoopKind:
    """What has an item's tile: a work-item, or a subgroup whose lanes multiply matrices."""
    return LoopKind.WORKGROUP if lanes_of(machine, config) == 1 else LoopKind.SUBGROUP


def lanes_of(machine: Machine, config: WorkgroupConfig) -> int:
    """The lanes that work on an item's tile together."""
    return machine.instruction(config.instruction).lanes if config.instruction else 1


def _check_stream(config: WorkgroupConfig, steps: int) -> None:
    others = [n for n in ("slices", "item_slices", "persistent") if getattr(config, n)]
    if others:
        raise _refusal(
            config,
            f"stream={config.stream} with {others[0]}={getattr(config, others[0])!r}",
            "both say how workgroups divide the work",
            f"leave stream or {others[0]} out",
        )
    if steps < 2:
        raise _refusal(
            config,
            f"stream={config.stream} with tiles of one step",
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
    items = work_items(config) * lanes_of(machine, config)
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


def _check_shared(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> None:
    """Refuses what a workgroup of the machine has no memory for."""
    assert machine.hierarchy is not None
    buffers = [s.buffer for s in walk_stmts(kernel.body) if isinstance(s, Allocate)]
    shared = [b for b in buffers if b.space is Space.WORKGROUP]
    needed = sum(buffer.bytes for buffer in shared)
    if needed > machine.hierarchy.shared:
        raise _refusal(
            config,
            f"a workgroup shares {needed} bytes",
            f"{machine.name} has {machine.hierarchy.shared}, and "
            + ", ".join(f"{b.name} takes {b.bytes}" for b in shared),
            "make the group's tile, the steps or the number of stages smaller",
        )


def work_items(config: WorkgroupConfig) -> int:
    """The items of a workgroup: its work-items, or subgroups that multiply matrices."""
    tiles = math.prod(size // config.item.get(dim, 1) for dim, size in config.group.items())
    return tiles * math.prod(parts for _, parts in config.item_slices)


def _refusal(config: WorkgroupConfig, what: str, why: str, cure: str) -> ScheduleError:
    return ScheduleError(what, where=f"config {config!r}", why=why, cure=cure)


def _has_loop(kernel: Kernel, name: str) -> bool:
    return any(isinstance(s, For) and s.var.name == name for s in walk_stmts(kernel.body))


def _whole(kernel: Kernel, config: WorkgroupConfig) -> Kernel:
    """Dims padded to whole tiles, steps and slices."""
    main = find_compute(kernel, MAIN)
    sizes = extents(main)
    slices, item_slices = dict(config.slices), dict(config.item_slices)
    for dim in roles(main).k:
        whole = config.step.get(dim, 1) * slices.get(dim, 1) * item_slices.get(dim, 1)
        kernel = pad(kernel, MAIN, {dim: -(-sizes[dim] // whole) * whole})
    whole_tiles = {dim: -(-sizes[dim] // size) * size for dim, size in config.group.items()}
    return extend(kernel, RESULT, whole_tiles)


def _packed(
    result: ScheduledKernel, machine: Machine, config: WorkgroupConfig, prepack: str | None
) -> None:
    """B, where it may be packed beforehand, in the order in which it is shared."""
    main = find_compute(result.kernel, MAIN)
    view = main.operands[1].view
    if prepack != view.buffer.name:
        return
    parts = roles(main)
    used = {d for d, step in strides(main, view).items() if step != 0}
    reduced = (*config.reduce_order, *(d for d in parts.k if d not in config.reduce_order))
    layout = [d for d in (*parts.batch, *reduced, *parts.n, *parts.m) if d in used]
    found = matrices(result.kernel, machine, config)
    if found is not None:
        layout = packed_order(main, found, layout)
    name = f"{prepack}_packed"
    kernel = promote(
        result.kernel, MAIN, "b", by="dims", space=Space.GLOBAL, layout=layout, name=name
    )
    try:
        pack, kernel = hoist_pack(kernel, name)
    except ScheduleError:
        # Something else reads the weights as they are: they are shared from there.
        return
    result.packs[prepack] = parallelize_outermost(lower_rest(pack), machine)
    result.stage("packed", kernel)


def _stepped(kernel: Kernel, config: WorkgroupConfig) -> Kernel:
    main = find_compute(kernel, MAIN)
    kept = {v for index in main.out.index for v in variables(index)}
    reduced = [d.var.name for d in main.dims if d.var not in kept]
    sizes = {d: config.step.get(d, 1) for d in reduced}
    order = [d for d in config.reduce_order if d in sizes]
    kernel = tile(kernel, MAIN, sizes, [*order, *(d for d in sizes if d not in order)])
    loops = serial_loops(kernel, MAIN)
    return merge_loops(kernel, loops, STEP) if loops else kernel


def _shared(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> Kernel:
    """Copies of A and B: along the reduction first, and then as the work-items' lanes read them, so
    that what they read at once lies in different banks."""
    main = find_compute(kernel, MAIN)
    vector = machine.lanes(main.out.buffer.dtype)
    kept = {v for index in main.out.index for v in variables(index)}
    # Each once, though several nests may have them.
    items = list(
        dict.fromkeys(
            stmt.var
            for stmt in walk_stmts(kernel.body)
            if isinstance(stmt, For) and stmt.kind in THREADS
        )
    )
    found = matrices(kernel, machine, config)
    reduced = [d.var for d in main.dims if d.var not in kept]
    inner = [d.var for d in main.dims if d.var in kept]
    layout: dict[str, BlockList] = {}
    padding: dict[str, dict[str, int]] = {}
    cast: dict[str, DType] = {}
    for position, operand in enumerate(main.operands[:2]):
        name = operand.var.name
        used = view_variables(operand.view)
        rows = [v.name for v in reduced if v in used]
        order: list[tuple[str, int | None]] = []
        if found is not None:
            names = [v.name for v in (*items, *inner) if v in used]
            along = rows_along(main, found, position)
            places, row = rows_last(names, rows, along)
            layout[name] = [(dim, None) for dim in places]
            if config.padding.get(name):
                padding[name] = {row: config.padding[name]}
            continue
        order += [(v.name, None) for v in (*reduced, *inner, *items) if v in used]
        # A dim that each work-item has once is a loop around: it has no vectors.
        if config.lanes in {v.name for v in inner if v in used}:
            order.append((config.lanes, vector))
        layout[name] = order
        if rows and config.padding.get(name):
            padding[name] = {rows[-1]: config.padding[name]}
        if operand.var.type is not main.out.buffer.dtype:
            cast[name] = main.out.buffer.dtype
    return share(
        kernel,
        MAIN,
        [o.var.name for o in main.operands[:2]],
        STEP if _has_loop(kernel, STEP) else items[-1].name,
        layout=layout,
        row_padding=padding,
        swizzle={name: Swizzle(*given) for name, given in config.swizzle.items()},
        cast=cast,
        vector=config.vector,
        lanes=found.lanes if found is not None else 0,
    )


def is_vector(copy: Compute) -> bool:
    """Whether the last dim of a copy to shared memory is what one work-item moves at a time."""
    return bool(copy.dims) and copy.dims[-1].var.name.startswith("element")


def _is_held(compute: Compute) -> bool:
    """Whether ``compute`` moves the next tile into registers, or from there."""
    private = [v.buffer for v in views_of(compute) if v.buffer.space is Space.PRIVATE]
    return compute.combiner is None and any(b.name.endswith("_next") for b in private)


def _lowered(
    kernel: Kernel, machine: Machine, config: WorkgroupConfig, found: Matrices | None
) -> Kernel:
    vector = machine.lanes(find_compute(kernel, MAIN).out.buffer.dtype)
    held = config.fill == Fill.REGISTERS.value
    copies = dict.fromkeys(
        s.name
        for s in walk_stmts(kernel.body)
        if isinstance(s, Compute) and (is_vector(s) or (held and _is_held(s)))
    )
    for name in copies:
        compute = find_compute(kernel, name)
        # What is held in registers has to be unrolled; what is not may not fit there.
        unroll = [
            d.var.name
            for d in compute.dims
            if held or (isinstance(d.extent, Const) and d.extent.value <= _UNROLLED_COPIES)
        ]
        along = compute.dims[-1].var.name if is_vector(compute) else None
        kernel = lower_computes(kernel, [name], vector=along, lanes=config.vector, unroll=unroll)
    if found is not None:
        own = [PRODUCERS[0], *streamers(kernel), item_root(config)]
        kernel = on_own_registers(kernel, found, own)
    kernel = lower_computes(
        kernel,
        [*PRODUCERS, item_root(config), *adders(config), *streamers(kernel), group_root(config)],
        vector=config.lanes,
        lanes=vector,
        order=(*config.reduce_order, *(d for d in config.item if d != config.lanes)),
        unroll=(*config.item, *config.step, config.lanes),
    )
    if config.slices:
        # Workgroups made whole tiles of the parts: what is beyond the result is not added up.
        kernel = trim_dims(kernel, RESULT, slice_adders(config))
        for name in (*zeros(config), RESULT):
            kernel = tiled_root(kernel, name, StreamingConfig(vector=vector))
    return lower_rest(kernel)
