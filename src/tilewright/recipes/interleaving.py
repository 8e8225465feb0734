"""Copies that put elements of a few rows side by side, as products of narrow types take them.

An instruction that adds up 2 or 4 products in a lane wants these many rows of B element by element
in turn. A vector of each row is loaded, and one of all of them is stored.
"""

from __future__ import annotations

from tilewright.errors import ScheduleError
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.reordering import memory_order, run_of
from tilewright.recipes.roles import find_compute
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.queries.place import holds_loop


def interleaved(kernel: Kernel, root: str, machine: Machine) -> Kernel | None:
    """``root``, which copies its operand, by such instructions; None where they do not fit."""
    compute = find_compute(kernel, root)
    if len(compute.operands) != 1 or compute.out.mask is not None:
        return None
    (operand,) = compute.operands
    if compute.body is not operand.var or compute.combiner is not None:
        return None
    view = operand.view
    out, row = run_of(compute, compute.out), run_of(compute, view, inside=True)
    if out is None or row is None or row.size or out.dim == row.dim:
        return None
    by = machine.interleave(compute.out.buffer.dtype, out.size)
    known = {d.var.name: d.extent.value for d in compute.dims if isinstance(d.extent, Const)}
    if by is None or row.dim not in known or int(known.get(out.dim, 1)) % out.size:
        return None
    order = [d for d in memory_order(compute) if d not in (out.dim, row.dim)]
    tiles = dict.fromkeys(order, 1) | {out.dim: out.size, row.dim: by.sizes["m"]}
    try:
        kernel = tile(kernel, root, tiles, [*order, out.dim, row.dim])
        if holds_loop(kernel.body, f"{row.dim}_o"):
            kernel = partition(kernel, f"{row.dim}_o")
        return tensorize(kernel, root, by, {"m": row.dim, "n": out.dim})
    except ScheduleError:
        return None
