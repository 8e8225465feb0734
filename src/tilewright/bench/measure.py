"""Timing that holds up: both sides in turn, medians, until they are stable.

Sides take turns in short batches, so that a change of the clock or another process meets both.
Worker threads spin for a while after a call and would take the cores from the other side, so with
several threads there is a pause in between, and then a call that is not timed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Call = Callable[[], object]
# Seconds for one of so many calls in a row.
Batch = Callable[[Call, int], float]

BATCH_SECONDS = 0.004
# How long the other side's threads may spin: 1 ms for ours; libgomp's went on for 30 ms where its
# workers and ours met on one core.
PAUSE_SECONDS = 0.06
# After a pause cores wake slowly and threads meet anew: calls that are not timed, longer batches.
WARM_SECONDS = 0.01
PAUSED_BATCH_SECONDS = 0.02
MIN_ROUNDS = 9
STABLE = 0.005


@dataclass(frozen=True)
class Timing:
    """Seconds for one call: the median of batches, the best, and how many batches there were."""

    median: float
    best: float
    rounds: int


def measure(
    sides: Mapping[str, Call],
    *,
    seconds: float = 1.0,
    pause: bool = True,
    batch: Batch | None = None,
) -> dict[str, Timing]:
    """Times the calls in turn for about ``seconds`` each, less when medians are stable before.

    ``pause`` says whether sides leave threads spinning behind. ``batch`` times calls that return
    before their work is done.
    """
    batch = batch or _batch
    pause = pause and len(sides) > 1
    length = PAUSED_BATCH_SECONDS if pause else BATCH_SECONDS
    counts = {name: _calibrate(call, length, batch) for name, call in sides.items()}
    samples: dict[str, list[float]] = {name: [] for name in sides}
    end = time.perf_counter() + seconds * len(sides)
    latest = end + max(seconds * len(sides), 1.0)
    rounds = 0
    while rounds < MIN_ROUNDS or (time.perf_counter() < end and not _stable(samples)):
        for name, call in sides.items():
            if pause:
                time.sleep(PAUSE_SECONDS)
            _warm(call, WARM_SECONDS if pause else 0.0)
            samples[name].append(batch(call, counts[name]))
        rounds += 1
        if rounds >= 3 and time.perf_counter() > latest:
            break  # a call takes so long that few must do
    return {
        name: Timing(statistics.median(times), min(times), len(times))
        for name, times in samples.items()
    }


def fastest(calls: list[Call], batch: Batch | None = None) -> Call:
    """The fastest of several ways to do the same, by a short look."""
    if len(calls) == 1:
        return calls[0]
    named = {str(i): call for i, call in enumerate(calls)}
    times = measure(named, seconds=0.05, pause=False, batch=batch)
    return calls[int(min(times, key=lambda name: times[name].median))]


def call_overhead(call: Call) -> float:
    """Seconds that one call of next to nothing takes, the median of batches."""
    call()
    return statistics.median(_batch(call, 200) for _ in range(15))


def _warm(call: Call, seconds: float) -> None:
    """Wakes the threads, and fills the caches again."""
    end = time.perf_counter() + seconds
    call()
    while time.perf_counter() < end:
        call()


def _calibrate(call: Call, seconds: float, batch: Batch) -> int:
    """Calls per batch of about ``seconds``, after a warm-up."""
    call()
    count = 1
    while True:
        taken = batch(call, count) * count
        if taken >= seconds or count >= 1_000_000:
            return count
        count = max(count + 1, min(10 * count, int(count * 1.3 * seconds / (taken + 1e-9))))


def _batch(call: Call, count: int) -> float:
    """Seconds for one of ``count`` calls in a row."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def _stable(samples: Mapping[str, list[float]]) -> bool:
    """Whether the second half of each side's samples gives the same median as all of them."""
    for times in samples.values():
        half = times[len(times) // 2 :]
        whole = statistics.median(times)
        if abs(statistics.median(half) - whole) > STABLE * whole or len(times) < 2 * MIN_ROUNDS:
            return False
    return True
