"""Ops without a contraction on a CPU: vector loops over the result, its outer dims on threads.

Every result is stored by one compute (its *root*), which reads what other computes accumulated.
Roots are tiled to one vector in the dim that is contiguous in the result, with what they read
computed tile by tile inside; loops follow the memory order of the result.
"""

from __future__ import annotations

from tilewright.ir.stmt import Block, Compute, Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ElementwiseConfig
from tilewright.recipes.lowering import contiguous_dim, finish, lower_rest
from tilewright.recipes.recipe import Recipe, is_contraction
from tilewright.recipes.reducing import point_by_point, reduced_run, widened
from tilewright.recipes.reductions import Reductions
from tilewright.recipes.reshaping import with_whole_dims
from tilewright.recipes.roles import find_compute
from tilewright.recipes.start import Start
from tilewright.recipes.transposed_tiles import (
    memory_order,
    run_of,
    transposed,
    transposition,
    vectorized,
)
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
        finish(s, machine)


def _roots(kernel: Kernel) -> list[str]:
    """The computes that store results, where the block they stand in is the kernel's own."""
    results = {param.buffer for param in kernel.arrays if param.access != "in"}
    top = kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)
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
