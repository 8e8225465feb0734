"""Costs from measurements: least squares of the logarithms of times, by Levenberg and Marquardt's
method (Marquardt, J. Soc. Indust. Appl. Math. 11, 1963) on the logarithms of costs.

Costs that the measured kernels say little about stay near those that the fit starts from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.machines.rates import Costs
from tilewright.predict.time import body_cycles, together, vector_of
from tilewright.predict.work import COLUMN, KINDS, Work

Floats = NDArray[np.float64]
# How much a factor of e in one cost counts beside a factor of e in one time.
_PRIOR = 2.0
# Times off by a factor of e to the power of more are outliers, which count less.
_FAR = 0.7
_STEPS = 40
# What the logarithm of a cost is moved by for a slope.
_SMALL = 1e-4
# What units do side by side, between little and nearly all.
_OVERLAPS = (1.0, 8.0)


@dataclass(frozen=True, eq=False)
class Stack:
    """The work of many kernels, one under the other."""

    bodies: Floats
    phase_of: NDArray[np.int64]
    phases: Floats
    kernel_of: NDArray[np.int64]
    overheads: Floats

    @classmethod
    def of(cls, works: Sequence[Work]) -> Stack:
        """The work of kernels in order."""
        counts = [len(work.phases) for work in works]
        starts = np.cumsum([0, *counts[:-1]])
        return cls(
            np.concatenate([work.bodies for work in works]),
            np.concatenate([w.phase_of + s for w, s in zip(works, starts, strict=True)]),
            np.concatenate([work.phases for work in works]),
            np.repeat(np.arange(len(works)), counts),
            np.stack([work.overheads for work in works]),
        )

    def cycles(self, costs: Costs) -> Floats:
        """The cycles of each kernel."""
        vector = vector_of(costs)
        per_body = body_cycles(self.bodies, vector, costs.overlap)
        code = np.bincount(self.phase_of, per_body, len(self.phases)).astype(np.float64)
        moves: Floats = self.phases @ vector
        phases = together(costs.hiding, code, moves)
        totals = np.bincount(self.kernel_of, phases, len(self.overheads))
        overheads: Floats = self.overheads @ vector
        return totals + overheads


def fit(works: Sequence[Work], seconds: Sequence[float], start: Costs) -> Costs:
    """The costs near ``start`` by which ``works`` take about ``seconds`` each. Raises `ValueError`
    without any."""
    if not works:
        raise ValueError("there is nothing to fit to")
    stack, measured = Stack.of(works), np.log(np.asarray(seconds) * start.clock)
    used = [kind for kind in KINDS if start.cycles.get(kind) and _occurs(stack, kind)]
    values = [*(start.cycles[kind] for kind in used), start.overlap, start.hiding]
    first = np.log(np.array(values))

    def costs(logs: Floats) -> Costs:
        cycles = dict(start.cycles) | dict(zip(used, np.exp(logs[:-2]).tolist(), strict=True))
        overlap, hiding = np.clip(np.exp(logs[-2:]), *_OVERLAPS).tolist()
        return Costs(cycles, overlap, hiding, start.clock)

    def errors(logs: Floats) -> Floats:
        off = _bounded(np.log(stack.cycles(costs(logs))) - measured)
        moved = logs - first
        # That a processor is as many times slower in all says nothing against it.
        moved[:-2] -= moved[:-2].mean()
        return np.concatenate([off, moved * _PRIOR])

    return costs(_least_squares(errors, first))


def _bounded(off: Floats) -> Floats:
    """``off``, whose square is linear in what is far off: Huber's loss (Ann. Math. Statist. 35,
    1964)."""
    far = np.maximum(np.abs(off), _FAR)
    return np.where(np.abs(off) > _FAR, np.sign(off) * np.sqrt(2 * _FAR * far - _FAR**2), off)


def _occurs(stack: Stack, kind: str) -> bool:
    column = COLUMN[kind]
    return any(rows[:, column].any() for rows in (stack.bodies, stack.phases, stack.overheads))


def _least_squares(errors: Callable[[Floats], Floats], first: Floats) -> Floats:
    """The argument near ``first`` at which the squares of ``errors`` add up to the least."""
    place, off, damping = first, errors(first), 1e-2
    for _ in range(_STEPS):
        slopes = np.stack(
            [(errors(place + _SMALL * row) - off) / _SMALL for row in np.eye(len(place))], axis=1
        )
        square, slope = slopes.T @ slopes, slopes.T @ off
        for _ in range(8):
            step = np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), -slope)
            there = place + np.clip(step, -1, 1)
            new = errors(there)
            if new @ new < off @ off:
                break
            damping *= 4
        else:
            return place
        gained = 1 - (new @ new) / (off @ off)
        place, off, damping = there, new, damping / 3
        if gained < 1e-5:
            break
    return place
