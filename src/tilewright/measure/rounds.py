"""The sides of a comparison in turn, repeated until their times are stable.

Sides take turns in short batches, so that a change of the clock or another process meets both.
Worker threads spin for a while after a call and would take the cores from the other side, so with
several threads there is a pause in between, and then a call that is not timed.

Batches in which a thread waited for a core do not count, as long as most batches remain: the system
says so, not the batch's time, so nothing is left out for being slow. A comparison that is noisy
all the same (`verdict`) is measured again, and marked if it stays noisy.
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
    measured_conditions,
    noise_reasons,
)

Call = Callable[[], object]
# Seconds for one call: the mean of ``count`` calls in a row.
Batch = Callable[[Call, int], float]

BATCH_SECONDS = 0.004
# How long the other side's threads may spin: ours for 1 ms; libgomp's have spun for 30 ms where
# workers of both shared a core.
PAUSE_SECONDS = 0.06
# After a pause cores wake slowly and threads meet anew: untimed calls first, then longer batches.
WARM_SECONDS = 0.01
PAUSED_BATCH_SECONDS = 0.02
MIN_ROUNDS = 9
STABLE = 0.005
# Attempts at a noisy comparison, if there is time.
ATTEMPTS = 3


@dataclass(frozen=True)
class Measured:
    """The times of the sides, by name in the order of the call, the conditions, and the reasons why
    the times are noisy (empty: they are not). ``attempts``: how often it was measured; the first
    attempt without noise counts, or else the one with the least error."""

    times: Mapping[str, Timing]
    conditions: Conditions
    noise: tuple[str, ...]
    attempts: int = 1

    @property
    def _error(self) -> tuple[bool, float]:
        return bool(self.noise), sum(timing.error for timing in self.times.values())


@dataclass(frozen=True)
class _Sample:
    """A batch: seconds for one call, and the part of the batch in which threads waited for a core
    (summed over threads), None if unknown."""

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
    apart: bool = True,
) -> Measured:
    """Times the calls in turn for about ``seconds`` per side, less when medians are stable before,
    and up to `ATTEMPTS` times as long while they are noisy.

    ``threads`` is the number of host threads in a call: more than one spin for a while after it,
    and the sides are kept ``apart``, unless the same threads run all of them.
    ``batch`` times calls that return before their work is done.
    """
    host = host or Host()
    run = _Run(sides, seconds, threads, batch or _batch(host), host, apart)
    last = host.now() + ATTEMPTS * seconds * len(sides)
    attempts = [run.attempt()]
    while attempts[-1].noise and len(attempts) < ATTEMPTS and host.now() < last:
        attempts.append(run.attempt())
    best = min(attempts, key=lambda attempt: attempt._error)
    return Measured(best.times, best.conditions, best.noise, len(attempts))


class _Run:
    """One measurement: its sides, and the number of calls of each in a batch."""

    def __init__(
        self,
        sides: Mapping[str, Call],
        seconds: float,
        threads: int,
        batch: Batch,
        host: Host,
        apart: bool,
    ) -> None:
        self.sides, self.threads, self.batch, self.host = sides, threads, batch, host
        self.seconds = seconds * len(sides)
        self.pause = apart and threads > 1 and len(sides) > 1
        length = PAUSED_BATCH_SECONDS if self.pause else BATCH_SECONDS
        self.counts = {name: _calibrate(call, length, batch) for name, call in sides.items()}

    def attempt(self) -> Measured:
        """Rounds until medians are stable or time is up, and their result."""
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
                break  # a call takes so long that few rounds must do
        counting, undisturbed = _counting(samples)
        times = {name: Timing.of(seconds) for name, seconds in counting.items()}
        late = {name: statistics.median(_late(seconds)) for name, seconds in counting.items()}
        conditions = measured_conditions(
            *(host.cores, self.threads, host.now() - start, before, host.usage()),
            [speed for speed in speeds if speed is not None],
            _disturbed([sample for side in samples.values() for sample in side]),
        )
        return Measured(times, conditions, noise_reasons(times, late, conditions, undisturbed))

    def _sample(self, call: Call, count: int) -> _Sample:
        if self.pause:
            self.host.sleep(PAUSE_SECONDS)
        _warm(call, WARM_SECONDS if self.pause else 0.0, self.host)
        before = self.host.waited()
        seconds = self.batch(call, count)
        after = self.host.waited()
        if before is None or after is None:
            return _Sample(seconds, None)
        # The waiting of a thread that ended in between is no longer counted.
        return _Sample(seconds, max(0.0, after - before) / (seconds * count))


def fastest(calls: list[Call], batch: Batch | None = None, host: Host | None = None) -> Call:
    """The fastest of several calls that do the same, measured briefly."""
    if len(calls) == 1:
        return calls[0]
    named = {str(i): call for i, call in enumerate(calls)}
    times = measure(named, seconds=0.05, batch=batch, host=host).times
    return calls[int(min(times, key=lambda name: times[name].median))]


def call_overhead(call: Call) -> float:
    """Seconds for one call of a kernel that does next to nothing, the median of batches."""
    call()
    batch = _batch(Host())
    return statistics.median(batch(call, 200) for _ in range(15))


def _counting(
    samples: Mapping[str, Sequence[_Sample]],
) -> tuple[dict[str, list[float]], bool]:
    """The seconds of the batches that count, and whether they are undisturbed: those in which no
    thread waited for a core, or none for long, if half of each side and enough of it remain."""
    for limit in (DISTURBED, TOLERABLE):
        counting = {
            name: [sample.seconds for sample in side if not sample.disturbed(limit)]
            for name, side in samples.items()
        }
        # If most were disturbed, the remaining ones ran in caches that others had just used.
        if all(
            2 * len(counting[name]) >= len(side)
            and len(counting[name]) >= min(MIN_ROUNDS, len(side))
            for name, side in samples.items()
        ):
            return counting, True
    return {name: [s.seconds for s in side] for name, side in samples.items()}, False


def _disturbed(samples: Sequence[_Sample]) -> float | None:
    """The part of the batches in which threads waited for a core for longer than tolerable."""
    watched = [sample for sample in samples if sample.waited is not None]
    return (
        sum(sample.disturbed(TOLERABLE) for sample in watched) / len(watched) if watched else None
    )


def _late(times: Sequence[float]) -> Sequence[float]:
    return times[len(times) // 2 :]


def _warm(call: Call, seconds: float, host: Host) -> None:
    """Wake the threads, and fill the caches again."""
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
    """The batch of a call that returns when its work is done."""

    def batch(call: Call, count: int) -> float:
        start = host.now()
        for _ in range(count):
            call()
        return (host.now() - start) / count

    return batch


def _stable(samples: Mapping[str, Sequence[_Sample]]) -> bool:
    """Whether enough batches of each side count, and the median of their second half is that of all
    of them."""
    counting, undisturbed = _counting(samples)
    if not undisturbed:
        return False
    for seconds in counting.values():
        whole = statistics.median(seconds)
        if abs(statistics.median(_late(seconds)) - whole) > STABLE * whole:
            return False
        if len(seconds) < 2 * MIN_ROUNDS:
            return False
    return True
