"""Loops over threads, workgroups or work-items: how many of them a machine keeps busy."""

from __future__ import annotations

from tilewright.ir.stmt import LoopKind
from tilewright.machines.machine import Machine
from tilewright.schedule.schedule import KernelSchedule

# Work-items of a workgroup that share nothing: a few subgroups.
_ITEMS = 128
# Iterations that are worth a launch each time that the host's control comes by: one thread of a
# processor runs fewer sooner than all of them start, and one work-item is far slower.
_WORTH = 4096
_WORTH_ITEMS = 64


def parallelize(s: KernelSchedule, machine: Machine, *, inside: bool = False) -> None:
    """The outermost loops of each part run on threads or workgroups, as many as give enough work;
    on work-items, one iteration each, where these are many. With ``inside``, also in loops and
    conditions around such loops, which are then the host's, where they have enough work for a
    launch each time."""
    workers, items = 8 * machine.cores, 0
    kind, worth = LoopKind.PARALLEL, _WORTH
    if not machine.threaded:
        kind, worth = LoopKind.GRID, _WORTH_ITEMS
    if machine.banked:
        workers = machine.cores * machine.hierarchy.workgroup * 64
        items = min(_ITEMS, machine.hierarchy.workgroup)
    s.parallelize_parts(workers, kind, items=items, worth=worth if inside else 0)
