"""Costs from records: those by which invented times were made are found, on other problems too."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tilewright.bench.rates import Measured, costs_of, fitted
from tilewright.bench.timed_records import TimedRecord
from tilewright.engine.request import request_of
from tilewright.errors import UnsupportedError
from tilewright.ir.printer import to_text
from tilewright.machines.rates import Costs
from tilewright.recipes import choose
from tilewright.targets.registry import find_target
from tilewright.testing.timed_cases import timed_cases

MACHINE = find_target("x86:avx2").machine
KINDS = ("elementwise", "reorder", "row reduction")


@pytest.fixture(scope="module")
def records() -> list[TimedRecord]:
    """Kernels, without times."""
    result = []
    for case in timed_cases(48, 7, KINDS):
        _, scheduled = choose.choose(request_of(case.what).start(), MACHINE)
        text = to_text(scheduled.kernel)
        result.append(
            TimedRecord(case.kind, case.name, "x86:avx2", "any", 1, "-", True, 1, 1, 0.0, text)
        )
    return result


def timed_by(records: Sequence[TimedRecord], costs: Costs) -> list[TimedRecord]:
    """``records`` with the times that ``costs`` predict."""
    predicted = Measured(MACHINE, records).predicted(costs)
    return [replace(record, seconds=predicted(record)) for record in records]


def test_fitted(records: list[TimedRecord]) -> None:
    rng = random.Random(5)
    start = costs_of(MACHINE)
    # A processor that is slower in all, and in some things more than in others.
    cycles = {kind: cycles * rng.choice((2.4, 3.6)) for kind, cycles in start.cycles.items()}
    result = fitted(Measured(MACHINE, timed_by(records, replace(start, cycles=cycles))))
    (*_, before), (*_, after) = result.before, result.after
    assert 4 < before.kernels == after.kernels < 24
    assert before.error > 0.3 and after.error < 0.15


def test_too_few(records: list[TimedRecord]) -> None:
    noisy = [replace(record, error=0.5) for record in records[:40]]
    with pytest.raises(UnsupportedError, match="8 clear times are too few to fit") as error:
        Measured(MACHINE, [*noisy, *records[40:]]).costs([*noisy, *records[40:]])
    assert "give it more minutes" in str(error.value)


def test_machines_whose_times_nothing_predicts() -> None:
    with pytest.raises(UnsupportedError, match="no times of kernels are predicted for"):
        costs_of(replace(MACHINE, costs=None))
