"""Kernels of elementwise computes and reductions on work-items that share memory in banks.

prepared (operands named, producers computed where they are read: arithmetic costs less there than
memory) -> divided (few results of much, and scans of few rows, in parts) -> rows (the computes of a
row in a workgroup, whose work-items do one after the other together; of what is reduced along
neighbours, each has a partial result) -> lowered -> parallel (the rest: one result of each
work-item)
"""

from __future__ import annotations

from math import prod

from tilewright.ir.stmt import Compute, Dim, LoopKind
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ReductionConfig
from tilewright.recipes.lowering import parallelize
from tilewright.recipes.nests import Nest, in_common_loops, nests
from tilewright.recipes.prologues import without_producers
from tilewright.recipes.reducible import (
    COMBINING,
    computes_in,
    contiguous_dim,
    divided,
    in_memory,
    kept_dims,
    reduced_run,
)
from tilewright.recipes.reducing import divided_scan, in_registers
from tilewright.recipes.reductions import Reductions
from tilewright.recipes.roles import bytes_of, extents, find_compute, steps_of
from tilewright.recipes.start import Start
from tilewright.recipes.wide_items import neighbours_of_an_item
from tilewright.schedule.queries.place import fresh, loops_around, taken_names, views_of
from tilewright.schedule.schedule import KernelSchedule


