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

from collections.abc import Container, Sequence

from tilewright.dtypes import DType
from tilewright.ir.buffer import SHARED, Swizzle, workgroup_bytes
from tilewright.ir.computes import index_variables
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Allocate, Compute, For, Kernel
from tilewright.ir.uses import view_variables
from tilewright.ir.verify_groups import THREADS
from tilewright.ir.visit import variables, walk_stmts
from tilewright.layout.roles import MAIN, RESULT
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ElementwiseConfig, WorkgroupConfig
from tilewright.recipes.legal import instructions_for, one_of
from tilewright.recipes.lowering import lower_rest, parallelize
from tilewright.recipes.mapping import (
    PRODUCERS,
    Stores,
    in_shares,
    mapped,
    ordered,
    sliced,
)
from tilewright.recipes.mma import (
    Mma,
    in_fragments,
    is_stored,
    mma_of,
    on_own_registers,
    rows_along,
    rows_last,
    stored_as_matrices,
)
from tilewright.recipes.parts.forms import Asked, refusal
from tilewright.recipes.parts.product import neighbours
from tilewright.recipes.parts.staging import FILLS
from tilewright.recipes.plain import tiled_root
from tilewright.recipes.preparing import combined, packed, whole_tiles
from tilewright.recipes.prologues import with_prologues
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.reshaping import by_phase, only_taps
from tilewright.recipes.roles import extents, factor_type, find_compute, has_compute, roles, taps_of
from tilewright.recipes.storing import staged_epilogue, staged_results
from tilewright.recipes.warpgroups import boxed, in_rows, shared_rows, warp_specialized
from tilewright.schedule.pipelines.pipeline import Fill
from tilewright.schedule.queries.place import holds_loop, serial_loops
from tilewright.schedule.queries.storage import BlockList
from tilewright.schedule.records.handles import Handle
from tilewright.schedule.schedule import KernelSchedule
from tilewright.schedule.staging.copiers import Threads
from tilewright.schedule.staging.work_items import run_of_item

STEP = "step"
# Copies in a row that are written out.
_UNROLLED_COPIES = 16


def schedule(s: KernelSchedule, machine: Machine, config: WorkgroupConfig) -> None:
    """Carries ``config`` out."""
    taps, stores = _before_staged(s, machine, config)
    mma = mma_of(s.kernel, machine, config)
    # What work-items do together; copies in two halves, by way of registers; what finishes tiles.
    shared: list[str] = []
    halves: list[str] = []
    finishing: list[str] = []
    if config.staging.by_unit:
        assert mma is not None
        finishing = warp_specialized(s, mma, config, stores, STEP)
    else:
        shared += _staged(s, machine, config, taps)
        s.mark("staged")
        with_prologues(s)
        s.mark("computed")
    staging = config.staging
    if not staging.by_unit and staging.stages > 1 and holds_loop(s.kernel.body, STEP):
        fill = Fill(staging.fill)
        stages_of = s.pipeline(STEP, staging.stages, fill)
        if fill is Fill.REGISTERS:
            halves = [part for part in stages_of if part.kind == "compute"]
        s.mark("pipelined")
    if taps:
        # Steps of the taps are loops: unrolled, there is more code than a cache holds.
        left = {d.var.name for d in find_compute(s.kernel, MAIN).dims}
        sizes = {dim: config.reduction.step.get(dim, 1) for dim in taps if dim in left}
        s.tile(MAIN, sizes)
        s.mark("tapped")
    if config.storing.tile and not config.staging.by_unit:
        finishing = staged_epilogue(s, machine, config, stores.group, mma)
        shared.append(stores.group)
        s.mark("epilogue")
    check_shared(s.kernel, machine, config)
    if mma is not None:
        products = _on_matrices(s, mma, stores)
        s.mark("tensorized")
        # Across steps, of which there is a constant number.
        if products and staging.loads_ahead(machine, config.product, config.reduction.step):
            s.attempt(lambda: s.pipeline(products))
        s.mark("ahead")
    elif config.product.instruction:
        instruction = machine.instruction(config.product.instruction)
        dims = {"n": config.product.lanes}
        if neighbours(instruction) > 1:
            dims["k"] = config.product.k
        s.tensorize(MAIN, instruction, dims)
        s.mark("tensorized")
    _copies_lowered(s, config, shared, halves)
    if mma is not None:
        _lanes_lowered(s, config, stores, mma, finishing)
    _lowered(s, machine, config, stores)
    s.mark("lowered")
    if not config.staging.by_unit:
        ordered(s, config)
        s.mark("ordered")
    parallelize(s, machine)
    s.mark("parallel")


