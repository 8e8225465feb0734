"""Convolution and matmul on a CPU: the schedule, step by step.

naive
-> fused, split (dims made one, or two)
-> copied (A, where its type or its order asks for it)
-> packed, hoisted (B laid out in the order it is read, in a kernel of its own where that may be)
   (what makes a factor that is copied, is computed in the copy)
-> sliced (a long reduction in parts, which are added up afterwards)
-> blocked (blocks of C, where A is too large to be read for each panel of B)
-> handed over (sums of a block, which is transposed then, to a copy of them)
-> tiled (a register tile of C, then steps of the reduction)
-> partitioned (borders split off, taps in the padding skipped)
-> tensorized (multiply-adds become instructions; sums of a matrix unit stay in its tiles)
-> transposed, vectors (a block of the result whose neighbours are not the lanes', in registers)
-> lowered (the rest becomes vector loops)
-> parallel
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import variables
from tilewright.layout.roles import INIT, MAIN, RESULT
from tilewright.machines.instruction import Instruction
from tilewright.machines.machine import Machine
from tilewright.recipes.choice import Choice
from tilewright.recipes.choices import candidates, refusals
from tilewright.recipes.config import ContractionConfig, ElementwiseConfig
from tilewright.recipes.contraction_choices import contraction_choices, prediction
from tilewright.recipes.copies import copied
from tilewright.recipes.legal import check, instruction_lines, legal
from tilewright.recipes.lowering import lower_rest, parallelize
from tilewright.recipes.model import Estimate
from tilewright.recipes.plain import tiled_root
from tilewright.recipes.prologues import (
    computed_in_copies,
    copies_of_factors,
    is_computed,
    packable,
)
from tilewright.recipes.recipe import Candidate, RankedRecipe, is_contraction
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.reshaping import fused, halves, split_dims
from tilewright.recipes.roles import (
    are_known,
    extents,
    find_compute,
    index_along,
    named_after,
    roles,
)
from tilewright.recipes.slicing import counter, sliced
from tilewright.recipes.start import Start
from tilewright.recipes.transposed_tiles import handed_over, planned, transposed, vectorized
from tilewright.recipes.unit_model import height
from tilewright.recipes.unit_tiles import sums_in_tiles
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.records.transform import Handles
from tilewright.schedule.schedule import KernelSchedule

# The longest loop over a reduced dim that is unrolled for its masks.
_UNROLL = 32


class Contraction(RankedRecipe[ContractionConfig]):
    """Register tiles of vectors, on threads."""

    name, config = "contraction", ContractionConfig

    def matches(self, start: Start, machine: Machine) -> bool:
        return start.structured and is_contraction(start.kernel)

    def candidates(
        self, start: Start, machine: Machine
    ) -> Iterator[Candidate[ContractionConfig, Estimate | None]]:
        return candidates(start.exact, machine, start.prepacked)

    def choices(self, start: Start, machine: Machine) -> tuple[Choice, ...]:
        if not are_known(start.kernel):
            return super().choices(start, machine)
        return contraction_choices(start, machine)

    def predict(self, start: Start, machine: Machine, config: ContractionConfig) -> Estimate | None:
        return prediction(start, machine, config) if are_known(start.kernel) else None

    def legal(self, kernel: Kernel, machine: Machine, config: ContractionConfig) -> dict[str, str]:
        return legal(kernel, machine, config)

    def instructions(
        self, kernel: Kernel, machine: Machine, config: ContractionConfig
    ) -> list[str]:
        refused = refusals(kernel, machine) if is_contraction(kernel) else {}
        return instruction_lines(kernel, machine, config.instruction, refused)

    def schedule(self, s: KernelSchedule, machine: Machine, config: ContractionConfig) -> None:
        """Carries ``config`` out."""
        s.mark("naive")
        instruction = machine.instruction(config.instruction) if config.instruction else None
        vector = machine.lanes(find_compute(s.kernel, MAIN).out.buffer.dtype)
        s.drop_unit_dims()
        fused(s, config.fuse)
        s.mark("fused")
        split_dims(s, config.split)
        s.mark("split")
        main = find_compute(s.kernel, MAIN)
        check(config, main, machine)
        if config.pack_a:
            _copy_a(s, config, instruction, main)
            s.mark("copied")
        if config.pack_b:
            _pack_b(s, config, instruction, machine, main)
        root: str = RESULT
        if config.slices:
            held = (*(d for d in config.order if d != config.lanes), config.lanes)
            root = sliced(s, config.slices, held)
            s.mark("sliced")
        root = _tiled(s, config, root, vector)
        if instruction is not None:
            _tensorized(s, config, instruction, machine)
            s.mark("tensorized")
        if config.transpose:
            plan = planned(s.kernel, machine, config)
            transposed(s, RESULT, plan, machine)
            s.mark("transposed")
            vectorized(s, RESULT, plan)
            s.mark("vectors")
        _lowered(s, config, root, vector, machine)
        s.mark("lowered")
        parallelize(s, machine)
        s.mark("parallel")


def _tiled(s: KernelSchedule, config: ContractionConfig, root: str, vector: int) -> str:
    """Carries out all stages between the packing of factors and instructions, of which ``root``
    stores the result, or slices of it; gives the compute that stores what register tiles make:
    that, or what is transposed then."""
    main = find_compute(s.kernel, MAIN)
    counters = [counter(dim) for dim in config.slices]
    whole = _whole_vectors(config, main, vector)
    if whole:
        s.pad(RESULT, multiples=whole)
        s.mark("extended")
    blocks: Handles = ()
    if config.block:
        blocks = _blocked(s, config, root)
        s.mark("blocked")
    kept = roles(main).kept
    storage = [d for d in kept if d in config.tile and d != config.lanes]
    if config.transpose:
        root = handed_over(s, [*storage, config.lanes])
        s.mark("handed over")
    # A dim of which a block has one element is gone.
    tile_sizes = dict(config.tile) | whole
    sizes = {d: tile_sizes.get(d, 1) for d in kept if config.block.get(d) != 1}
    loops = s.compute_at(
        root,
        dict.fromkeys(counters, 1) | sizes,
        (*counters, *(d for d in config.order if d in sizes)),
        producers=(INIT, MAIN),
        storage=(*storage, config.lanes),
    )
    step = {d: config.step.get(d, 1) for d in roles(main).k}
    reduced = [d for d in config.reduce_order if d in step]
    steps = s.tile(MAIN, step, reduced)
    s.mark("tiled")
    for dim in config.block:
        if dim in blocks:
            s.partition(blocks[dim])
    for dim in counters:
        s.partition(loops[dim])
    _partitioned(s, config.order, loops, config.tile)
    _partitioned(s, config.reduce_order, steps, config.step)
    if whole:
        s.narrow(root, config.lanes, vector)
    _with_known_lengths(s, config, main, steps)
    s.mark("partitioned")
    return root


def _whole_vectors(config: ContractionConfig, main: Compute, vector: int) -> dict[str, int]:
    """Whole tiles of lanes where a call passes how many there are: then the last one has masks
    where it stores, and its registers are those of all."""
    (lanes,) = (dim for dim in main.dims if dim.var.name == config.lanes)
    if isinstance(lanes.extent, Const):
        return {}
    return {config.lanes: -(-config.tile.get(config.lanes, 1) // vector) * vector}


def _blocked(s: KernelSchedule, config: ContractionConfig, root: str) -> Handles:
    """Blocks of C, whose part of A stays in a cache while all of B passes by; gives their loops."""
    return s.compute_at(
        root,
        config.block,
        [*config.block],
        producers=(INIT, MAIN),
        space=Space.GLOBAL,
    )


def _pack_b(
    s: KernelSchedule,
    config: ContractionConfig,
    instruction: Instruction | None,
    machine: Machine,
    main: Compute,
) -> None:
    """Lays B out in the order in which the register tile reads it."""
    view, vector = main.operands[1].view, machine.lanes(main.out.buffer.dtype)
    used = [d for d, step in strides(main, view).items() if step != 0]
    depth = instruction.sizes.get("k", 1) if instruction is not None else 1
    wanted = instruction.operands[1].dtype if instruction is not None else view.buffer.dtype
    width = -(-config.tile.get(config.lanes, 1) // vector) * vector
    rows = [d for d in used if d in config.tile and d != config.lanes]
    outer = [d for d in config.order if d in used and d not in rows]
    reduced = [d for d in config.reduce_order if d in used]
    layout: list[tuple[str, int | None]] = [(d, None) for d in (*outer, *reduced)]
    layout += [(d, None) for d in used if d not in (*outer, *reduced)]
    layout += [(d, config.tile[d]) for d in rows]
    if instruction is not None and "m" in instruction.sizes:
        # A tile: rows of neighbours in k for each lane.
        group = instruction.operands[1].steps_of("k")[-1].size or 1
        layout += [(config.k, depth // group), (config.lanes, vector), (config.k, group)]
    else:
        layout += [(config.lanes, width)] * (config.lanes in used)
        layout += [(config.k, depth)] * (depth > 1)
    staged = s.stage(
        MAIN,
        "b",
        shape="dims",
        space=Space.GLOBAL,
        layout=layout,
        cast=wanted if wanted is not view.buffer.dtype else None,
    )
    if config.k and extents(main)[config.k] % depth:
        whole = -(-extents(main)[config.k] // depth) * depth
        s.pad(MAIN, {config.k: whole})
    packs = packable(s.kernel, s.prepacked)
    computed_in_copies(s, view.buffer)
    s.mark("packed")
    # Where something else reads the weights as they are, together with another argument, the kernel
    # packs them itself.
    if not packs or not s.attempt(lambda: s.hoist_pack(staged["buffer"])):
        return
    (pack,) = s.packs.values()
    for copy in [compute for compute in computes_in(pack.kernel) if compute.name == staged["copy"]]:
        if not is_computed(copy):
            copied(pack, copy.name, machine)
    lower_rest(pack)
    s.mark("hoisted")


def _copy_a(
    s: KernelSchedule, config: ContractionConfig, instruction: Instruction | None, main: Compute
) -> None:
    """A copied before everything else: padding resolved, types converted, and what a dot product
    adds up side by side."""
    view = main.operands[0].view
    group = instruction.sizes.get("k", 1) if instruction is not None else 1
    wanted = instruction.operands[0].dtype if instruction is not None else view.buffer.dtype
    along = index_along(main, config.k)
    inner = named_after(*along)
    layout: list[tuple[str, int | None]] = [(inner, None), (inner, group)] if config.k else []
    if len(along) > 1:
        # Channels of one group only, so that rows are near one another.
        indices = [[d.var.name for d in main.dims if d.var in variables(i)] for i in view.index]
        others = [named_after(*names) for names in indices if names and config.k not in names]
        layout = [
            (inner, None),
            *((name, None) for name in others),
            (inner, extents(main)[config.k]),
        ]
    s.stage(
        MAIN,
        "a",
        space=Space.GLOBAL,
        layout=layout,
        cast=wanted if wanted is not view.buffer.dtype else None,
    )
    computed_in_copies(s, view.buffer)


def _partitioned(
    s: KernelSchedule, order: Sequence[str], loops: Handles, sizes: Mapping[str, int]
) -> None:
    """The ``loops`` over tiles of such ``sizes`` with borders split off where a mask or an extent
    differs there."""
    for dim in order:
        if sizes.get(dim, 1) > 1 and dim in loops and s.has(loops[dim]):
            parts = s.partition(loops[dim], split_borders=True)
            # A border of many tiles may hold whole ones and a shorter last one.
            if "tail" in parts:
                s.partition(parts["tail"], split_borders=True)


def _with_known_lengths(
    s: KernelSchedule, config: ContractionConfig, main: Compute, steps: Handles
) -> None:
    """Tiles whose lengths are numbers, as registers are, and taps without tests; ``steps`` are the
    loops of the reduction."""
    # Of a size that a call passes, the last tile may have any length.
    for dim in config.tile:
        if dim != config.lanes:
            s.unroll_lengths(MAIN, dim, config.tile[dim])
    for dim in config.reduce_order:
        if config.step.get(dim, 1) == 1 and dim in steps and s.has(steps[dim]):
            s.trim(steps[dim])
    small = [*config.reduce_order, *(halves(dim)[1] for dim, _ in config.split)]
    stay = [dim for dim in roles(main).kept if dim not in small]
    s.unroll_known(small, _UNROLL, stay)
    s.guard(MAIN)


def _tensorized(
    s: KernelSchedule, config: ContractionConfig, instruction: Instruction, machine: Machine
) -> None:
    dims = {"n": config.lanes}
    if config.k:
        dims["k"] = config.k
    if "m" not in instruction.sizes:
        s.tensorize(MAIN, instruction, dims)
        return
    rows = _rows(config)
    tall = height(config.tile[rows[-1]], instruction.sizes["m"])
    s.tensorize(MAIN, instruction, dims | {"m": rows[-1]}, lengths={"m": tall})
    sums_in_tiles(s, [*rows, config.lanes], tall, machine)


def _rows(config: ContractionConfig) -> list[str]:
    """The dims along the rows of tiles, of which a matrix instruction takes the last."""
    rows = [dim for dim in config.tile if dim != config.lanes]
    if not rows or len(rows) > 2:
        raise ScheduleError(
            f"the tile {dict(config.tile)} has no one dim for the rows of a matrix instruction",
            where=f"config {config!r}",
            cure=f"name {config.lanes!r} and one other dim of the result",
        )
    return rows


def _lowered(
    s: KernelSchedule, config: ContractionConfig, root: str, vector: int, machine: Machine
) -> None:
    """What is around the instructions: accumulators in registers, so all indices unrolled."""
    copies = copies_of_factors(s.kernel)
    s.guard_select(root)
    s.lower_computes(
        [INIT, MAIN, root],
        vector=config.lanes,
        lanes=vector,
        order=(*config.reduce_order, *(d for d in config.tile if d != config.lanes)),
        unroll=(*config.tile, *config.step, config.lanes),
        # Registers have no masks: what sets them under one would keep them in memory.
        tails=vector if are_known(s.kernel) else 0,
    )
    if config.slices:
        tiled_root(s, RESULT, ElementwiseConfig(vector))
    for copy in copies:
        if is_computed(copy):
            tiled_root(s, copy.name, ElementwiseConfig(vector, unroll=1))
        else:
            copied(s, copy.name, machine)
    lower_rest(s)
