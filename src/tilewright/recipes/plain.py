"""Elementwise ops on a CPU, and kernels that no other recipe knows.

Elementwise ops are vector loops over the result, in its memory order, the outer dims on threads:
the compute that stores a result (its root) is tiled to one vector in the dim that is contiguous,
with what it reads computed tile by tile inside.

What no other recipe knows are computes as loops, what is independent on all workers.

Nothing is fused, tiled or staged. Each compute becomes loops, those over its results outside of
those that it reduces or runs in order, and hands its results on in memory; neighbouring results of
simple ones are vectors, with one of masked lanes for the rest where the size is a parameter. The
outermost loops of each part of the kernel run on threads (on a device: on workgroups or work-items)
where `queries.dependence` proves that no two iterations touch one element that one of them writes;
so do loops inside of loops and conditions, which the host then runs, where they are worth a launch
each time. Everything else runs in order. A kernel that says itself what runs in parallel keeps its
loops as they are; but where threads are all there is, its workgroups run on them, and work-items as
lanes (`passes.spmd`), and what these do together is scheduled by itself (`joint`).
"""

from __future__ import annotations

from math import prod

from tilewright.ir.buffer import Space
from tilewright.ir.computes import loading, mentioned
from tilewright.ir.expr import Const, Var
from tilewright.ir.stmt import Allocate, Combiner, Compute, Dim, For, Kernel, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.passes.spmd import joinable, places_items, predicted_width, stages
from tilewright.recipes.choice import Choice, around, vectors_around
from tilewright.recipes.config import ElementwiseConfig, PlainConfig
from tilewright.recipes.copies import asked_early, moved_bytes, moves, rows_of
from tilewright.recipes.joint import by_subgroups, in_runs, multiplied, summed_in_registers
from tilewright.recipes.lowering import finish, lanes_for, lower_rest
from tilewright.recipes.recipe import Recipe, is_contraction
from tilewright.recipes.reducible import computes_in, contiguous_dim
from tilewright.recipes.reducing import in_registers, point_by_point, reduction_read, widened
from tilewright.recipes.reductions import Reductions
from tilewright.recipes.reshaping import with_whole_dims
from tilewright.recipes.roles import find_compute, known_sizes
from tilewright.recipes.start import Start
from tilewright.recipes.transposed_tiles import (
    memory_order,
    run_of,
    transposed,
    transposition,
    vectorized,
)
from tilewright.recipes.wide_items import neighbours_of_an_item
from tilewright.schedule.queries.place import sequence
from tilewright.schedule.schedule import KernelSchedule

# Loops that run in order, or are only a way to write code out.
_SEQUENTIAL = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTOR)
# More lanes would keep too little of a workgroup in registers.
_MOST_LANES = 64


