"""Scans. On a CPU, along neighbours in memory, several rows at a time, each of which hands its last
result on in a register, so that one row's sums need not wait for one another alone. On work-items,
in parts where there are few rows."""

from __future__ import annotations

from math import prod

from tilewright.ir.expr import Const
from tilewright.ir.stmt import Compute
from tilewright.machines.machine import Machine
from tilewright.recipes.config import ReductionConfig
from tilewright.recipes.nests import Nest
from tilewright.recipes.reducible import computes_in
from tilewright.schedule.queries.place import fresh, size_of, taken_names
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.reductions.carry import previous
from tilewright.schedule.reductions.divide_scan import step_of
from tilewright.schedule.schedule import KernelSchedule

# Points of a part of a scan, and parts, that are worth two passes more over what is scanned.
_SHORTEST = 32
_FEWEST = 4


def scanned(compute: Compute) -> str | None:
    """The dim along which ``compute`` scans neighbours and hands on the last result alone, where
    the rows that it has are a number."""
    ordered = [dim for dim in compute.dims if dim.ordered]
    if len(ordered) != 1:
        return None
    (along,) = (dim.var.name for dim in ordered)
    if abs(strides(compute, compute.outputs[0])[along] or 0) != 1 or not previous(compute, along):
        return None
    rows = (dim.extent for dim in compute.dims if not dim.ordered)
    return along if all(isinstance(each, Const) for each in rows) else None


def rows_together(nest: Nest, config: ReductionConfig, machine: Machine) -> int:
    """How many rows of the innermost level of ``nest`` are scanned at a time: as many as leave all
    threads enough; one where their lines would drive each other out of the cache."""
    rows = zip(nest.computes, nest.levels[-1], strict=True)
    scans = [(compute, row) for compute, row in rows if scanned(compute)]
    for compute, row in scans:
        step = strides(compute, compute.outputs[0])[row] or 0
        if step * compute.outputs[0].buffer.dtype.bytes % machine.core.way == 0:
            return 1
    return max(1, min(config.rows, nest.extents[-1] // config.parts)) if scans else 1


def carried(s: KernelSchedule, compute: Compute, along: str) -> None:
    """``compute`` with what it hands on in registers, all rows point by point."""
    s.carry(compute.name, along)
    loops = s.tile(compute.name, {along: 1})
    if along in loops:
        # The first point is another one, if it looks at what stands before it.
        s.partition(loops[along])


def divided_scan(s: KernelSchedule, compute: Compute, config: ReductionConfig) -> None:
    """The scan ``compute`` in parts, where rows alone are fewer than the work-items wanted; what
    the parts begin with is a scan, too, and goes in parts if there are many."""
    along = [dim for dim in compute.dims if dim.ordered]
    if len(along) != 1 or not all(isinstance(dim.extent, Const) for dim in compute.dims):
        return
    if step_of(compute, along[0].var.name) is None:
        return
    rows = prod(size_of(dim) for dim in compute.dims if not dim.ordered)
    size = size_of(along[0])
    parts = size // max(_SHORTEST, -(-size * rows // (config.parts * config.items)))
    if parts < _FEWEST:
        return
    before = {each.name for each in computes_in(s.kernel)}
    name = fresh("part", taken_names(s.kernel))
    s.divide_scan(compute.name, along[0].var.name, parts, name)
    s.mark(f"divided {compute.name}")
    for each in computes_in(s.kernel):
        if each.name not in before:
            divided_scan(s, each, config)