class ReductionsInWorkgroups(Reductions):
    """Rows in workgroups, whose work-items reduce them together."""

    name = "reductions_in_workgroups"

    def space(self, start: Start, machine: Machine) -> list[ReductionConfig]:
        """A few subgroups for a row, and a few workgroups for each core."""
        narrowest = min((param.dtype.bytes for param in start.kernel.arrays), default=4)
        vector = max(1, machine.vector_bytes // narrowest)
        parts, items = 4 * machine.cores, machine.workers.items
        return [ReductionConfig(vector=vector, copies=1, parts=parts, items=items)]

    def schedule(self, s: KernelSchedule, machine: Machine, config: ReductionConfig) -> None:
        """Carries ``config`` out."""
        s.mark("naive")
        in_memory(s, machine)
        s.drop_unit_dims()
        s.name_operands()
        without_producers(s, again=True)
        s.mark("prepared")
        for compute in computes_in(s.kernel):
            divided(s, compute, config)
            divided_scan(s, compute, config)
        # Half of the parts is work enough, as where a reduction is divided.
        enough = config.parts // 2
        for number, nest in enumerate(nests(computes_in(s.kernel), 1, enough), 1):
            items = _items(nest, config)
            if items:
                _rows(s, nest, machine, items)
                s.mark(f"rows {number}")
            elif len(nest.computes) > 1 and nest.pieces(1) >= enough * config.items:
                in_common_loops(s, nest.dims, [1] * len(nest.levels))
                s.drop_unit_dims()
                s.mark(f"results {number}")
        _lowered(s, machine, config.vector)
        s.mark("lowered")
        parallelize(s, machine, inside=True)
        s.mark("parallel")


def _items(nest: Nest, config: ReductionConfig) -> int:
    """How many work-items reduce a row of ``nest`` together; 0 where nothing is reduced along
    neighbours, or too little."""
    longest = 0
    for compute in nest.computes:
        along = reduced_run(compute, COMBINING)
        if along is not None:
            longest = max(longest, extents(compute)[along])
    items = config.items
    while items > longest:
        items //= 2
    return items if items >= COMBINING else 0


def _rows(s: KernelSchedule, nest: Nest, machine: Machine, items: int) -> None:
    """The computes of ``nest``, each row in a workgroup of ``items``."""
    names = [compute.name for compute in nest.computes]
    if nest.levels:
        in_common_loops(s, nest.dims, [1] * len(nest.levels), _large(nest, machine))
    else:
        s.enclose(names, LoopKind.GRID, fresh("row", taken_names(s.kernel)))
    for compute in nest.computes:
        inside = find_compute(s.kernel, compute.name)
        along = reduced_run(inside, COMBINING)
        if along is not None and _partial_bytes(inside, items) <= _shared(machine):
            _widened(s, compute.name, along, items)
    s.drop_unit_dims()
    loops = loops_around(s.kernel, names[0])
    if nest.levels:
        s.set_kind([loop.var.name for loop in loops], LoopKind.GRID)
    placed = [stmt for stmt in walk_stmts(loops[-1].body) if isinstance(stmt, Compute)]
    dims = {c.name: dim for c in placed if (dim := _shared_out(c)) is not None}
    item = fresh("item", taken_names(s.kernel))
    s.work_together(loops[-1].var.name, dims, items, item)


def _shared(machine: Machine) -> int:
    """Bytes of a workgroup for what computes hand on, and as many for partial results."""
    return machine.hierarchy.shared // 2


def _partial_bytes(compute: Compute, items: int) -> int:
    """What partial results of ``compute`` take, before and after most of them are combined."""
    kept, length = kept_dims(compute), extents(compute)
    results = prod(length[name] for name in length if name in kept)
    lanes = 2 * (items + COMBINING)
    return lanes * results * sum(view.buffer.dtype.bytes for view in compute.outputs)


def _widened(s: KernelSchedule, compute: str, along: str, items: int) -> None:
    """A partial result of each work-item; of these, partial ones of a few, if they are many."""
    parts = s.rfactor(compute, along, 1, lanes=items)
    across = find_compute(s.kernel, parts["combine"])
    lane = reduced_run(across, COMBINING)
    if lane is None or items <= COMBINING:
        return
    s.rfactor(across.name, lane, 1, lanes=COMBINING)


def _shared_out(compute: Compute) -> str | None:
    """The dim of ``compute`` that work-items share out: of its results, neighbours if it can be."""
    near = contiguous_dim(compute)
    if near is not None:
        return near
    kept = kept_dims(compute)
    sizes = {d.var.name: extents(compute)[d.var.name] for d in compute.dims if not d.ordered}
    result = [name for name in sizes if name in kept and sizes[name] > 1]
    return max(result, key=lambda name: sizes[name], default=None)


def _large(nest: Nest, machine: Machine) -> list[str]:
    """The buffers that a workgroup has no memory for: those that are left when the smaller ones
    and partial results have theirs."""
    left = _shared(machine)
    rows = prod(nest.extents)
    sizes = {v.buffer.name: v.buffer.bytes // rows for c in nest.computes for v in c.outputs}
    names: list[str] = []
    for name, size in sorted(sizes.items(), key=lambda pair: pair[1]):
        left -= size
        if left < 0:
            names.append(name)
    return names


def _lowered(s: KernelSchedule, machine: Machine, most: int) -> None:
    """All computes as loops, those over results outside, of ``most`` neighbours at a time.
    What is reduced for a result is in registers until that is all of it."""
    for name in dict.fromkeys(compute.name for compute in computes_in(s.kernel)):
        compute = find_compute(s.kernel, name)
        kept = kept_dims(compute)
        # What is scanned goes on inside of the rows, and what is reduced inside of results.
        inward = sorted(
            _as_in_memory(compute), key=lambda dim: (dim.var.name not in kept, dim.ordered)
        )
        order = [dim.var.name for dim in inward]
        in_registers(s, compute, [n for n in order if n in kept])
        near, lanes = neighbours_of_an_item(compute, machine, most)
        s.lower_computes([name], order=order, vector=near, lanes=lanes)
    s.lower_computes()


def _as_in_memory(compute: Compute) -> list[Dim]:
    """The dims of ``compute`` as the largest array lies in memory of which each of its results
    reaches elements of its own, the longest steps first: neighbouring work-items reach
    neighbours."""
    kept, views = kept_dims(compute), {view: steps_of(compute, view) for view in views_of(compute)}
    contiguous = [
        v for v, steps in views.items() if all(steps[name] for name in kept & steps.keys())
    ]
    steps = views[max(contiguous or compute.outputs, key=lambda view: bytes_of(view.buffer))]
    return sorted(compute.dims, key=lambda dim: -(steps[dim.var.name] or 0))
