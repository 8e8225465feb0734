"""Sums that stay in the tiles of a processor's matrix unit: what sets them to zero, what fills
them, and what takes them to memory, by instructions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import const
from tilewright.ir.stmt import Compute, Kernel
from tilewright.ir.visit import walk_stmts
from tilewright.machines.machine import Machine
from tilewright.recipes.roles import MAIN, find_compute
from tilewright.recipes.turned_results import handed_over
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.queries.place import views_of
from tilewright.schedule.queries.runs import strides


def sums_in_tiles(kernel: Kernel, order: Sequence[str], machine: Machine) -> Kernel:
    """The sums of a contraction, whose products a unit makes, in its tiles from their beginning to
    the epilogue, which reads a copy in the ``order`` of these dims."""
    sums = find_compute(kernel, MAIN).out.buffer
    if find_compute(kernel, "init").body is not const(0, sums.dtype):
        return kernel
    kernel, _ = handed_over(kernel, order)
    made = [s for s in walk_stmts(kernel.body) if isinstance(s, Compute) and s.name == MAIN]
    return moved_by_tiles(kernel, {each.out.buffer for each in made}, machine)


def moved_by_tiles(kernel: Kernel, held: Collection[Buffer], machine: Machine) -> Kernel:
    """What fills the tiles ``held``, and what takes them from there, by instructions."""
    found: dict[str, Compute] = {}
    for stmt in walk_stmts(kernel.body):
        if isinstance(stmt, Compute) and stmt.instruction is None:
            # Of several by one name, a border of one element has lost its dim.
            known = found.setdefault(stmt.name, stmt)
            if len(known.dims) < len(stmt.dims):
                found[stmt.name] = stmt
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
        kernel = tensorize(kernel, name, instruction, {"m": m, "n": n})
    return kernel
