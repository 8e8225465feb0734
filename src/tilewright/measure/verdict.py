"""Reasons why measured times are noisy.

Times that agree with each other may still be wrong together: beside a busy process, two libraries
whose threads wait for each other are slowed down by different factors, round after round. So the
load of the machine counts as well as how far the times are apart.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.measure.host import Usage

# How far a ratio may be off: one that is not marked as noisy is meant to be right to 10%.
TOLERANCE = 0.1
# Batches in which threads waited no longer than this part of them count. With several threads on
# all cores the system always disturbs some: where too few batches remain, the second limit holds,
# half of what a ratio may be off, for the waiting of all threads together.
DISTURBED, TOLERABLE = 0.01, TOLERANCE / 2
# Part of all cores that another virtual machine may have had.
_STOLEN = 0.05
# Cores that others may use beyond the free ones: the system itself needs a little.
_SLACK = 0.1


@dataclass(frozen=True)
class Timing:
    """Seconds for one call: the ``median`` and the ``best`` of ``rounds`` batches; ``spread``: the
    width of the middle half, relative to the median; ``error``: how far off the median may be
    (95%), relative to it."""

    median: float
    best: float
    spread: float
    error: float
    rounds: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """The timing of batches, given the seconds for one call in each."""
        ordered = sorted(seconds)
        count, middle = len(ordered), statistics.median(ordered)
        # Each batch is below the true median with probability 1/2, so ranks bound the error.
        reach = 0.98 * math.sqrt(count)
        low = max(0, math.floor(count / 2 - reach))
        high = min(count - 1, math.ceil(count / 2 + reach))
        error = max(middle - ordered[low], ordered[high] - middle)
        quarter = count // 4
        spread = ordered[count - 1 - quarter] - ordered[quarter]
        return cls(middle, ordered[0], spread / middle, error / middle, count)


@dataclass(frozen=True)
class Conditions:
    """The state of the machine while something was timed; None where unknown.

    ``cores`` it has and ``threads`` were wanted. ``others`` are the cores that other processes
    used and ``stolen`` the part of all cores that another virtual machine had, both on average.
    ``disturbed`` is the part of the batches in which our threads waited for a core for longer than
    `TOLERABLE`. ``clock_low`` and ``clock_high`` bound the rate of a core between rounds (GFLOP/s),
    without the outermost tenths.
    """

    cores: int
    threads: int
    others: float | None = None
    stolen: float | None = None
    disturbed: float | None = None
    clock_low: float | None = None
    clock_high: float | None = None


def measured_conditions(
    cores: int,
    threads: int,
    seconds: float,
    before: Usage | None,
    after: Usage | None,
    speeds: Sequence[float],
    disturbed: float | None,
) -> Conditions:
    """The conditions of ``seconds`` of measuring, with the ``speeds`` of a core between rounds."""
    others = stolen = low = high = None
    if before is not None and after is not None and seconds > 0:
        busy, self_busy = after.busy - before.busy, after.own - before.own
        others = max(0.0, busy - self_busy) / seconds
        stolen = max(0.0, after.stolen - before.stolen) / seconds / cores
    if speeds:
        ordered = sorted(speeds)
        outer = len(ordered) // 10
        low, high = ordered[outer], ordered[-1 - outer]
    return Conditions(cores, threads, others, stolen, disturbed, low, high)


def noise_reasons(
    times: Mapping[str, Timing],
    late: Mapping[str, float],
    conditions: Conditions,
    undisturbed: bool,
) -> tuple[str, ...]:
    """The reasons, in words, why ``times`` are noisy.

    ``late`` are the medians of the second half of the batches. ``undisturbed``: in all batches that
    count, no thread waited for a core.
    """
    return (*_machine_reasons(conditions, undisturbed), *_time_reasons(times, late))


def _machine_reasons(conditions: Conditions, undisturbed: bool) -> Iterator[str]:
    cores, threads, others = conditions.cores, conditions.threads, conditions.others
    used = "" if others is None else f"; others used {others:.1f} of {cores} cores"
    if threads > cores:
        yield f"{threads} threads on {cores} core{'s' if cores > 1 else ''}"
    elif conditions.disturbed is not None:
        if not undisturbed:
            share = 100 * conditions.disturbed
            yield f"threads waited for a core in {share:.0f}% of the batches{used}"
    elif others is not None and threads + others > cores + _SLACK:
        yield f"{threads} of {cores} cores wanted{used}"
    if conditions.stolen is not None and conditions.stolen > _STOLEN:
        yield f"another virtual machine had {100 * conditions.stolen:.0f}% of the cores"
    low, high = conditions.clock_low, conditions.clock_high
    if low is not None and high is not None and high > (1 + TOLERANCE) * low:
        yield f"the clock moved by {100 * (high / low - 1):.0f}%"


def _time_reasons(times: Mapping[str, Timing], late: Mapping[str, float]) -> Iterator[str]:
    first, *others = times
    mine = times[first]
    if not others and mine.error > TOLERANCE:
        yield f"the time is known to {_percent(mine.error)} only"
    for name in others:
        theirs = times[name]
        ratio = theirs.median / mine.median
        error = mine.error + theirs.error
        moved = abs(late[name] / late[first] / ratio - 1)
        # The best time of a side is the undisturbed one.
        apart = _apart(ratio, theirs.best / mine.best)
        if error > TOLERANCE:
            yield f"the ratio to {name} is known to {_percent(error)} only"
        elif moved > TOLERANCE / 2:
            yield f"the ratio to {name} still moved, by {_percent(moved)}"
        elif apart > TOLERANCE:
            yield f"the ratio to {name} is {_percent(apart)} off that of the best times"


def _apart(a: float, b: float) -> float:
    """The relative difference of two positive numbers."""
    return max(a, b) / min(a, b) - 1


def _percent(part: float) -> str:
    return f"{100 * part:.0f}%"
