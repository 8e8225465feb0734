"""Registers of a subgroup's lanes: each reaches its own only."""

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
    """Reports accesses by a lane to what another one of its subgroup holds of ``buffer``."""
    held = buffer.layout.extent // lanes
    own = site.frame.values[Identity.WORK_ITEM] % lanes
    bad = np.asarray(places // held != own)
    if mask is not None:
        bad = bad & mask
    if bad.any():
        findings.report(
            FaultKind.FOREIGN_REGISTER,
            site.stmt,
            site.count(bad),
            lambda: _foreign(buffer, (places // held, own), bad, site),
        )


def _foreign(buffer: Buffer, who: tuple[Any, Any], bad: Any, site: Site) -> InterpreterFault:
    bad = np.broadcast_to(bad, site.frame.shape)
    lane = first_lane(bad)
    owner, own = (int(at_lane(np.broadcast_to(each, bad.shape), lane)) for each in who)
    return fault(
        f"lane {own} accesses what lane {owner} holds of {buffer.name!r}",
        site,
        lane,
        why="registers are their lane's own",
        cure="divide the compute as the buffer is held (`on_lanes`), or share the values in "
        "workgroup memory",
    )
