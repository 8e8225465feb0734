"""What it costs roughly that kernels are apart: a launch, and bytes that one leaves to the other.

Who compares hundreds of ways to cut a graph has no time to schedule each.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.machines.machine import Machine

# What a program takes from one kernel to the next, beside what the kernels take.
BETWEEN = 1e-6
# Of machines without costs: seconds for a byte.
_USUAL = 1 / 30e9


@dataclass(frozen=True)
class Passing:
    """``launch``: seconds for one kernel more. ``levels``: up to so many bytes, from the smallest
    on, each takes so many seconds on its way through memory; None: however many there are."""

    launch: float
    levels: tuple[tuple[int | None, float], ...]

    @classmethod
    def on(cls, machine: Machine | None) -> Passing:
        """What passes on ``machine``; by usual figures where it has no costs."""
        costs = None if machine is None else machine.costs
        if machine is None or costs is None:
            return cls(BETWEEN, ((None, _USUAL),))
        starts = ("calls", "regions", *(("starts of threads",) if machine.cores > 1 else ()))
        launch = BETWEEN + sum(costs.cycles[kind] for kind in starts) / costs.clock
        # A byte from the last cache comes through those before it, too. Each core has its part.
        byte = 1 / (costs.clock * machine.core.line * machine.cores)
        names = ("L2", "L3", "memory")[3 - len(machine.caches) :]
        sizes = [size * machine.cores for size in machine.caches[1:-1]]
        sizes += machine.caches[-1:] if len(machine.caches) > 1 else []
        levels: list[tuple[int | None, float]] = []
        seconds = 0.0
        for size, name in zip((*sizes, None), names, strict=True):
            seconds += costs.cycles[name] * byte
            levels.append((size, seconds))
        return cls(launch, tuple(levels))

    def seconds(self, size: int, passed: int) -> float:
        """Seconds in which so many bytes are read or written of an array of such a ``size``."""
        return passed * next(rate for most, rate in self.levels if most is None or size <= most)
