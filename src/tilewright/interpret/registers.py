"""Registers of a subgroup's lanes: a lane accesses its own only."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.errors import InterpreterFault
from tilewright.interpret.findings import FaultKind, Findings
from tilewright.interpret.lanes import Identity, Site, at_lane, fault, first_lane
from tilewright.ir.buffer import Buffer


def check_owner(
    buffer: Buffer, places: Any, mask: Any, site: Site, findings: Findings, lanes: int
) -> None:
    """Reports accesses by a lane to registers of ``buffer`` that another one holds."""
    per_lane = buffer.layout.extent // lanes
    accessing = site.frame.values[Identity.WORK_ITEM] % lanes
    bad = np.asarray(places // per_lane != accessing)
    if mask is not None:
        bad = bad & mask
    if bad.any():
        findings.report(
            FaultKind.FOREIGN_REGISTER,
            site.stmt,
            site.count(bad),
            lambda: _foreign(buffer, (places // per_lane, accessing), bad, site),
        )


def _foreign(buffer: Buffer, lanes: tuple[Any, Any], bad: Any, site: Site) -> InterpreterFault:
    bad = np.broadcast_to(bad, site.frame.shape)
    lane = first_lane(bad)
    owner, accessing = (int(at_lane(np.broadcast_to(number, bad.shape), lane)) for number in lanes)
    return fault(
        f"lane {accessing} accesses what lane {owner} holds of {buffer.name!r}",
        site,
        lane,
        why="a lane cannot reach registers of another",
        cure="divide the compute as the buffer is held (`on_lanes`), or share the values in "
        "workgroup memory",
    )
