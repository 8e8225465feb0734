"""The shape of a workgroup: how many work-items it has, and how many of them are a subgroup."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.expr import Const
from tilewright.ir.functions import FUNCTIONS, Group, Shuffle, Synchronize
from tilewright.ir.stmt import Call, For, LoopKind, Stmt
from tilewright.ir.visit import nested, walk_stmts
from tilewright.machines.machine import Machine


@dataclass(frozen=True, slots=True)
class WorkgroupShape:
    """Work-items of a workgroup, workgroups of a cluster, and the work-items that have to be one
    subgroup, as they wait for each other (0: none do)."""

    items: int
    cluster: int
    subgroup: int


def waiting_lanes(part: Stmt, machine: Machine) -> int:
    """The lanes of a subgroup, where they wait for each other: those of the loops over lanes, or of
    the machine's subgroups where there are none; 0 where none do.

    A device may choose the size of its subgroups for each kernel, unless it is told.
    """
    if not any(isinstance(stmt, Call) and _waits(stmt) for stmt in walk_stmts(part)):
        return 0
    lanes = _lanes(part)
    if lanes == 1 and machine.hierarchy is not None:
        return machine.hierarchy.subgroup
    return lanes


def _waits(call: Call) -> bool:
    effects = FUNCTIONS[call.function].effects
    return any(
        isinstance(e, Shuffle) or (isinstance(e, Synchronize) and e.group is Group.SUBGROUP)
        for e in effects
    )


def _lanes(stmt: Stmt) -> int:
    """The iterations of nested loops over lanes; the most of those that stand beside each other."""
    inside = max((_lanes(each) for each in nested(stmt)), default=1)
    if isinstance(stmt, For) and stmt.kind is LoopKind.LANE and isinstance(stmt.extent, Const):
        return inside * int(stmt.extent.value)
    return inside
