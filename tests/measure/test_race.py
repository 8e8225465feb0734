"""Two calls in turn: which is faster, and when that is clear. Time is counted, not measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from tilewright.measure.host import Unwatched
from tilewright.measure.race import MOST_ROUNDS, Race, race


class Counted(Unwatched):
    """A clock that calls move."""

    def __init__(self) -> None:
        self.time = 0.0
        self.lost = 0.0
        self.calls = 0

    def now(self) -> float:
        return self.time

    def waited(self) -> float:
        return self.lost

    def call(self, seconds: float, noise: float = 0.0, seed: int = 0) -> Callable[[], object]:
        rng = Random(seed)

        def work() -> None:
            self.calls += 1
            self.time += seconds * (1 + noise * rng.random())

        return work


def test_what_is_much_slower_is_timed_three_times() -> None:
    host = Counted()
    run = race(host.call(0.2), host.call(0.1), seconds=100.0, host=host)
    assert len(run.times) == 3
    assert run.ratio == pytest.approx(2)
    assert not run.won


@pytest.mark.parametrize("speed", [0.5, 0.9, 0.97])
def test_what_is_faster_wins(speed: float) -> None:
    host = Counted()
    challenger, incumbent = host.call(speed, 0.02, 1), host.call(1.0, 0.02, 2)
    run = race(challenger, incumbent, seconds=1000.0, host=host)
    assert run.won
    assert run.bounds[0] <= run.ratio <= run.bounds[1] < 1
    assert run.ratio == pytest.approx(speed, rel=0.02)
    assert run.seconds == pytest.approx(speed, rel=0.02)
    lost = race(incumbent, challenger, seconds=1000.0, host=host)
    assert not lost.won


def test_equal_ones_are_not_told_apart() -> None:
    host = Counted()
    run = race(host.call(1.0, 0.05, 1), host.call(1.0, 0.05, 2), seconds=1e9, host=host)
    assert not run.won
    assert not run.lost
    assert len(run.times) == MOST_ROUNDS


def test_time_is_up_when_it_is_known_who_loses() -> None:
    host = Counted()
    run = race(host.call(1.0, 0.05, 1), host.call(1.0, 0.05, 2), seconds=3.0, host=host)
    assert len(run.times) == 6


def test_short_calls_are_timed_in_batches_and_cold_ones_by_themselves() -> None:
    host = Counted()
    short = host.call(1e-6)
    run = race(short, None, seconds=1.0, host=host)
    assert run.others == ()
    assert run.seconds == pytest.approx(1e-6)
    assert host.calls > 100 * len(run.times)
    host.calls = 0
    emptied = []
    run = race(short, None, seconds=1.0, before=lambda: emptied.append(0), host=host)
    assert host.calls == len(emptied) + 1
    assert run.seconds == pytest.approx(1e-6)


def test_disturbed_rounds_are_left_out() -> None:
    host = Counted()
    plain = host.call(1.0)
    number = 0

    def disturbed() -> None:
        nonlocal number
        number += 1
        host.time += 1.0
        if number % 4 == 0:
            host.time += 5.0
            host.lost += 5.0

    run = race(disturbed, plain, seconds=1000.0, host=host)
    assert run.disturbed > 0
    assert max(run.times) == 1.0


def test_too_few_rounds_say_nothing() -> None:
    run = Race((0.1,) * 3, (1.0,) * 3)
    assert run.bounds == (0.0, math.inf)
    assert not run.won
