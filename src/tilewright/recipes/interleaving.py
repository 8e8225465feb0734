"""Copies that put elements of a few rows side by side, as products of narrow types take them.

An instruction that adds up 2 or 4 products in a lane wants these many rows of B element by element
in turn. A vector of each row is loaded, and one of all of them is stored.
"""

from __future__ import annotations

from tilewright.ir.expr import Const
from tilewright.machines.machine import Machine
from tilewright.recipes.reordering import memory_order, run_of
from tilewright.recipes.roles import find_compute
from tilewright.schedule.schedule import KernelSchedule


def interleaved(s: KernelSchedule, root: str, machine: Machine) -> bool:
    """Whether ``root``, which copies its operand, is carried out by such instructions."""
    compute = find_compute(s.kernel, root)
    if len(compute.operands) != 1 or compute.out.mask is not None:
        return False
    (operand,) = compute.operands
    if compute.body is not operand.var or compute.combiner is not None:
        return False
    view = operand.view
    out, row = run_of(compute, compute.out), run_of(compute, view, inside=True)
    if out is None or row is None or row.size or out.dim == row.dim:
        return False
    by = machine.interleave(compute.out.buffer.dtype, out.size)
    known = {d.var.name: d.extent.value for d in compute.dims if isinstance(d.extent, Const)}
    if by is None or row.dim not in known or int(known.get(out.dim, 1)) % out.size:
        return False
    order = [d for d in memory_order(compute) if d not in (out.dim, row.dim)]
    tiles = dict.fromkeys(order, 1) | {out.dim: out.size, row.dim: by.sizes["m"]}
    dims = {"m": row.dim, "n": out.dim}

    def in_rows() -> None:
        loops = s.tile(root, tiles, [*order, dims["n"], dims["m"]])
        if dims["m"] in loops:
            s.partition(loops[dims["m"]])
        s.tensorize(root, by, dims)

    return s.attempt(in_rows)
