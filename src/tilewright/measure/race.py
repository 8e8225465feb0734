"""Two calls in turn, until it is clear which of them takes longer.

A round times a batch of each, one after the other, so that what disturbs the machine meets both.
What counts is the ratio of a round. Rounds in which a thread waited for a core are left out, where
enough others remain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tilewright.measure.host import Host
from tilewright.measure.verdict import DISTURBED

Call = Callable[[], object]
Rounds = Sequence[tuple[float, ...]]

# Seconds of a batch: long beside the cost of reading a clock, short beside a time slice. A round is
# short, as others build nothing meanwhile.
BATCH_SECONDS = 0.0005
# Of so few rounds the median is within those of all of them, in 97% of cases; and deviations of
# the normal distribution for 95%, and 99.9%.
_FEWEST = 6
_LIKELY, _SURE = 1.96, 3.3
MOST_ROUNDS, _MOST_DISTURBED = 41, 200
# A challenger that is so much slower in its best round is not timed any more.
_HOPELESS, _HOPELESS_ROUNDS = 1.1, 3
# Of one that looks so much faster, it is worth so many times the time to know.
_PROMISING, _PATIENCE = 0.98, 5.0
# Ratios that differ less from 1 are not told from it.
CLEAR = 0.005


@dataclass(frozen=True)
class Race:
    """The seconds of a call by round: of the challenger, ``times``, and of what it was timed
    beside, ``others`` (empty: nothing). ``disturbed`` rounds are left out."""

    times: tuple[float, ...]
    others: tuple[float, ...]
    disturbed: int = 0

    @property
    def seconds(self) -> float:
        """The challenger's median."""
        return median(self.times)

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: below 1, the challenger is faster."""
        return median(self._ratios) if self.others else 1.0

    @property
    def bounds(self) -> tuple[float, float]:
        """Where that median is in 95% of cases."""
        return self._bounds(_LIKELY)

    @property
    def won(self) -> bool:
        """Whether the challenger is faster, clearly: of hundreds that are as fast, some look faster
        by chance, so that this is to be surer."""
        return self._bounds(_SURE)[1] < 1 - CLEAR

    @property
    def lost(self) -> bool:
        """Whether it is not clearly faster, and more rounds would not show that it is."""
        return self.bounds[0] > 1 - CLEAR

    def _bounds(self, deviations: float) -> tuple[float, float]:
        """By ranks: each round's ratio is below the median as often as above."""
        ordered = sorted(self._ratios) or [1.0]
        count = len(ordered)
        if count < _FEWEST:
            return 0.0, math.inf
        reach = deviations / 2 * math.sqrt(count)
        low, high = math.floor(count / 2 - reach), math.ceil(count / 2 + reach)
        return ordered[max(0, low)], ordered[min(count - 1, high)]

    @property
    def _ratios(self) -> list[float]:
        return [mine / other for mine, other in zip(self.times, self.others, strict=True)]


def race(
    challenger: Call,
    incumbent: Call | None,
    *,
    seconds: float,
    before: Call | None = None,
    host: Host | None = None,
) -> Race:
    """Times ``challenger`` beside ``incumbent``, or alone, for about so many ``seconds`` at most.
    ``before`` is run before each call that is timed, which is timed by itself then."""
    sides = [challenger] if incumbent is None else [challenger, incumbent]
    host = host or Host()
    start = host.now()
    counts = [_count(side, before, host) for side in sides]
    kept: list[tuple[float, ...]] = []
    left_out: list[tuple[float, ...]] = []
    while len(kept) < MOST_ROUNDS and len(left_out) < _MOST_DISTURBED:
        waited = host.waited()
        begun = host.now()
        # Who is first finds the caches as the other left them: in turns.
        order = list(enumerate(sides))[:: -1 if (len(kept) + len(left_out)) % 2 else 1]
        times = dict(_timed(number, side, counts[number], before, host) for number, side in order)
        after = host.waited()
        lost = 0.0 if waited is None or after is None else after - waited
        undisturbed = lost <= DISTURBED * (host.now() - begun)
        (kept if undisturbed else left_out).append(tuple(times[n] for n in range(len(sides))))
        if _decided(kept, left_out, (host.now() - start) / seconds):
            break
    disturbed = len(left_out)
    if len(kept) < _FEWEST:
        kept, disturbed = kept + left_out, 0
    columns = list(zip(*kept, strict=True))
    return Race(columns[0], columns[1] if incumbent is not None else (), disturbed)


def _decided(kept: Rounds, left_out: Rounds, used: float) -> bool:
    """Whether no more rounds are wanted: enough are kept, or the time is ``used``. One that looks
    faster gets more of it, to say so."""
    late = used > 1
    if len(kept) < _HOPELESS_ROUNDS:
        return late and len(kept) + len(left_out) >= 2 * _FEWEST
    columns = list(zip(*kept, strict=True))
    if len(columns) == 1:
        return late or len(kept) >= 3 * _FEWEST
    if min(columns[0]) > _HOPELESS * median(columns[1]):
        return True
    if len(kept) < _FEWEST:
        return False
    so_far = Race(columns[0], columns[1])
    if so_far.lost or (so_far.won and len(kept) >= 2 * _FEWEST):
        return True
    return used > _PATIENCE or (late and so_far.ratio > _PROMISING)


def _count(side: Call, before: Call | None, host: Host) -> int:
    """Calls of a batch, after one that is not timed."""
    side()
    if before is not None:
        return 1
    start = host.now()
    side()
    return max(1, min(10_000, int(BATCH_SECONDS / max(1e-7, host.now() - start))))


def _timed(
    number: int, side: Call, count: int, before: Call | None, host: Host
) -> tuple[int, float]:
    if before is not None:
        before()
    start = host.now()
    for _ in range(count):
        side()
    return number, (host.now() - start) / count
