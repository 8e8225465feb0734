"""Costs from times: those that gave the times are found again."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.machines import x86
from tilewright.machines.rates import Costs
from tilewright.predict.fitting import Stack, fit
from tilewright.predict.work import KINDS, Work

START = x86.machine("avx512").costs
assert START is not None


def _works(number: int, seed: int) -> list[Work]:
    """Kernels at random: a few bodies and phases, each of a few kinds of work."""
    rng = np.random.default_rng(seed)

    def rows(count: int) -> np.ndarray:
        chosen = rng.random((count, len(KINDS))) < 0.2
        return chosen * np.exp(rng.uniform(2, 12, (count, len(KINDS))))

    works = []
    for _ in range(number):
        bodies, phases = int(rng.integers(1, 6)), int(rng.integers(1, 3))
        phase_of = np.arange(bodies) % phases
        works.append(Work(rows(bodies), phase_of, rows(int(phase_of.max()) + 1), rows(1)[0]))
    return works


def test_costs_are_found_again() -> None:
    rng = np.random.default_rng(3)
    truth = Costs(
        {kind: cycles * float(np.exp(rng.normal(0, 0.5))) for kind, cycles in START.cycles.items()},
        2.0,
    )
    works, others = _works(600, 1), _works(200, 2)
    noise = np.exp(rng.normal(0, 0.05, len(works)))
    seconds = Stack.of(works).cycles(truth) * noise / START.clock
    fitted = fit(works, seconds.tolist(), START)
    right = Stack.of(others).cycles(truth)
    before = np.abs(np.log(Stack.of(others).cycles(START) / right)).mean()
    after = np.abs(np.log(Stack.of(others).cycles(fitted) / right)).mean()
    assert before > 0.2 and after < 0.06


def test_outliers_do_not_decide() -> None:
    works = _works(400, 4)
    seconds = Stack.of(works).cycles(START) / START.clock
    seconds[::20] *= 50
    fitted = fit(works, seconds.tolist(), START)
    off = np.abs(np.log(Stack.of(works).cycles(fitted) / Stack.of(works).cycles(START)))
    assert off.mean() < 0.1


def test_costs_of_which_no_kernel_says_anything_stay() -> None:
    works = _works(50, 5)
    for work in works:
        work.bodies[:, KINDS.index("gather")] = 0
        work.phases[:, KINDS.index("gather")] = 0
        work.overheads[KINDS.index("gather")] = 0
    seconds = 2 * Stack.of(works).cycles(START) / START.clock
    assert fit(works, seconds.tolist(), START).cycles["gather"] == START.cycles["gather"]


def test_nothing_to_fit_to() -> None:
    with pytest.raises(ValueError, match="nothing to fit to"):
        fit([], [], START)