def until_staged(s: KernelSchedule, machine: Machine, config: WorkgroupConfig) -> Stores:
    """Carries out all stages up to the one where tiles are shared, which a model looks at."""
    taps, stores = _before_staged(s, machine, config)
    _staged(s, machine, config, taps)
    return stores


def _before_staged(
    s: KernelSchedule, machine: Machine, config: WorkgroupConfig
) -> tuple[list[str], Stores]:
    """Carries out all that comes before operands are shared; gives the taps of a halo, and what
    stores the result."""
    s.mark("naive")
    s.drop_unit_dims()
    if not config.staging.halo:
        by_phase(s)
        s.mark("phases")
    config.reduction.check_fused(Asked(config, find_compute(s.kernel, MAIN), machine))
    halo, fused = config.staging.halo, config.reduction.fused
    tensors = boxed(s.kernel, bool(config.storing.tile)) if config.staging.by_unit else []
    combined(s, halo=halo, fused=fused, tensors=tensors)
    s.mark("combined")
    main = find_compute(s.kernel, MAIN)
    check(config, main, machine)
    taps = taps_of(main) if config.staging.halo else []
    whole_tiles(s, config)
    s.mark("whole")
    packed(s, machine, config)
    stores = sliced(s, config)
    s.mark("sliced")
    mapped(s, config, stores, config.product.kind(machine))
    s.mark("mapped")
    if config.reduction.item_slices:
        # One nest of workgroups, which accumulate parts and add them up.
        s.fuse_nests(stores.item, stores.group)
        s.mark("added up")
    _stepped(s, config, taps)
    s.mark("stepped")
    if config.order.stream_k:
        stores = in_shares(s, machine, config, stores, STEP)
        s.mark("stream-k")
    return taps, stores


def _on_matrices(s: KernelSchedule, mma: Mma, stores: Stores) -> Handle | None:
    """The products of a step by instructions, and what is handed on of their sums. Gives the loop
    over products, if each loads fragments."""
    adding = stores.streamers[1:]
    products = None
    if mma.instruction.asynchronous:
        in_rows(s, mma, *adding)
    else:
        products = in_fragments(s, mma, MAIN, *adding)
    stored_as_matrices(s, staged_results(s.kernel), mma)
    return products


def _stepped(s: KernelSchedule, config: WorkgroupConfig, taps: Sequence[str]) -> None:
    main = find_compute(s.kernel, MAIN)
    kept = index_variables(main.out)
    reduced = [d.var.name for d in main.dims if d.var not in kept and d.var.name not in taps]
    sizes = {d: config.reduction.step.get(d, 1) for d in reduced}
    order = [d for d in config.reduction.loops if d in sizes]
    s.tile(MAIN, sizes, [*order, *(d for d in sizes if d not in order)])
    only_taps(s, config)
    loops = serial_loops(s.kernel, MAIN)
    if loops:
        s.merge_loops(loops, STEP)


