"""Copies: which computes make them, with vectors as wide as registers; copies of whole arrays in
another order, by whole cache lines; elements of a few rows put side by side, as products of narrow
types take them; rows of tables larger than the caches, prefetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tilewright.facts.scope import Facts
from tilewright.ir.computes import loading
from tilewright.ir.expr import Const, Var, as_expr
from tilewright.ir.load import Load
from tilewright.ir.stmt import Compute, Kernel, View
from tilewright.machines.machine import Machine
from tilewright.recipes.reducible import computes_in, contiguous_dim
from tilewright.recipes.roles import extents, find_compute, steps_of
from tilewright.recipes.transposed_tiles import (
    Run,
    Transposition,
    memory_order,
    run_of,
    transposed,
    transposition,
    vectorized,
)
from tilewright.schedule.queries.place import holds_loop
from tilewright.schedule.queries.runs import strides
from tilewright.schedule.schedule import KernelSchedule


def moved_bytes(kernel: Kernel, machine: Machine) -> int | None:
    """The bytes of the widest elements, where runs of them are moved and nothing else happens; None
    elsewhere, and where vectors have no more elements however narrow these are."""
    computes = computes_in(kernel)
    if machine.most_lanes or not computes or not all(map(moves, computes)):
        return None
    return max(view.buffer.dtype.bytes for compute in computes for view in compute.outputs)


def moves(compute: Compute) -> bool:
    """Whether ``compute`` copies neighbours of one array to neighbours of another."""
    result = compute.results[0]
    if len(compute.outputs) > 1 or result.combiner is not None or compute.is_ordered:
        return False
    along, source = contiguous_dim(compute), source_of(compute)
    if along is None or source is None or source.mask is not None:
        return False
    same = source.buffer.dtype is compute.out.buffer.dtype
    whole = source.buffer.dtype.bits >= 8 and compute.out.mask is None
    return same and whole and steps_of(compute, source)[along] == 1


def source_of(compute: Compute) -> View | None:
    """What is copied, where no element is computed."""
    (value,) = compute.results[0].values
    if isinstance(value, Load):
        return View(value.buffer, value.index, value.mask)
    if not isinstance(value, Var):
        return None
    return next((operand.view for operand in compute.operands if operand.var is value), None)


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
    extents_of = {d.var.name: d.extent.value for d in compute.dims if isinstance(d.extent, Const)}
    if by is None or row.dim not in extents_of or int(extents_of.get(out.dim, 1)) % out.size:
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


# Rows of the source that are read side by side: a processor follows about so many at once.
_ROWS = 8


def copied(s: KernelSchedule, root: str, machine: Machine, *, inside: bool = False) -> None:
    """The compute ``root``, which copies one operand element by element, as such loops; as it is
    where neither side has neighbours in a row, and where work-items copy, side by side. ``inside``:
    squares may begin inside of a row of the operand, which is there as a whole."""
    if machine.workers.items:
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
    if len(runs) != 2 or not all(runs) or len({run_.dim for run_ in runs if run_}) > 1:
        return
    run = runs[0]
    assert run is not None
    _in_rows(s, compute, run, machine)


def _within(compute: Compute, plan: Transposition) -> tuple[str, ...]:
    """The dims along which the operand of a square goes on inside of its rows, the longest steps
    first."""
    (operand,) = (read for read in compute.operands if read.var.name in plan.operands)
    steps = {dim: step for dim, step in strides(compute, operand.view).items() if step}
    row = steps[plan.across]
    shorter = [d for d in steps if steps[d] < row and d not in (plan.across, plan.along)]
    return tuple(sorted(shorter, key=lambda dim: -steps[dim]))


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


# How many bytes of the result are between what is asked for and what is read.
_AHEAD = 4096


class Rows(NamedTuple):
    """Rows of the array ``table`` that iterations of ``loop`` read, one each: how many iterations
    ahead they are asked for."""

    table: str
    loop: str
    ahead: int


def rows_of(kernel: Kernel, machine: Machine) -> list[Rows]:
    """The rows that ``kernel``, which is not lowered, copies from places in memory."""
    if not machine.past_caches:
        return []
    facts = Facts.of(kernel)
    return [rows for compute in computes_in(kernel) for rows in _rows(compute, facts, machine)]


def _rows(compute: Compute, facts: Facts, machine: Machine) -> Iterator[Rows]:
    source = source_of(compute) if moves(compute) else None
    if source is None:
        return
    size = as_expr(source.buffer.span_bytes)
    if facts.prove(size < machine.caches[-1]) is True:
        return
    steps = steps_of(compute, compute.out)
    rows = {name: step for var in loading(compute, source) if (step := steps[name := var.name])}
    if rows:
        loop = min(rows, key=lambda name: rows[name])
        ahead = -(-_AHEAD // (rows[loop] * compute.out.buffer.dtype.bytes))
        yield Rows(source.buffer.name, loop, ahead)


def asked_early(s: KernelSchedule, rows: Sequence[Rows]) -> None:
    """``kernel``, lowered, which asks for ``rows`` early."""
    for row in rows:
        if holds_loop(s.kernel.body, row.loop):
            s.prefetch(row.table, row.loop, row.ahead)
    s.mark("asked early")
