"""The sides of a comparison in turn, again and again, until their times hold up.

Sides take turns in short batches, so that a change of the clock or another process meets both.
Worker threads spin for a while after a call and would take the cores from the other side, so with
several threads there is a pause in between, and then a call that is not timed.

Batches in which a thread waited for a core do not count where most are others: what says so is the
system, not the time that the batch took, so nothing slow is left out for being slow. What is noisy
all the same (`verdict`) is measured again, and marked if it stays so.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.measure.host import Host
from tilewright.measure.verdict import (
    DISTURBED,
    TOLERABLE,
    Conditions,
    Timing,
    against,
    conditions,
)

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
# How often what is noisy is measured, where there is time.
ATTEMPTS = 3


@dataclass(frozen=True)
class Measured:
    """The times of each side, by name in the order given, under which conditions, and the reasons
    why they are noisy: none where nothing speaks against them. ``attempts``: how often that was
    measured; the first that is not noisy counts, or else the one with the least error."""

    times: Mapping[str, Timing]
    conditions: Conditions
    noise: tuple[str, ...]
    attempts: int = 1

    @property
    def _error(self) -> tuple[bool, float]:
        return bool(self.noise), sum(each.error for each in self.times.values())


@dataclass(frozen=True)
class _Sample:
    """A batch: seconds for one call, and the part of the batch in which threads waited for a core
    (of several threads, together), where that is known."""

    seconds: float
    waited: float | None

    def disturbed(self, limit: float) -> bool:
        return self.waited is not None and self.waited > limit


def measure(
    sides: Mapping[str, Call],
    *,
    seconds: float = 1.0,
    threads: int = 1,
    batch: Batch | None = None,
    host: Host | None = None,
) -> Measured:
    """Times the calls in turn for about ``seconds`` each, less when medians are stable before, and
    up to `ATTEMPTS` times as long while they are noisy.

    ``threads`` is what a call works with on the host: several stay and spin for a while. ``batch``
    times calls that return before their work is done.
    """
    host = host or Host()
    run = _Run(sides, seconds, threads, batch or _batch(host), host)
    last = host.now() + ATTEMPTS * seconds * len(sides)
    found = [run.attempt()]
    while found[-1].noise and len(found) < ATTEMPTS and host.now() < last:
        found.append(run.attempt())
    best = min(found, key=lambda each: each._error)
    return Measured(best.times, best.conditions, best.noise, len(found))


class _Run:
    """One measurement: its sides, and how many calls of each are a batch."""

    def __init__(
        self, sides: Mapping[str, Call], seconds: float, threads: int, batch: Batch, host: Host
    ) -> None:
        self.sides, self.threads, self.batch, self.host = sides, threads, batch, host
        self.seconds = seconds * len(sides)
        self.pause = threads > 1 and len(sides) > 1
        length = PAUSED_BATCH_SECONDS if self.pause else BATCH_SECONDS
        self.counts = {name: _calibrate(call, length, batch) for name, call in sides.items()}

    def attempt(self) -> Measured:
        """Rounds until medians are stable or the time is over, and what became of them."""
        host = self.host
        start, before = host.now(), host.usage()
        end = start + self.seconds
        latest = end + max(self.seconds, 1.0)
        samples: dict[str, list[_Sample]] = {name: [] for name in self.sides}
        speeds = [host.speed()]
        rounds = 0
        while rounds < MIN_ROUNDS or (host.now() < end and not _stable(samples)):
            for name, call in self.sides.items():
                samples[name].append(self._sample(call, self.counts[name]))
            speeds.append(host.speed())
            rounds += 1
            if rounds >= 3 and host.now() > latest:
                break  # a call takes so long that few must do
        counting, undisturbed = _counting(samples)
        times = {name: Timing.of(each) for name, each in counting.items()}
        late = {name: statistics.median(_late(each)) for name, each in counting.items()}
        found = conditions(
            *(host.cores, self.threads, host.now() - start, before, host.usage()),
            [each for each in speeds if each is not None],
            _disturbed([each for side in samples.values() for each in side]),
        )
        return Measured(times, found, against(times, late, found, undisturbed))

    def _sample(self, call: Call, count: int) -> _Sample:
        if self.pause:
            self.host.sleep(PAUSE_SECONDS)
        _warm(call, WARM_SECONDS if self.pause else 0.0, self.host)
        before = self.host.waited()
        seconds = self.batch(call, count)
        after = self.host.waited()
        if before is None or after is None:
            return _Sample(seconds, None)
        # What a thread waited that has ended is no longer counted.
        return _Sample(seconds, max(0.0, after - before) / (seconds * count))


def fastest(calls: list[Call], batch: Batch | None = None, host: Host | None = None) -> Call:
    """The fastest of several ways to do the same, by a short look."""
    if len(calls) == 1:
        return calls[0]
    named = {str(i): call for i, call in enumerate(calls)}
    times = measure(named, seconds=0.05, batch=batch, host=host).times
    return calls[int(min(times, key=lambda name: times[name].median))]


def call_overhead(call: Call) -> float:
    """Seconds that one call of next to nothing takes, the median of batches."""
    call()
    batch = _batch(Host())
    return statistics.median(batch(call, 200) for _ in range(15))


def _counting(
    samples: Mapping[str, Sequence[_Sample]],
) -> tuple[dict[str, list[float]], bool]:
    """The seconds of the batches that count: those in which no thread waited for a core, or none
    for long, if these are enough of each side, and no less than half; and whether they are."""
    for limit in (DISTURBED, TOLERABLE):
        kept = {
            name: [each.seconds for each in side if not each.disturbed(limit)]
            for name, side in samples.items()
        }
        # The rest of many that were disturbed ran in caches that others had just used.
        if all(
            2 * len(kept[name]) >= len(side) and len(kept[name]) >= min(MIN_ROUNDS, len(side))
            for name, side in samples.items()
        ):
            return kept, True
    return {name: [s.seconds for s in side] for name, side in samples.items()}, False


def _disturbed(samples: Sequence[_Sample]) -> float | None:
    """The part of the batches in which threads waited for a core, longer than is tolerable."""
    known = [each for each in samples if each.waited is not None]
    return sum(each.disturbed(TOLERABLE) for each in known) / len(known) if known else None


def _late(times: Sequence[float]) -> Sequence[float]:
    """The second half."""
    return times[len(times) // 2 :]


def _warm(call: Call, seconds: float, host: Host) -> None:
    """Wakes the threads, and fills the caches again."""
    end = host.now() + seconds
    call()
    while host.now() < end:
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


def _batch(host: Host) -> Batch:
    """Seconds for one of so many calls in a row."""

    def batch(call: Call, count: int) -> float:
        start = host.now()
        for _ in range(count):
            call()
        return (host.now() - start) / count

    return batch


def _stable(samples: Mapping[str, Sequence[_Sample]]) -> bool:
    """Whether enough batches of each side count, and their second half gives the same median as all
    of them."""
    counting, undisturbed = _counting(samples)
    if not undisturbed:
        return False
    for each in counting.values():
        whole = statistics.median(each)
        if abs(statistics.median(_late(each)) - whole) > STABLE * whole:
            return False
        if len(each) < 2 * MIN_ROUNDS:
            return False
    return True
