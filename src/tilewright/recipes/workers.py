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


def parallelize_outermost(s: KernelSchedule, machine: Machine) -> None:
    """The outermost loops of each part run on threads or workgroups, as many as give enough work;
    on work-items, one iteration each, where these are many."""
    _parallelized(s, machine, 0)


def parallelize_inside(s: KernelSchedule, machine: Machine) -> None:
    """`parallelize_outermost`, and in loops and conditions around such loops, which are then the
    host's, where they have enough work for a launch each time."""
    _parallelized(s, machine, _WORTH if machine.hierarchy is None else _WORTH_ITEMS)


def _parallelized(s: KernelSchedule, machine: Machine, worth: int) -> None:
    workers = 8 * machine.cores
    kind = LoopKind.PARALLEL if machine.hierarchy is None else LoopKind.GRID
    items = 0
    if machine.banked:
        assert machine.hierarchy is not None
        workers = machine.cores * machine.hierarchy.workgroup * 64
        items = min(_ITEMS, machine.hierarchy.workgroup)
    s.parallelize_parts(workers, kind, items=items, worth=worth)
