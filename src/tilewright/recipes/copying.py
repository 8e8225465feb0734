"""Copies of whole arrays in another order, so that both sides are reached by whole cache lines.

Neighbours in the copy that are neighbours in the source are vectors. Where the source has them in
rows far apart, some rows are read side by side, a block of each at a time: each side goes on where
it was, in a few places at once. Where neighbours of the copy lie apart in the source, squares are
transposed in registers (`reordering`); where these are a few, rows are interleaved.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.stmt import Compute
from tilewright.machines.machine import Machine
from tilewright.recipes.interleaving import interleaved
from tilewright.recipes.reordering import (
    Run,
    Transposition,
    memory_order,
    run_of,
    transposed,
    transposition,
    vectorized,
)
from tilewright.recipes.roles import extents, find_compute
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule

# Rows of the source that are read side by side: a processor follows about so many at once.
_ROWS = 8


def copied(s: KernelSchedule, root: str, machine: Machine, *, inside: bool = False) -> None:
    """The compute ``root``, which copies one operand element by element, as such loops; as it is
    where neither side has neighbours in a row, and where work-items copy, side by side. ``inside``:
    squares may begin inside of a row of the operand, which is there as a whole."""
    if machine.banked:
        return
    plan = transposition(s.kernel, root, machine, own=inside)
    if plan is not None:
        if inside:
            plan = replace(plan, within=_within(find_compute(s.kernel, root), plan))
        transposed(s, root, plan, machine)
        vectorized(s, root, plan)
        return
    if interleaved(s, root, machine):
        return
    compute = find_compute(s.kernel, root)
    runs = [run_of(compute, view) for view in (compute.out, *(o.view for o in compute.operands))]
    if len(runs) != 2 or not all(runs) or len({each.dim for each in runs if each}) > 1:
        return
    run = runs[0]
    assert run is not None
    _in_rows(s, compute, run, machine)


def _within(compute: Compute, plan: Transposition) -> tuple[str, ...]:
    """The dims along which the operand of a square goes on inside of its rows, the longest steps
    first."""
    (operand,) = (each for each in compute.operands if each.var.name in plan.operands)
    steps = {dim: step for dim, step in strides(compute, operand.view).items() if step}
    row = steps[plan.across]
    found = [d for d in steps if steps[d] < row and d not in (plan.across, plan.along)]
    return tuple(sorted(found, key=lambda dim: -steps[dim]))


def _in_rows(s: KernelSchedule, compute: Compute, run: Run, machine: Machine) -> None:
    """Vectors along ``run``, a block of it at a time, of several rows of the source each."""
    lanes = machine.lanes(compute.out.buffer.dtype)
    sizes, steps = extents(compute), strides(compute, compute.operands[0].view)
    others = [d for d in memory_order(compute) if d != run.dim and sizes[d] > 1]
    others.sort(key=lambda dim: -(steps.get(dim) or 0))
    width = run.size or min(sizes[run.dim], 4 * lanes)
    tiles = dict.fromkeys(others, 1) | {run.dim: width}
    if others:
        tiles[others[-1]] = min(_ROWS, sizes[others[-1]])
    order = [*others, run.dim]
    s.tile(compute.name, tiles, order, tail="apart")
    s.lower_computes([compute.name], vector=run.dim, lanes=lanes, order=order, unroll=[run.dim])
