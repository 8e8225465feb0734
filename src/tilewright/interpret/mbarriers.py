"""mbarriers: arrivals, bytes and phases of elements of workgroup memory.

A phase is over when all arrivals that it takes have come and all bytes that it expects; at once the
next one begins. A wait names the parity of a phase, and ends when the present phase has the other
parity.
Source: NVIDIA, PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.errors import InterpreterFault
from tilewright.interpret.findings import FaultKind, Findings
from tilewright.interpret.lanes import Site, fault
from tilewright.interpret.storage import Storage


class MBarriers:
    """The mbarriers in one buffer, by their offsets (1-D arrays)."""

    def __init__(self, storage: Storage, agents: int, findings: Findings) -> None:
        extent = len(storage.data)
        self.name = storage.buffer.name
        self._findings = findings
        self._arrivals, self.missing, self.bytes, self.phase = np.zeros((4, extent), np.int64)
        # The knowledge of those who arrived in the present phase, and in phases that are over.
        self._told = np.zeros((2, extent, 2, agents), np.int64)

    def initialize(self, offsets: Any, arrivals: Any, site: Site) -> None:
        """Begins phase 0 of mbarriers whose phases take so many arrivals."""
        if np.any(arrivals < 1):
            self._misused(site, "a phase of no arrivals", "let at least one arrive")
        self._arrivals[offsets] = self.missing[offsets] = np.maximum(arrivals, 1)
        self.bytes[offsets] = self.phase[offsets] = 0
        self._told[:, offsets] = 0

    def check(self, offsets: Any, site: Site) -> Any:
        """Which of ``offsets`` are mbarriers; others are reported."""
        initialized = self._arrivals[offsets] > 0
        if not initialized.all():
            self._findings.report(
                FaultKind.UNINITIALIZED,
                site.stmt,
                int(np.count_nonzero(~initialized)),
                lambda: fault(
                    f"{self.name!r} is no mbarrier yet",
                    site,
                    (0,) * len(site.frame.shape),
                    why="an element becomes an mbarrier by mbarrier_init",
                    cure="initialize it, and let a barrier tell the other subgroups",
                ),
            )
        return initialized

    def arrive(self, offsets: Any, told: Any, bytes_: Any, site: Site) -> None:
        """One arrival per entry of ``offsets``, which knows ``told``; its phase expects ``bytes_``
        more."""
        np.add.at(self.bytes, offsets, bytes_)
        places, counts = np.unique(offsets, return_counts=True)
        if np.any(counts > self.missing[places]):
            self._misused(
                site,
                f"more arrivals than the phase of {self.name!r} takes",
                "initialize it with as many as arrive, and let them wait before they arrive again",
            )
        self.missing[places] = np.maximum(self.missing[places] - counts, 0)
        np.maximum.at(self._told[0], offsets, told)
        self._advance(places)

    def deliver(self, offset: int, agent: int, count: int, size: int, site: Site) -> None:
        """``size`` bytes arrive, of the asynchronous operation ``count`` of ``agent``."""
        self.bytes[offset] -= size
        if self.bytes[offset] < 0:
            excess = -int(self.bytes[offset])
            self.bytes[offset] = 0
            self._misused(
                site,
                f"{excess} bytes more than the phase of {self.name!r} expects",
                "let mbarrier_expect say the bytes of all copies that signal it in the phase",
            )
        row = self._told[0, offset, :, agent]
        self._told[0, offset, :, agent] = np.maximum(row, count)
        self._advance(np.array([offset]))

    def over(self, offsets: Any, parity: Any) -> Any:
        """Which of them have no phase of that parity under way."""
        return self.phase[offsets] % 2 != parity

    def told(self, offsets: Any) -> Any:
        """The knowledge of those who arrived in phases that are over."""
        return self._told[1, offsets]

    def state(self, offset: int) -> str:
        """The arrivals and bytes that the present phase lacks."""
        parts = []
        if self.missing[offset]:
            parts.append(f"{self.missing[offset]} of {self._arrivals[offset]} arrivals")
        if self.bytes[offset]:
            parts.append(f"{self.bytes[offset]} bytes")
        return f"phase {self.phase[offset]} lacks {' and '.join(parts)}"

    def _advance(self, offsets: Any) -> None:
        done = offsets[(self.missing[offsets] == 0) & (self.bytes[offsets] == 0)]
        self.phase[done] += 1
        self.missing[done] = self._arrivals[done]
        self._told[1, done] = np.maximum(self._told[1, done], self._told[0, done])
        self._told[0, done] = 0

    def _misused(self, site: Site, what: str, cure: str) -> None:
        self._findings.report(FaultKind.MBARRIER, site.stmt, 1, lambda: _misused(what, cure, site))


def _misused(what: str, cure: str, site: Site) -> InterpreterFault:
    return fault(
        f"mbarrier misused: {what}",
        site,
        (0,) * len(site.frame.shape),
        why="what an mbarrier does then is not defined",
        cure=cure,
    )
