"""Rows of tables that are larger than the caches, which are asked for before they are read: no
processor sees which row comes next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilewright.facts.scope import Facts
from tilewright.ir.computes import loading
from tilewright.ir.expr import as_expr
from tilewright.ir.stmt import Compute, Kernel
from tilewright.machines.machine import Machine
from tilewright.recipes.moving import moves, source_of
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.sizes import steps_of
from tilewright.schedule.queries.place import holds_loop
from tilewright.schedule.schedule import KernelSchedule

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
    if machine.hierarchy is not None:
        return []
    facts = Facts.of(kernel)
    return [rows for each in computes_in(kernel) for rows in _rows(each, facts, machine)]


def _rows(compute: Compute, facts: Facts, machine: Machine) -> Iterator[Rows]:
    source = source_of(compute) if moves(compute) else None
    if source is None:
        return
    size = as_expr(source.buffer.span_bytes)
    if facts.prove(size < machine.caches[-1]) is True:
        return
    steps = steps_of(compute, compute.out)
    rows = {name: step for each in loading(compute, source) if (step := steps[name := each.name])}
    if rows:
        loop = min(rows, key=lambda name: rows[name])
        ahead = -(-_AHEAD // (rows[loop] * compute.out.buffer.dtype.bytes))
        yield Rows(source.buffer.name, loop, ahead)


def asked_early(s: KernelSchedule, rows: Sequence[Rows]) -> None:
    """``kernel``, lowered, which asks for ``rows`` early."""
    for each in rows:
        if holds_loop(s.kernel.body, each.loop):
            s.prefetch(each.table, each.loop, each.ahead)
