"""The shape of a workgroup: its work-items, and how many of them are a subgroup."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import UnsupportedError
from tilewright.ir.expr import Const
from tilewright.ir.functions import Group, synchronized_group
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Call, For, LoopKind, Stmt
from tilewright.ir.visit import nested, walk_stmts
from tilewright.machines.machine import Machine


@dataclass(frozen=True, slots=True)
class WorkgroupShape:
    """Work-items of a workgroup, workgroups of a cluster, and the work-items that have to be one
    subgroup because they wait for each other (0: none do)."""

    items: int
    cluster: int
    subgroup: int


def waiting_lanes(part: Stmt, machine: Machine) -> int:
    """The number of lanes in subgroups whose lanes wait for each other: that of the loops over
    lanes, or without such loops that of the machine's subgroups; 0 where no lanes wait.

    A device may choose the size of subgroups for each kernel unless it is told. Raises
    `UnsupportedError` for a size of subgroups that ``machine`` lacks.
    """
    calls = (stmt for stmt in walk_stmts(part) if isinstance(stmt, Call))
    waiting = [call for call in calls if synchronized_group(call.function) is Group.SUBGROUP]
    if not waiting:
        return 0
    lanes, hierarchy = _lanes(part), machine.hierarchy
    if lanes == 1:
        return hierarchy.subgroup
    if hierarchy.exchanging and lanes not in hierarchy.exchanging:
        raise UnsupportedError(
            f"a subgroup of {lanes} lanes that exchange values, or wait for each other",
            where=headline(waiting[0]),
            span=waiting[0].span,
            why=f"on {machine.name}, subgroups of other sizes cannot",
            cure="choose a subgroup of " + ", ".join(map(str, hierarchy.exchanging)),
        )
    return lanes


def _lanes(stmt: Stmt) -> int:
    """The iterations of nested loops over lanes; of loops side by side, the most."""
    inside = max((_lanes(inner) for inner in nested(stmt)), default=1)
    if isinstance(stmt, For) and stmt.kind is LoopKind.LANE and isinstance(stmt.extent, Const):
        return inside * int(stmt.extent.value)
    return inside
