"""Sums that stay in the tiles of a processor's matrix unit: what sets them to zero, what fills
them, and what takes them to memory, by instructions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import const
from tilewright.ir.stmt import Compute
from tilewright.layout.roles import INIT, MAIN
from tilewright.machines.machine import Machine
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import find_compute
from tilewright.recipes.turned_results import handed_over
from tilewright.schedule.queries.place import views_of
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule


def sums_in_tiles(s: KernelSchedule, order: Sequence[str], machine: Machine) -> None:
    """The sums of a contraction, whose products a unit makes, in its tiles from their beginning to
    the epilogue, which reads a copy in the ``order`` of these dims."""
    sums = find_compute(s.kernel, MAIN).out.buffer
    if find_compute(s.kernel, INIT).body is not const(0, sums.dtype):
        return
    handed_over(s, order)
    made = [compute for compute in computes_in(s.kernel) if compute.name == MAIN]
    moved_by_tiles(s, {each.out.buffer for each in made}, machine)


def moved_by_tiles(s: KernelSchedule, held: Collection[Buffer], machine: Machine) -> None:
    """What fills the tiles ``held``, and what takes them from there, by instructions."""
    found: dict[str, Compute] = {}
    for compute in computes_in(s.kernel):
        if compute.instruction is None:
            # Of several by one name, a border of one element has lost its dim.
            known = found.setdefault(compute.name, compute)
            if len(known.dims) < len(compute.dims):
                found[compute.name] = compute
    for name, each in found.items():
        views = [view for view in views_of(each) if view.buffer in held]
        if not views:
            continue
        move = "tileloadd" if each.operands else "tilezero"
        move = "tilestored" if each.out.buffer not in held else move
        instruction = machine.instruction(f"{move}_{views[0].buffer.dtype}")
        steps = strides(each, views[0])
        used = [dim.var.name for dim in each.dims]
        n = next(dim for dim in used if steps[dim] == 1)
        (m,) = (dim for dim in used if dim != n)
        s.tensorize(name, instruction, {"m": m, "n": n})
