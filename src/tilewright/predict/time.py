"""Seconds that work takes, by the costs of a machine.

What one unit does goes on while others work, but not quite: several limits combine to
``(a^p + b^p + ...)^(1/p)``, between the greatest of them and their sum. In a body these are
arithmetic, accesses, and waiting for results; in a phase its bodies, and the lines that move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.machines.rates import Costs
from tilewright.predict.work import (
    ACCESSES,
    ARITHMETIC,
    CALLS,
    COLUMN,
    KINDS,
    LOOPS,
    MOVES,
    STREAMED,
    WAITS,
    Work,
    work_of,
)

# What limits, in words, and the kinds of work that count for it.
LIMITS: Mapping[str, tuple[str, ...]] = {
    "arithmetic": ARITHMETIC,
    "loads and stores": ACCESSES,
    "latency": WAITS,
    "loops": LOOPS,
    "caches": tuple(kind for kind in MOVES if not kind.startswith("memory")),
    "memory": (*(kind for kind in MOVES if kind.startswith("memory")), STREAMED),
    "launch": CALLS,
}
# Waiting is hidden nearly whole by work that does not wait, and the other way round.
_WAITING = 4.0
_ARITHMETIC, _ACCESSES, _WAITS, _LOOPS = (
    [COLUMN[kind] for kind in kinds] for kinds in (ARITHMETIC, ACCESSES, WAITS, LOOPS)
)


@dataclass(frozen=True)
class PredictedTime:
    """The seconds that a kernel takes, and which each of its ``limits`` would take by itself."""

    seconds: float
    limits: Mapping[str, float]

    @property
    def limit(self) -> str:
        """What takes the longest."""
        return max(self.limits, key=lambda name: self.limits[name])

    @property
    def details(self) -> dict[str, str]:
        """Cells of a table: microseconds of what takes more than a tenth of the whole."""
        return {
            name: f"{seconds * 1e6:.1f}"
            for name, seconds in self.limits.items()
            if seconds >= self.seconds / 10
        }


def predicted(kernel: Kernel, machine: Machine, warm: bool = True) -> PredictedTime | None:
    """The time that ``kernel``, as it is scheduled, takes on all cores of ``machine``; None where
    the machine has no costs. ``warm``: what it reads is in the caches, as far as it has room."""
    if machine.costs is None:
        return None
    work = work_of(kernel, machine, machine.cores, warm)
    cycles = cycles_of(work, machine.costs)
    clock = machine.costs.clock
    totals = (work.bodies.sum(0) + work.phases.sum(0) + work.overheads) * vector_of(machine.costs)
    limits = {
        name: float(totals[[COLUMN[kind] for kind in kinds]].sum()) / clock
        for name, kinds in LIMITS.items()
    }
    return PredictedTime(cycles / clock, limits)


def vector_of(costs: Costs) -> NDArray[np.float64]:
    """Cycles of each of `KINDS`."""
    return np.array([costs.cycles.get(kind, 0.0) for kind in KINDS])


def cycles_of(work: Work, costs: Costs) -> float:
    """The cycles that ``work`` takes."""
    cycles = body_cycles(work.bodies, vector_of(costs), costs.overlap)
    phases = np.bincount(work.phase_of, cycles, len(work.phases)).astype(np.float64)
    moves: NDArray[np.float64] = work.phases @ vector_of(costs)
    return float(together(costs.hiding, phases, moves).sum() + work.overheads @ vector_of(costs))


def body_cycles(
    bodies: NDArray[np.float64], cycles: NDArray[np.float64], overlap: float
) -> NDArray[np.float64]:
    """The cycles of each body, without lines that move."""
    arithmetic, accesses, waits, loops = (
        bodies[:, columns] @ cycles[columns] for columns in (_ARITHMETIC, _ACCESSES, _WAITS, _LOOPS)
    )
    return together(_WAITING, together(overlap, arithmetic, accesses), waits) + loops


def together(overlap: float, *limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """What limits take that go on at the same time."""
    most = np.maximum.reduce(limits)
    most = np.where(most > 0, most, 1.0)
    sums = sum((limit / most) ** overlap for limit in limits)
    return np.where(np.maximum.reduce(limits) > 0, most * sums ** (1 / overlap), 0.0)
