"""Operands of matrix instructions in the registers of lanes: checks of their fragments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.errors import InterpreterFault
from tilewright.interpret.findings import FaultKind, Findings
from tilewright.interpret.lanes import Frame, Site, fault, first_lane
from tilewright.interpret.values import Evaluator
from tilewright.ir.stmt import Compute, View
from tilewright.layout.fragments import Fragment
from tilewright.machines.instruction import Instruction


class Fragments:
    """The fragments that a machine's matrix instructions demand of operands in registers."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self._instructions = {i.name: i for i in instructions if i.lanes > 1}

    def check(self, stmt: Compute, domain: Frame, evaluator: Evaluator, findings: Findings) -> None:
        """Reports operands of ``stmt``, on the points of ``domain``, in other fragments."""
        instruction = self._instructions.get(stmt.instruction or "")
        if instruction is None or len(stmt.dims) != len(instruction.dims):
            return
        names = [name for name, _ in instruction.dims]
        points = {n: domain.values[d.var] for n, d in zip(names, stmt.dims, strict=True)}
        views = (stmt.out, *(operand.view for operand in stmt.operands))
        for view, role in zip(views, (instruction.out, *instruction.operands), strict=True):
            if role.fragment is None:
                continue
            index = [evaluator.evaluate(i, domain, stmt) for i in view.index]
            bad = _misplaced(view, index, role.fragment, points)
            if bad is not None:
                site = Site(stmt, domain)
                report = partial(_wrong_fragment, view.buffer.name, instruction.name, bad, site)
                findings.report(FaultKind.WRONG_FRAGMENT, stmt, site.count(bad), report)


def _misplaced(view: View, index: Sequence[Any], fragment: Fragment, points: dict[str, Any]) -> Any:
    """The elements in another lane, or in another register than the first one's implies; None for
    none."""
    extent, per_lane = view.buffer.layout.extent, view.buffer.layout.extent // fragment.lanes
    places = view.buffer.layout.place(list(index))
    wanted = [points[name] for name in fragment.dims]
    if fragment.copies is not None:
        wanted.append(fragment.copies.number(points[fragment.copies.dim]))
    expected = fragment.layout.place(wanted)
    held = fragment.registers
    lanes, registers = places // max(per_lane, 1), places % max(per_lane, 1)
    first = registers - expected % held
    bad = (lanes != expected // held) | (first % held != 0) | (extent % fragment.lanes != 0)
    # All elements belong to one tile.
    dims = tuple(range(np.ndim(bad) - len(points), np.ndim(bad)))
    bad = bad | (first != np.min(first, axis=dims, keepdims=True))
    return bad if bad.any() else None


def _wrong_fragment(name: str, instruction: str, bad: Any, site: Site) -> InterpreterFault:
    """The error for the operand ``name``, which is not in its instruction's fragment."""
    return fault(
        f"wrong fragment: the lanes do not hold {name!r} as {instruction} has it",
        site,
        first_lane(np.broadcast_to(bad, site.frame.shape)),
        why="the instruction takes each element from the register of the lane that its "
        "fragment says",
        cure=f"hold {name!r} in that fragment (`hold`)",
    )
