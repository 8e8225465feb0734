"""What speaks against times that were measured: then they are noisy, and somebody should know.

Times that agree with each other may still be wrong together: beside a busy process, two libraries
whose threads wait for each other are slowed down by different factors, round after round. So what
the machine did counts as well as how far the times are apart.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.measure.host import Usage

# How far a ratio may be off: what is not marked is meant to hold to a tenth.
TOLERANCE = 0.1
# Batches in which threads waited no longer than this part of them count. Where they are too few,
# as several threads on all cores always meet something of the system's, those count that waiting,
# of all threads together, made longer by no more than half of what a ratio may be off.
DISTURBED, TOLERABLE = 0.01, TOLERANCE / 2
# Of all cores, what another virtual machine may have had.
_STOLEN = 0.05
# Cores that others may have beyond those that are left: the system itself does something, too.
_SLACK = 0.1


@dataclass(frozen=True)
class Timing:
    """Seconds for one call: the median of batches, the best; ``spread``: how far apart the middle
    half of them is, as a part of the median; ``error``: how far off the median may be (95%), as a
    part of it; and how many batches there were."""

    median: float
    best: float
    spread: float
    error: float
    rounds: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """That of batches, of each the seconds for one call."""
        ordered = sorted(seconds)
        count, middle = len(ordered), statistics.median(ordered)
        # Each batch is below the true median as likely as not, so ranks tell how far it may be.
        reach = 0.98 * math.sqrt(count)
        low = max(0, math.floor(count / 2 - reach))
        high = min(count - 1, math.ceil(count / 2 + reach))
        error = max(middle - ordered[low], ordered[high] - middle)
        quarter = count // 4
        spread = ordered[count - 1 - quarter] - ordered[quarter]
        return cls(middle, ordered[0], spread / middle, error / middle, count)


@dataclass(frozen=True)
class Conditions:
    """What the machine did while something was timed; None: nobody knows.

    ``cores`` it has and ``threads`` were wanted. ``others`` are the cores that other processes had
    and ``stolen`` the part of all that another virtual machine had, both on average. ``disturbed``
    is the part of the batches in which our threads waited for a core, longer than `TOLERABLE`.
    ``clock_low`` and ``clock_high`` are what a core did between rounds (GFLOP/s), but for the
    outermost tenths.
    """

    cores: int
    threads: int
    others: float | None = None
    stolen: float | None = None
    disturbed: float | None = None
    clock_low: float | None = None
    clock_high: float | None = None


def conditions(
    cores: int,
    threads: int,
    seconds: float,
    before: Usage | None,
    after: Usage | None,
    speeds: Sequence[float],
    disturbed: float | None,
) -> Conditions:
    """Those of so many ``seconds``, with the ``speeds`` of a core now and then."""
    others = stolen = low = high = None
    if before is not None and after is not None and seconds > 0:
        busy, own = after.busy - before.busy, after.own - before.own
        others = max(0.0, busy - own) / seconds
        stolen = max(0.0, after.stolen - before.stolen) / seconds / cores
    if speeds:
        ordered = sorted(speeds)
        outer = len(ordered) // 10
        low, high = ordered[outer], ordered[-1 - outer]
    return Conditions(cores, threads, others, stolen, disturbed, low, high)


def against(
    times: Mapping[str, Timing], late: Mapping[str, float], found: Conditions, undisturbed: bool
) -> tuple[str, ...]:
    """The reasons, in words, why ``times`` are noisy; none where nothing speaks against them.

    ``late`` are the medians of the second half of the batches. ``undisturbed``: in all batches that
    count, no thread waited for a core.
    """
    return (*_of_the_machine(found, undisturbed), *_of_the_times(times, late))


def _of_the_machine(found: Conditions, undisturbed: bool) -> Iterator[str]:
    cores, threads, others = found.cores, found.threads, found.others
    used = "" if others is None else f"; others used {others:.1f} of {cores} cores"
    if threads > cores:
        yield f"{threads} threads on {cores} core{'s' if cores > 1 else ''}"
    elif found.disturbed is not None:
        if not undisturbed:
            yield f"threads waited for a core in {100 * found.disturbed:.0f}% of the batches{used}"
    elif others is not None and threads + others > cores + _SLACK:
        yield f"{threads} of {cores} cores wanted{used}"
    if found.stolen is not None and found.stolen > _STOLEN:
        yield f"another virtual machine had {100 * found.stolen:.0f}% of the cores"
    low, high = found.clock_low, found.clock_high
    if low is not None and high is not None and high > (1 + TOLERANCE) * low:
        yield f"the clock moved by {100 * (high / low - 1):.0f}%"


def _of_the_times(times: Mapping[str, Timing], late: Mapping[str, float]) -> Iterator[str]:
    first, *others = times
    mine = times[first]
    if not others and mine.error > TOLERANCE:
        yield f"the time is known to {_percent(mine.error)} only"
    for name in others:
        theirs = times[name]
        ratio = theirs.median / mine.median
        error = mine.error + theirs.error
        moved = abs(late[name] / late[first] / ratio - 1)
        # The best is what a side does when nothing is in its way.
        apart = _apart(ratio, theirs.best / mine.best)
        if error > TOLERANCE:
            yield f"the ratio to {name} is known to {_percent(error)} only"
        elif moved > TOLERANCE / 2:
            yield f"the ratio to {name} still moved, by {_percent(moved)}"
        elif apart > TOLERANCE:
            yield f"the ratio to {name} is {_percent(apart)} off that of the best times"


def _apart(a: float, b: float) -> float:
    """By which part the greater is above the other."""
    return max(a, b) / min(a, b) - 1


def _percent(part: float) -> str:
    return f"{100 * part:.0f}%"