def _staged(
    s: KernelSchedule, machine: Machine, config: WorkgroupConfig, taps: Sequence[str]
) -> list[str]:
    """Copies of A and B: along the reduction first, and then as the work-items' lanes read them, so
    that what they read at once lies in different banks. With ``taps``, of the part of A as it is.
    Gives the copies.
    """
    copies: list[str] = []
    main = find_compute(s.kernel, MAIN)
    vector, sizes = machine.lanes(main.out.buffer.dtype), extents(main)
    group = config.product.neighbours(machine)
    kept = index_variables(main.out)
    # Each once, though several nests may have them.
    items = list(
        dict.fromkeys(
            stmt.var
            for stmt in walk_stmts(s.kernel.body)
            if isinstance(stmt, For) and stmt.kind in THREADS
        )
    )
    mma = mma_of(s.kernel, machine, config)
    reduced = [d.var for d in main.dims if d.var not in kept]
    inner = [d.var for d in main.dims if d.var in kept]
    at = STEP if holds_loop(s.kernel.body, STEP) else items[-1].name
    lanes, ahead = (mma.lanes if mma is not None else 0), config.staging.fill == Fill.ASYNC.value
    by = Threads(config.staging.vector, lanes, across=ahead)
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
        inner_names = [v.name for v in inner if v in used]
        swizzling = config.staging.swizzle.get(name)
        swizzle = None if swizzling is None else Swizzle(*swizzling)
        cast: DType | None = None
        row = rows[-1] if rows else ""
        layout: BlockList
        if mma is not None and mma.instruction.asynchronous:
            row = ""
            layout, swizzle = shared_rows(main, mma, config, position, around)
        elif mma is not None:
            places, row = rows_last([*around, *inner_names], rows, rows_along(main, mma, position))
            layout = [(dim, None) for dim in places]
            cast = factor_type(main, operand)
        else:
            whole = [v.name for v in reduced if v in used]
            order = _read_last(
                [*whole, *inner_names, *around], inner_names, config, (vector, group)
            )
            layout = () if boxed else order
            cast = main.out.buffer.dtype if group == 1 else None
        padding = config.staging.padding.get(name, 0)
        staged = s.stage(
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
        copies.append(staged["copy"])
    return copies


def _read_last(
    names: list[str], inside: list[str], config: WorkgroupConfig, read: tuple[int, int]
) -> list[tuple[str, int | None]]:
    """Dims of a shared tile in the order of ``names``, what a work-item reads at once innermost:
    so many elements along its lanes, and of each so many that a dot product adds up."""
    vector, group = read
    order: list[tuple[str, int | None]] = [(name, None) for name in names]
    # A dim that each work-item has once is a loop around: it has no vectors.
    if config.product.lanes in inside:
        order.append((config.product.lanes, vector))
    if group > 1:
        order.append((config.product.k, group))
    return order


def _copies_lowered(
    s: KernelSchedule, config: WorkgroupConfig, shared: Container[str], halves: Container[str]
) -> None:
    """The ``shared`` computes where a work-item does several neighbours at once, and ``halves`` of
    copies that hold the next tile."""
    held = config.staging.fill == Fill.REGISTERS.value
    names = dict.fromkeys(
        part.name
        for part in computes_in(s.kernel)
        if part.name in halves or (part.name in shared and run_of_item(part))
    )
    for name in names:
        compute = find_compute(s.kernel, name)
        # What is held in registers has to be unrolled; what is not may not fit there.
        unroll = [
            d.var.name
            for d in compute.dims
            if held or (isinstance(d.extent, Const) and d.extent.value <= _UNROLLED_COPIES)
        ]
        along, wide = run_of_item(compute) or None, config.staging.vector
        s.lower_computes([name], vector=along, lanes=wide, unroll=unroll)


def _lanes_lowered(
    s: KernelSchedule, config: WorkgroupConfig, stores: Stores, mma: Mma, finishing: Sequence[str]
) -> None:
    """What begins and ends tiles of C that lanes hold."""
    streaming = [PRODUCERS[0], *stores.streamers, *finishing, *staged_results(s.kernel)]
    together = bool(config.storing.tile) and not config.staging.by_unit
    if not (together or is_stored(s.kernel, stores.item, mma)):
        streaming.append(stores.item)
    on_own_registers(s, mma, list(dict.fromkeys(streaming)))


def _lowered(s: KernelSchedule, machine: Machine, config: WorkgroupConfig, stores: Stores) -> None:
    lanes = config.product.lanes
    vector = machine.lanes(find_compute(s.kernel, MAIN).out.buffer.dtype)
    producers = [*PRODUCERS, stores.item, *stores.adders, *stores.streamers]
    s.lower_computes(
        # What work-items do together is lowered by now.
        [
            name
            for name in (*producers, *staged_results(s.kernel), stores.group)
            if has_compute(s.kernel, name)
        ],
        vector=lanes,
        lanes=vector,
        order=(*config.reduction.loops, *(d for d in config.tile.item if d != lanes)),
        unroll=(*config.tile.item, *config.reduction.step, lanes),
    )
    if config.reduction.slices:
        # Workgroups made whole tiles of the parts: what is beyond the result is not added up.
        for dim in find_compute(s.kernel, RESULT).dims:
            s.narrow(RESULT, dim.var.name, 1, producers=stores.slice_adders)
        for name in (*stores.zeros, RESULT):
            tiled_root(s, name, ElementwiseConfig(vector=vector))
    lower_rest(s)


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
    if not machine.hierarchy.shared:
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