def default_config(kernel: Kernel, machine: Machine) -> PlainConfig:
    """Vectors of the machine's size for the widest type, for those of 4 bytes if all are narrower
    and something is computed. Work-items that are faster one by one have no vectors."""
    widest = moved_bytes(kernel, machine) or max(
        (4, *(array.dtype.bytes for array in kernel.arrays))
    )
    vector = max(1, machine.vector_bytes // widest)
    if vector > 1 and _items_as_lanes(kernel, machine) and not any(computes_in(kernel)):
        vector = predicted_width(kernel, machine, vector)
    return PlainConfig(vector=vector)


class Plain(Recipe[PlainConfig]):
    """Loops, for whatever no other recipe knows."""

    name, config = "plain", PlainConfig

    def matches(self, start: Start, machine: Machine) -> bool:
        return True

    def space(self, start: Start, machine: Machine) -> list[PlainConfig]:
        default = default_config(start.kernel, machine)
        return [default, *map(PlainConfig, _whole_groups(start.kernel, machine, default.vector))]

    def choices(self, start: Start, machine: Machine) -> tuple[Choice, ...]:
        default, *others = self.space(start, machine)
        widths = (1, *vectors_around(default.vector, machine), *(other.vector for other in others))
        return around(default, vector=widths)

    def schedule(self, s: KernelSchedule, machine: Machine, config: PlainConfig) -> None:
        """Carries ``config`` out."""
        s.mark("naive")
        s.open_nests()
        s.mark("opened")
        if _items_as_lanes(s.kernel, machine):
            whole = joinable(s.kernel)
            apart = [compute.name for compute in computes_in(s.kernel) if compute.name not in whole]
            s.log.notes += [f"{name}: by each work-item for itself" for name in apart]
            s.lower_computes(apart)
            s.mark("lowered")
            for name, kernel in stages(s.kernel, config.vector, machine.vector_bytes):
                s.begin_anew(kernel)
                s.mark(name)
            multiplied(s, machine)
            s.mark("multiplied")
            in_runs(s, machine)
            lower_rest(s, config.vector)
            s.mark("whole")
            return
        if places_items(s.kernel):
            by_subgroups(s, machine)
            s.mark("multiplied")
            summed_in_registers(s)
            s.mark("summed")
        if not places_work(s.kernel):
            _handed_on_in_memory(s)
            s.mark("in memory")
        rows = rows_of(s.kernel, machine)
        _lowered(s, config.vector, machine)
        s.mark("lowered")
        if not places_work(s.kernel):
            finish(s, machine, inside=True)
        asked_early(s, rows)


def _items_as_lanes(kernel: Kernel, machine: Machine) -> bool:
    """Whether the kernel says what its work-items do, and the machine has threads alone."""
    return machine.threaded and places_items(kernel)


def _whole_groups(kernel: Kernel, machine: Machine, vector: int) -> list[int]:
    """How many lanes are all work-items of a group side by side, where that is more than ``vector``
    and they hand values on in memory: this may then be registers. Empty elsewhere."""
    if vector == 1 or not _items_as_lanes(kernel, machine) or any(computes_in(kernel)):
        return []
    stmts = list(walk_stmts(kernel.body))
    if not any(isinstance(s, Allocate) and s.buffer.space is Space.WORKGROUP for s in stmts):
        return []
    items = [s for s in stmts if isinstance(s, For) and s.kind is LoopKind.WORKGROUP]
    inner = {s.extent for s in items if not any(o in items for o in walk_stmts(s.body))}
    sizes = [int(size.value) for size in inner if isinstance(size, Const)]
    return [size for size in sizes if len(inner) == 1 and vector < size <= _MOST_LANES]


def _handed_on_in_memory(s: KernelSchedule) -> None:
    """What computes hand on, in memory that all workers see: what one of them has for itself would
    keep all loops to that one, and may be more than its stack. Single elements are registers."""
    results = {view.buffer for compute in computes_in(s.kernel) for view in compute.outputs}
    for held in [stmt.buffer for stmt in sequence(s.kernel.body) if isinstance(stmt, Allocate)]:
        is_private = held.space is Space.PRIVATE and held in results
        if is_private and any(size != 1 for size in held.shape):
            s.lay_out(held.name, space=Space.GLOBAL)


def places_work(kernel: Kernel) -> bool:
    """Whether the kernel says itself which loops run in parallel."""
    return any(
        isinstance(stmt, For) and stmt.kind not in _SEQUENTIAL for stmt in walk_stmts(kernel.body)
    )


def _lowered(s: KernelSchedule, vector: int, machine: Machine) -> None:
    """Loops for all computes but those that an instruction carries out."""
    names = [compute.name for compute in computes_in(s.kernel)]
    for compute in computes_in(s.kernel):
        if names.count(compute.name) > 1:
            continue  # What suits one of them may not suit the others.
        lanes = _lanes(compute) if vector > 1 else None
        length = known_sizes(compute).get(lanes or "", 0)
        wide = lanes_for(compute, [length], vector, machine) if moves(compute) else vector
        if machine.workers.items:
            lanes, wide = neighbours_of_an_item(compute, machine, vector)
        inside = _inside(compute, machine)
        if machine.workers.items:
            # Each step of a sum would wait for memory: work-items have no cache of their own.
            in_registers(s, compute, [d.var.name for d in compute.dims if d.var.name not in inside])
        else:
            _divided(s, compute, lanes, vector, machine)
        s.lower_computes(
            [compute.name],
            vector=lanes,
            lanes=wide,
            order=inside,
            tails=vector,
        )
    s.lower_computes()


def _lanes(compute: Compute) -> str | None:
    """The dim along which neighbouring results of a simple compute lie together in memory. What it
    reads may be at loaded places, and what it writes at such in other dims."""
    outputs = compute.outputs
    simple = len(outputs) == 1 and not compute.is_ordered
    if not simple or isinstance(compute.results[0].combiner, Combiner):
        return None
    along = contiguous_dim(compute)
    meeting = {dim.name for dim in loading(compute, outputs[0])}
    return None if along in meeting else along


def _divided(
    s: KernelSchedule, compute: Compute, lanes: str | None, vector: int, machine: Machine
) -> None:
    """``compute`` in a piece for each core, where its outermost points meet at loaded places:
    along a dim that results have as it is, the longest one, each piece comes by all points."""
    length = known_sizes(compute)
    meeting = frozenset[Var]().union(*(loading(compute, view) for view in compute.outputs))
    sized = len(length) == len(compute.dims) > 0
    if compute.is_ordered or not sized or compute.dims[0].var not in meeting:
        return
    apart = [
        d.var.name
        for d in compute.dims
        if all(any(e is d.var for e in view.index) for view in compute.outputs)
    ]
    if not apart or prod(length.values()) < machine.workers.worth:
        return
    along = max(apart, key=lambda name: length[name])
    # Where pieces differ in length, nothing proves that they are apart.
    together = vector if along == lanes and length[along] % machine.cores else 1
    size = length[along] // machine.cores // together * together
    if machine.cores > 1 and size >= (vector if along == lanes else 1):
        s.tile(compute.name, {along: size}, tail="apart")


def _inside(compute: Compute, machine: Machine) -> list[str]:
    """The dims whose loops are inside of the others, in this order: what is reduced, then what is
    ordered, whose points follow one another for each point of the others. Points whose results are
    at unknown places follow one another, too; on work-items, inside of each, as a
    launch for each of them takes longer than what it does."""
    kept = [mentioned(compute, view) for view in compute.outputs]
    meeting: frozenset[Var] = frozenset()
    if machine.workers.items:
        meeting = meeting.union(*(loading(compute, view) for view in compute.outputs))

    def is_reduced(dim: Dim) -> bool:
        return dim.var in meeting or not all(dim.var in variables_met for variables_met in kept)

    reduced = [dim for dim in compute.dims if not dim.ordered and is_reduced(dim)]
    return [d.var.name for d in (*reduced, *(d for d in compute.dims if d.ordered))]


class Elementwise(Recipe[ElementwiseConfig]):
    """Vector loops over results, with what they are made of inside. What threads would reduce along
    whole dims, they share better by another recipe."""

    name, config, structured = "elementwise", ElementwiseConfig, True

    def matches(self, start: Start, machine: Machine) -> bool:
        contracts = is_contraction(start.kernel)
        return start.structured and not contracts and not Reductions().matches(start, machine)

    def space(self, start: Start, machine: Machine) -> list[ElementwiseConfig]:
        """A few vectors a step, and enough pieces for all cores."""
        widest = max((p.dtype.bytes for p in start.kernel.arrays), default=4)
        # Neighbouring work-items should read neighbouring vectors.
        unroll = 1 if machine.workers.items else 4
        vector = max(1, machine.vector_bytes // max(widest, machine.narrowest))
        return [ElementwiseConfig(vector=vector, unroll=unroll)]

    def choices(self, start: Start, machine: Machine) -> tuple[Choice, ...]:
        (default,) = self.space(start, machine)
        return around(default, vector=vectors_around(default.vector, machine), unroll=(1, 2, 4, 8))

    def schedule(self, s: KernelSchedule, machine: Machine, config: ElementwiseConfig) -> None:
        """Carries ``config`` out."""
        s.mark("naive")
        s.drop_unit_dims()
        with_whole_dims(s)
        s.mark("fused")
        for root in _roots(s.kernel):
            plan = transposition(s.kernel, root, machine)
            if plan is not None:
                transposed(s, root, plan, machine)
                s.mark(f"transposed {root}")
                vectorized(s, root, plan)
                s.mark(f"vectors {root}")
                continue
            wide = reduction_read(s.kernel, root, machine)
            if wide is not None:
                point_by_point(s, root)
                s.mark(f"tiled {root}")
                total = find_compute(s.kernel, wide[0]).out.buffer.dtype
                widened(s, *wide, machine.lanes(total), config.unroll, machine)
                s.mark(f"widened {root}")
                continue
            tiled_root(s, root, config)
            s.mark(f"tiled {root}")
        lower_rest(s, config.vector, machine)
        s.mark("lowered")
        finish(s, machine)


def _roots(kernel: Kernel) -> list[str]:
    """The computes that store results, where the block they stand in is the kernel's own."""
    results = {param.buffer for param in kernel.arrays if param.access != "in"}
    top = sequence(kernel.body)
    return [s.name for s in top if isinstance(s, Compute) and s.out.buffer in results]


def tiled_root(s: KernelSchedule, root: str, config: ElementwiseConfig) -> None:
    """``root`` in tiles of a few vectors, with what it reads computed inside."""
    compute = find_compute(s.kernel, root)
    run = run_of(compute, compute.out)
    lanes = run.dim if run is not None else contiguous_dim(compute)
    order = memory_order(compute)
    # Of a blocked dim, a step takes one block, whose elements are neighbours.
    width = run.size if run is not None and run.size else config.vector * config.unroll
    sizes = {d: width if d == lanes else 1 for d in order}
    storage = (lanes,) if lanes is not None else ()
    # Where what it reads is not computed point by point, whole buffers are, one after the other.
    s.attempt(lambda: s.compute_at(root, sizes, order, storage=storage, tail="apart"))
