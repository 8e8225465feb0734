"""Ops without a contraction on a CPU: vector loops over the result, its outer dims on threads.

Every result is stored by one compute (its *root*), which reads what other computes accumulated.
Roots are tiled to one vector in the dim that is contiguous in the result, with what they read
computed tile by tile inside; loops follow the memory order of the result.
"""

from __future__ import annotations

from tilewright.ir.buffer import Space
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Block, Compute, Kernel, View
from tilewright.ir.visit import variables
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ElementwiseConfig
from tilewright.recipes.functions import lanes_for
from tilewright.recipes.non_temporal_stores import streamed
from tilewright.recipes.recipe import Recipe, is_contraction
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.reducing import point_by_point, reduced_run, widened
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
from tilewright.recipes.workers import parallelize
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule


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
        unroll = 1 if machine.banked else 4
        vector = max(1, machine.vector_bytes // max(widest, machine.narrowest))
        return [ElementwiseConfig(vector=vector, unroll=unroll)]

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
            wide = reduced_run(s.kernel, root, machine)
            if wide is not None:
                point_by_point(s, root)
                s.mark(f"tiled {root}")
                widened(s, wide, machine, config.unroll)
                s.mark(f"widened {root}")
                continue
            tiled_root(s, root, config)
            s.mark(f"tiled {root}")
        lower_rest(s, config.vector, machine)
        s.mark("lowered")
        parallelize(s, machine)
        s.mark("parallel")
        streamed(s, machine)
        s.mark("streamed")


def _roots(kernel: Kernel) -> list[str]:
    """The computes that store results, where the block they stand in is the kernel's own."""
    results = {param.buffer for param in kernel.arrays if param.access != "in"}
    top = kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)
    return [s.name for s in top if isinstance(s, Compute) and s.out.buffer in results]


def contiguous_dim(compute: Compute, view: View | None = None) -> str | None:
    """The dim along which neighbours of ``view`` (the result) are neighbours in memory."""
    steps = strides(compute, view or compute.out)
    kept = frozenset().union(*(variables(i) for i in compute.out.index))
    near = [dim.var.name for dim in compute.dims if steps[dim.var.name] == 1 and dim.var in kept]
    return near[0] if near else None


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


# Statements that unrolling may make of one.
_COPIES = 128


def lower_rest(s: KernelSchedule, vector: int = 16, machine: Machine | None = None) -> None:
    """Every compute that is left becomes loops, with lanes along what is contiguous; functions go
    as the ``machine`` likes."""
    names: dict[str, Compute] = {}
    lengths: dict[str, list[int]] = {}
    for compute in computes_in(s.kernel):
        if compute.instruction is not None:
            continue
        length = known_sizes(compute).get(contiguous_dim(compute) or "", 0)
        lengths.setdefault(compute.name, []).append(length)
        known = names.setdefault(compute.name, compute)
        # Of several by one name, a border of one element has lost its dim.
        if contiguous_dim(known) is None:
            names[compute.name] = compute
    for name, compute in names.items():
        dim = contiguous_dim(compute)
        lanes = vector
        if machine is not None:
            lanes = lanes_for(compute, lengths[name], vector, machine)
        s.lower_computes([name], vector=dim, lanes=lanes, unroll=_unrollable(compute, dim, vector))


def _unrollable(compute: Compute, lanes: str | None, vector: int) -> list[str]:
    """The dims that index private buffers, which are then registers; none where that is too much
    code."""
    views = [compute.out, *(operand.view for operand in compute.operands)]
    private = [view for view in views if view.buffer.space is Space.PRIVATE]
    used = {v for view in private for index in view.index for v in variables(index)}
    copies = 1
    names: list[str] = []
    for dim in compute.dims:
        if dim.var in used:
            if not isinstance(dim.extent, Const):
                return []
            extent = int(dim.extent.value)
            copies *= -(-extent // vector) if dim.var.name == lanes else extent
            names.append(dim.var.name)
    return names if copies <= _COPIES else []
