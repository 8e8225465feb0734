"""Winners of a database, measured again beside the default and what `bench` compares with.

What a database says was measured on one day, on one machine, in the company of that day. Here the
sides take turns in rounds, in a process of their own, and the figures of the rounds
say whether the winner is still clearly faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.bench.benchmark import fastest_peers
from tilewright.bench.peer import find_peers
from tilewright.engine.rows import Row
from tilewright.errors import ScheduleError, TilewrightError
from tilewright.measure.rounds import Call, measure
from tilewright.measure.verdict import Timing
from tilewright.ops.op import Op
from tilewright.recipes.config import parse_config
from tilewright.testing.verify import one_line
from tilewright.tune.processes import CrashedError, HungError, Last
from tilewright.tune.subject import Subject
from tilewright.tune.trial import emptied
from tilewright.tune.trials import Trials

# Seconds that building, checking and measuring one kernel may take in all.
LIMIT = 300.0
OURS, DEFAULT = "winner", "default"
# What comes of a winner, by how its time compares with the default's.
HOLDS, TIE, SLOWER, SAME = "holds", "no faster", "slower", "the default"
FAILED, SKIPPED = "failed", "skipped"


@dataclass(frozen=True)
class Replayed:
    """What came of the best ``row`` of a kernel: a ``verdict``, and ``why`` where it was skipped or
    failed. ``stored`` is the gain over the default that the database has. ``times`` are those of
    now, by side: `OURS`, `DEFAULT` and peers; ``noise`` are the reasons to doubt them."""

    row: Row
    verdict: str
    why: str = ""
    stored: float | None = None
    times: dict[str, Timing] = field(default_factory=dict)
    noise: tuple[str, ...] = ()
    no_peer: str = ""

    def gain(self, side: str = DEFAULT) -> float | None:
        """How many times as fast as ``side`` the winner is now; None where that has no time."""
        if side not in self.times:
            return None
        return self.times[side].median / self._ours.median

    @property
    def peers(self) -> list[str]:
        """The sides that are not ours."""
        return [side for side in self.times if side not in (OURS, DEFAULT)]

    @property
    def _ours(self) -> Timing:
        # A winner that is the default was not timed twice.
        return self.times.get(OURS) or self.times[DEFAULT]

    def as_json(self) -> dict[str, Any]:
        """All figures; times are seconds."""
        row = self.row
        return {
            **{name: getattr(row, name) for name in ("number", "title", "problem", "target")},
            **{name: getattr(row, name) for name in ("threads", "generator", "config")},
            "verdict": self.verdict,
            "why": self.why,
            "stored_seconds": row.seconds,
            "stored_gain": self.stored,
            "gain": self.gain(),
            "peers": {side: self.gain(side) for side in self.peers},
            "no_peer": self.no_peer,
            "times": {side: asdict(timing) for side, timing in self.times.items()},
            "noise": list(self.noise),
        }


@dataclass(frozen=True)
class _Measured:
    """What a process gives back: a fault, a reason to skip it, or times."""

    fault: str = ""
    skip: str = ""
    times: dict[str, Timing] = field(default_factory=dict)
    noise: tuple[str, ...] = ()
    no_peer: str = ""


def replay(
    trials: Trials,
    subject_of: Callable[[Row], Subject],
    seconds: float,
    executor: Executor,
) -> Replayed | None:
    """Measures the best row of ``trials`` again, for about so many ``seconds`` a side; None where
    nothing was correct. ``subject_of`` makes the subject of a row, and raises an error of the
    project where it cannot; the ``executor`` runs what may crash or hang (`campaign.local`). What
    no longer fits the row is skipped, with the reason."""
    row = trials.best
    if row is None:
        return None
    try:
        subject = subject_of(row)
    except TilewrightError as error:
        return Replayed(row, SKIPPED, one_line(error), trials.gain)
    why = _unfit(row, subject)
    if why:
        return Replayed(row, SKIPPED, why, trials.gain)
    try:
        result = executor.submit(measured, subject, row, seconds, trials.cold).result()
    except HungError as error:
        return Replayed(row, FAILED, str(error), trials.gain)
    except CrashedError as error:
        return Replayed(row, FAILED, f"its process ended: {error}", trials.gain)
    except TilewrightError as error:
        return Replayed(row, SKIPPED, one_line(error), trials.gain)
    measurement: _Measured = result.result if isinstance(result, Last) else result
    if measurement.skip or measurement.fault:
        kind = SKIPPED if measurement.skip else FAILED
        return Replayed(row, kind, measurement.skip or measurement.fault, trials.gain)
    return Replayed(
        row,
        verdict(measurement.times),
        "",
        trials.gain,
        measurement.times,
        measurement.noise,
        measurement.no_peer,
    )


def _unfit(row: Row, subject: Subject) -> str:
    """Why ``row`` is not of ``subject`` as it would be compiled here; "" where it is."""
    asked = subject.asked
    if row.generator != asked.generator:
        return f"it is of another generator: {row.generator}"
    if row.features != asked.features:
        return f"it was measured on {row.features}, and this is {asked.features}"
    if row.kernel != asked.kernel:
        return "its kernel is another one now"
    try:
        parse_config(row.config)
    except ScheduleError as error:
        return f"its config no longer parses: {one_line(error)}"
    return ""


def verdict(times: dict[str, Timing]) -> str:
    """What ``times`` say of the winner beside the default, as far as they are known."""
    if OURS not in times:
        return SAME
    ours, default = times[OURS], times[DEFAULT]
    gain, error = default.median / ours.median, default.error + ours.error
    if gain > 1 + error:
        return HOLDS
    return SLOWER if gain < 1 - error else TIE


def measured(subject: Subject, row: Row, seconds: float, cold: bool) -> _Measured | Last:
    """Builds the winner, checks what it computes, and times it beside the default and the peers: in
    a process of its own, which runs nothing else where it was wrong."""
    point, default = parse_config(row.config), subject.default()
    seed = int(row.conditions.get("seed", 0))
    try:
        built = subject.build(point)
    except ScheduleError as error:
        return _Measured(skip=f"its schedule no longer replays: {one_line(error)}")
    if row.schedule and built.schedule != row.schedule:
        return _Measured(skip="its config gives another schedule than the one that was measured")
    fault = built.fault(seed)
    if fault is not None:
        return Last(_Measured(fault=fault))
    sides: dict[str, Call] = {}
    if point != default:
        sides[OURS] = built.call(seed)
    sides[DEFAULT] = subject.build(default).call(seed)
    threads = subject.asked.threads
    what = getattr(subject, "what", None)
    why = "PyTorch has no kernels from files"
    if isinstance(what, Op):
        peers, reason = fastest_peers(find_peers, what.resolved(), threads)
        sides, why = {**sides, **peers}, reason or ""
    done = measure(sides, seconds=seconds, threads=threads, batch=_cold_batch if cold else None)
    return _Measured(times=dict(done.times), noise=done.noise, no_peer=why)


def _cold_batch(call: Call, count: int) -> float:
    """Seconds of a call that finds nothing in the caches."""
    empty, total = emptied(), 0.0
    for _ in range(count):
        empty()
        start = time.perf_counter()
        call()
        total += time.perf_counter() - start
    return total / count
