"""Convolution and matmul in workgroups: the schedule, step by step.

naive
-> phases (of strides that a mask divides by: a dim of its own, and only the taps that each takes)
-> combined (M, N and the batch are one dim each, whatever they were; and reduced dims that the
   config names)
-> whole (dims grow to whole tiles, what is beyond is masked)
-> packed, sliced (B in the order it is read, where that may be; the reduction in parts)
-> mapped (tiles of C for workgroups and for the work-items of each, M over one axis and N over the
   other, with what they need inside)
-> added up (where work-items reduce parts: the workgroup adds them up, and does what comes after)
-> stepped (the reduction in steps, of a phase's taps as many as there are)
-> stream-k (the steps of all tiles in even shares of workgroups)
-> staged (what a step reads is copied to memory that the work-items share, by all of them)
-> computed (by the copies, where elementwise computes make what they copy)
-> pipelined (and copied ahead)
-> tapped (with a halo: loops over the taps of what is shared)
-> epilogue (where the workgroup stores its tile together: through shared memory)
-> tensorized, lowered
-> ordered (in which order workgroups take the tiles, and how many there are)

Where a subgroup of its own has whole tiles copied, they are shared, ordered, stored (whole, too, if
they go through shared memory) and specialized, and then tensorized: that subgroup goes through the
tiles by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import DType
from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space, Swizzle
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Compute, For, Kernel
from tilewright.ir.uses import view_variables
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import variables, walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ElementwiseConfig, WorkgroupConfig
from tilewright.recipes.elementwise import lower_rest, tiled_root
from tilewright.recipes.mapping import (
    PRODUCERS,
    added_up,
    adders,
    group_root,
    in_shares,
    item_root,
    mapped,
    ordered,
    slice_adders,
    sliced,
    streamers,
    zeros,
)
from tilewright.recipes.matrix_stores import finishing, is_stored, stored_as_matrices
from tilewright.recipes.mma import (
    Mma,
    in_fragments,
    mma_of,
    on_own_registers,
    rows_along,
    rows_last,
)
from tilewright.recipes.parts.asked import Asked
from tilewright.recipes.parts.product import neighbours
from tilewright.recipes.phases import by_phase, only_taps
from tilewright.recipes.preparing import combined, packed, whole_tiles
from tilewright.recipes.prologues import with_prologues
from tilewright.recipes.roles import (
    MAIN,
    RESULT,
    extents,
    factor_type,
    find_compute,
    taps_of,
)
from tilewright.recipes.storing import staged_epilogue, staged_results
from tilewright.recipes.warpgroups import boxed, in_rows, shared_rows, warp_specialized
from tilewright.recipes.workers import parallelize_outermost
from tilewright.recipes.workgroup_checks import check, check_shared
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.loops.distribute import serial_loops
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.loops.merge_loops import merge_loops
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.loops.trim import trim_dims
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.pipelines.load_ahead import load_ahead
from tilewright.schedule.pipelines.pipeline import Fill, pipeline
from tilewright.schedule.pipelines.start_products import start_products
from tilewright.schedule.queries.place import holds_loop, views_of
from tilewright.schedule.queries.storage import BlockList
from tilewright.schedule.schedule import KernelSchedule
from tilewright.schedule.staging.copiers import Threads
from tilewright.schedule.staging.stage import stage

STEP = "step"
# Copies in a row that are written out.
_UNROLLED_COPIES = 16


def schedule(s: KernelSchedule, machine: Machine, config: WorkgroupConfig) -> None:
    """Carries ``config`` out."""
    taps = _until_staged(s, machine, config)
    mma = mma_of(s.kernel, machine, config)
    if config.staging.by_unit:
        assert mma is not None
        warp_specialized(s, mma, config, STEP)
    else:
        s.mark("staged", _staged(s.kernel, machine, config, taps))
        s.mark("computed", with_prologues(s.kernel))
    staging = config.staging
    if not staging.by_unit and staging.stages > 1 and holds_loop(s.kernel.body, STEP):
        fill = Fill(staging.fill)
        s.mark("pipelined", pipeline(s.kernel, STEP, staging.stages, fill))
    if taps:
        # Steps of the taps are loops: unrolled, there is more code than a cache holds.
        left = {d.var.name for d in find_compute(s.kernel, MAIN).dims}
        sizes = {dim: config.reduction.step.get(dim, 1) for dim in taps if dim in left}
        s.mark("tapped", tile(s.kernel, MAIN, sizes))
    if config.storing.tile and not config.staging.by_unit:
        s.mark("epilogue", staged_epilogue(s.kernel, machine, config, mma))
    check_shared(s.kernel, machine, config)
    if mma is not None:
        if mma.by_rows and not config.staging.by_unit:
            s.mark("started", start_products(s.kernel, MAIN))
        s.mark("tensorized", _on_matrices(s.kernel, mma))
        s.mark("ahead", _loaded_ahead(s.kernel, machine, config))
    elif config.product.instruction:
        instruction = machine.instruction(config.product.instruction)
        dims = {"n": config.product.lanes}
        if neighbours(instruction) > 1:
            dims["k"] = config.product.k
        s.mark("tensorized", tensorize(s.kernel, MAIN, instruction, dims))
    s.mark("lowered", _lowered(s.kernel, machine, config, mma))
    if not config.staging.by_unit:
        s.mark("ordered", ordered(s.kernel, config))
    s.mark("parallel", parallelize_outermost(s.kernel, machine))


def tiles_of(s: KernelSchedule, machine: Machine, config: WorkgroupConfig) -> Kernel:
    """The kernel at the stage where tiles are shared: what a model looks at."""
    taps = _until_staged(s, machine, config)
    return _staged(s.kernel, machine, config, taps)


def _until_staged(s: KernelSchedule, machine: Machine, config: WorkgroupConfig) -> list[str]:
    """Carries out all that comes before operands are shared; gives the taps of a halo."""
    s.mark("naive", s.kernel)
    kernel = drop_unit_dims(s.kernel)
    if not config.staging.halo:
        kernel = by_phase(kernel)
        s.mark("phases", kernel)
    config.reduction.check_fused(Asked(config, find_compute(kernel, MAIN), machine))
    halo, fused = config.staging.halo, config.reduction.fused
    tensors = boxed(kernel, bool(config.storing.tile)) if config.staging.by_unit else []
    kernel = combined(kernel, halo=halo, fused=fused, tensors=tensors)
    s.mark("combined", kernel)
    main = find_compute(s.kernel, MAIN)
    check(config, main, machine)
    taps = taps_of(main) if config.staging.halo else []
    s.mark("whole", whole_tiles(s.kernel, config))
    packed(s, machine, config)
    s.mark("sliced", sliced(s.kernel, config))
    s.mark("mapped", mapped(s.kernel, config, config.product.kind(machine)))
    if config.reduction.item_slices:
        s.mark("added up", added_up(s.kernel, config))
    s.mark("stepped", _stepped(s.kernel, config, taps))
    if config.order.stream_k:
        s.mark("stream-k", in_shares(s.kernel, machine, config, STEP))
    return taps


def _loaded_ahead(kernel: Kernel, machine: Machine, config: WorkgroupConfig) -> Kernel:
    """Fragments of the next product are loaded during one, across steps, of which there is a
    constant number."""
    if not config.staging.loads_ahead(machine, config.product, config.reduction.step):
        return kernel
    try:
        return load_ahead(kernel, STEP)
    except ScheduleError:
        return kernel


def _on_matrices(kernel: Kernel, mma: Mma) -> Kernel:
    """The products of a step by instructions, and what is handed on of their sums."""
    kernel = in_rows(kernel, mma) if mma.by_rows else in_fragments(kernel, mma)
    return stored_as_matrices(kernel, staged_results(kernel), mma)


def _stepped(kernel: Kernel, config: WorkgroupConfig, taps: Sequence[str]) -> Kernel:
    main = find_compute(kernel, MAIN)
    kept = {v for index in main.out.index for v in variables(index)}
    reduced = [d.var.name for d in main.dims if d.var not in kept and d.var.name not in taps]
    sizes = {d: config.reduction.step.get(d, 1) for d in reduced}
    order = [d for d in config.reduction.loops if d in sizes]
    kernel = tile(kernel, MAIN, sizes, [*order, *(d for d in sizes if d not in order)])
    kernel = only_taps(kernel, config)
    loops = serial_loops(kernel, MAIN)
    return merge_loops(kernel, loops, STEP) if loops else kernel


def _staged(
    kernel: Kernel, machine: Machine, config: WorkgroupConfig, taps: Sequence[str]
) -> Kernel:
    """Copies of A and B: along the reduction first, and then as the work-items' lanes read them, so
    that what they read at once lies in different banks. With ``taps``, of the part of A as it is.
    """
    main = find_compute(kernel, MAIN)
    vector, sizes = machine.lanes(main.out.buffer.dtype), extents(main)
    group = config.product.neighbours(machine)
    kept = {v for index in main.out.index for v in variables(index)}
    # Each once, though several nests may have them.
    items = list(
        dict.fromkeys(
            stmt.var
            for stmt in walk_stmts(kernel.body)
            if isinstance(stmt, For) and stmt.kind in THREADS
        )
    )
    mma = mma_of(kernel, machine, config)
    reduced = [d.var for d in main.dims if d.var not in kept]
    inner = [d.var for d in main.dims if d.var in kept]
    at = STEP if holds_loop(kernel.body, STEP) else items[-1].name
    by = Threads(config.staging.vector, mma.lanes if mma is not None else 0)
    for position, operand in enumerate(main.operands[:2]):
        name = operand.var.name
        used = view_variables(operand.view)
        rows = [v.name for v in reduced if v in used]
        boxed = bool(taps) and position == 0
        if boxed:
            # Rows are what lies behind one another in the tensor: those of a dim of its own.
            alone = [{v.name for v in variables(i)} & sizes.keys() for i in operand.view.index]
            rows = [name for name in rows if name not in taps and {name} in alone]
        around = [v.name for v in items if v in used]
        own = [v.name for v in inner if v in used]
        given = config.staging.swizzle.get(name)
        swizzle = None if given is None else Swizzle(*given)
        cast: DType | None = None
        row = rows[-1] if rows else ""
        layout: BlockList
        if mma is not None and mma.by_rows:
            row = ""
            layout, swizzle = shared_rows(main, mma, config, position, around)
        elif mma is not None:
            places, row = rows_last([*around, *own], rows, rows_along(main, mma, position))
            layout = [(dim, None) for dim in places]
            cast = factor_type(main, operand)
        else:
            whole = [v.name for v in reduced if v in used]
            order = _read_last([*whole, *own, *around], own, config, (vector, group))
            layout = () if boxed else order
            cast = main.out.buffer.dtype if group == 1 else None
        padding = config.staging.padding.get(name, 0)
        kernel = stage(
            kernel,
            MAIN,
            name,
            at,
            by=by,
            shape="box" if boxed else "dims",
            layout=layout,
            row_padding={row: padding} if row and padding else {},
            swizzle=swizzle,
            cast=cast if cast is not operand.var.type else None,
        )
    return kernel


def _read_last(
    names: list[str], own: list[str], config: WorkgroupConfig, read: tuple[int, int]
) -> list[tuple[str, int | None]]:
    """Dims of a shared tile in the order of ``names``, what a work-item reads at once innermost:
    so many elements along its lanes, and of each so many that a dot product adds up."""
    vector, group = read
    order: list[tuple[str, int | None]] = [(name, None) for name in names]
    # A dim that each work-item has once is a loop around: it has no vectors.
    if config.product.lanes in own:
        order.append((config.product.lanes, vector))
    if group > 1:
        order.append((config.product.k, group))
    return order


def is_vector(copy: Compute) -> bool:
    """Whether the last dim of a copy to shared memory is what one work-item moves at a time."""
    return bool(copy.dims) and copy.dims[-1].var.name.startswith("element")


def _is_held(compute: Compute) -> bool:
    """Whether ``compute`` moves the next tile into registers, or from there."""
    private = [v.buffer for v in views_of(compute) if v.buffer.space is Space.PRIVATE]
    return compute.combiner is None and any(b.name.endswith("_next") for b in private)


def _lowered(kernel: Kernel, machine: Machine, config: WorkgroupConfig, mma: Mma | None) -> Kernel:
    vector = machine.lanes(find_compute(kernel, MAIN).out.buffer.dtype)
    lanes, held = config.product.lanes, config.staging.fill == Fill.REGISTERS.value
    together = bool(config.storing.tile) and not config.staging.by_unit
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
        wide = config.staging.vector
        kernel = lower_computes(kernel, [name], vector=along, lanes=wide, unroll=unroll)
    if mma is not None:
        own = [PRODUCERS[0], *streamers(kernel), *finishing(kernel, item_root(config))]
        own += staged_results(kernel)
        if not (together or is_stored(kernel, item_root(config), mma)):
            own.append(item_root(config))
        kernel = on_own_registers(kernel, mma, list(dict.fromkeys(own)))
    kernel = lower_computes(
        kernel,
        [
            *PRODUCERS,
            item_root(config),
            *adders(config),
            *streamers(kernel),
            *staged_results(kernel),
            group_root(config),
        ],
        vector=lanes,
        lanes=vector,
        order=(*config.reduction.loops, *(d for d in config.tile.item if d != lanes)),
        unroll=(*config.tile.item, *config.reduction.step, lanes),
    )
    if config.reduction.slices:
        # Workgroups made whole tiles of the parts: what is beyond the result is not added up.
        kernel = trim_dims(kernel, RESULT, slice_adders(config))
        for name in (*zeros(config), RESULT):
            kernel = tiled_root(kernel, name, ElementwiseConfig(vector=vector))
    return lower_rest(kernel)
