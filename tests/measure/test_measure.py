"""Measuring beside others: which times count, when they are noisy, which peaks cannot be. Machines
here are invented, with the faults that are looked for, but for one test of what Linux says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from measurements import PEAKS
from tilewright.dtypes import bf16, f32, f64, s8, u8
from tilewright.measure import host as hosts
from tilewright.measure.host import Host, Unwatched, Usage
from tilewright.measure.loops import INSTRUCTIONS, compute_code
from tilewright.measure.peaks import Roof, best_run, contradictions, measure_peaks
from tilewright.measure.rounds import ATTEMPTS, MIN_ROUNDS, Call, Measured, fastest, measure
from tilewright.measure.verdict import Conditions, Timing
from tilewright.targets.x86.assemble import assembly


class Invented(Host):
    """A machine of two cores whose time passes by work and sleep alone.

    ``slowness(now)`` is by how much work takes longer at a moment, ``waiting(now)`` the part of it
    in which a thread waits for a core, ``others`` the cores that others have and ``stolen`` the
    part of all that another virtual machine has; ``speed_at`` is the clock's.
    """

    cores = 2

    def __init__(self) -> None:
        self.time = self.wait = self.busy = self.own = self.gone = 0.0
        self.slowness: Callable[[float], float] = lambda now: 1.0
        self.waiting: Callable[[float], float] = lambda now: 0.0
        self.others: Callable[[float], float] = lambda now: 0.0
        self.speed_at: Callable[[float], float] = lambda now: 100.0
        self.stolen = 0.0
        self.says_waited = self.says_usage = True

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self._pass(seconds, own=0.0)

    def waited(self) -> float | None:
        return self.wait if self.says_waited else None

    def usage(self) -> Usage | None:
        return Usage(self.busy, self.own, self.gone) if self.says_usage else None

    def speed(self) -> float | None:
        return self.speed_at(self.time)

    def work(
        self, seconds: float, slowed: Callable[[float], float] = lambda slowness: slowness
    ) -> Callable[[], None]:
        """A call that takes so long on a quiet machine, and is ``slowed`` by its own factor."""

        def call() -> None:
            taken = seconds * slowed(self.slowness(self.time))
            self.wait += taken * self.waiting(self.time)
            self._pass(taken, own=taken)

        return call

    def _pass(self, seconds: float, own: float) -> None:
        self.own += own
        self.busy += own + seconds * self.others(self.time)
        self.gone += seconds * self.stolen * self.cores
        self.time += seconds


def compare(host: Invented, threads: int = 1, seconds: float = 1.0) -> Measured:
    """Ours, which takes 1 ms, and a peer of 2 ms that others slow down more."""
    sides = {
        "ours": host.work(0.001),
        "peer": host.work(0.002, lambda slowness: slowness**2),
    }
    return measure(sides, seconds=seconds, threads=threads, host=host)


def ratio(found: Measured) -> float:
    return found.times["peer"].median / found.times["ours"].median


@pytest.mark.parametrize("threads", [1, 2])
def test_a_quiet_machine(threads: int) -> None:
    result = compare(Invented(), threads)
    assert ratio(result) == pytest.approx(2.0)
    assert result.noise == () and result.attempts == 1
    for times in result.times.values():
        assert times.spread == pytest.approx(0, abs=1e-9) and times.rounds >= MIN_ROUNDS
    assert result.conditions.others == pytest.approx(0, abs=1e-9)
    assert result.conditions.disturbed == 0 and result.conditions.stolen == 0


def test_sides_of_the_same_threads_need_no_pause() -> None:
    host = Invented()
    sides = {"one": host.work(0.001), "other": host.work(0.002)}
    result = measure(sides, seconds=1.0, threads=2, host=host, apart=False)
    assert result.times["other"].median == pytest.approx(0.002)
    assert host.time == pytest.approx(host.own)
    compare(host, threads=2)
    assert host.time > host.own + 1


def test_a_busy_process_on_all_cores_is_noisy() -> None:
    # Times that agree with each other, round after round, and are wrong by factors that differ.
    host = Invented()
    host.slowness, host.waiting, host.others = lambda _: 7.0, lambda _: 0.8, lambda _: 2.0
    result = compare(host, threads=2)
    assert ratio(result) == pytest.approx(14.0)
    assert result.times["ours"].error == pytest.approx(0, abs=1e-9)
    assert result.noise == (
        "threads waited for a core in 100% of the batches; others used 2.0 of 2 cores",
    )
    assert result.attempts > 1


def test_where_nobody_says_who_waited_the_load_counts() -> None:
    host = Invented()
    host.slowness, host.others, host.says_waited = lambda _: 7.0, lambda _: 1.0, False
    assert compare(host, threads=2).noise == ("2 of 2 cores wanted; others used 1.0 of 2 cores",)
    assert compare(host, threads=1).noise == ()  # there is a core left


def test_where_nobody_says_anything_the_times_count() -> None:
    host = Invented()
    host.slowness = lambda now: 1 + 3 * (now * 61 % 1)
    host.says_waited = host.says_usage = False
    result = compare(host)
    assert result.conditions.others is result.conditions.disturbed is None
    assert len(result.noise) == 1 and result.noise[0].startswith("the ratio to peer is known to ")
    alone = measure({"ours": host.work(0.02)}, seconds=1.0, host=host)
    assert len(alone.noise) == 1 and alone.noise[0].startswith("the time is known to ")


def test_batches_in_which_nobody_waited_count_alone() -> None:
    # In two of three moments of 70 ms, somebody else has the core most of the time.
    host = Invented()

    def taken(now: float) -> bool:
        return int(now / 0.07) % 3 != 0

    host.slowness = lambda now: 5.0 if taken(now) else 1.0
    host.waiting = lambda now: 0.8 if taken(now) else 0.0
    result = compare(host)
    assert ratio(result) == pytest.approx(2.0)
    assert result.noise == ()
    assert result.conditions.disturbed is not None and result.conditions.disturbed > 0.1
    # What is left out is chosen by who waited, not by how long it took.
    host.says_waited = host.says_usage = False
    assert compare(host).noise


@pytest.mark.parametrize("threads", [1, 2])
def test_moments_of_the_system_are_no_noise(threads: int) -> None:
    # On all cores, threads always wait for something: 2% of each batch make it as much longer.
    host = Invented()
    host.waiting, host.slowness = lambda _: 0.02, lambda _: 1.02
    result = compare(host, threads)
    assert result.noise == () and ratio(result) == pytest.approx(2.0, rel=0.05)
    host.waiting = lambda _: 0.08
    assert compare(host, threads).noise


def test_too_few_batches_in_which_nobody_waited() -> None:
    host = Invented()
    host.waiting = lambda now: 0.8 if now % 1 > 0.05 else 0.0
    (reason,) = compare(host).noise
    assert reason.startswith("threads waited for a core in ")


def test_the_lucky_few_are_not_enough() -> None:
    # Many batches in which nobody waited, but more in which somebody did.
    host = Invented()
    host.waiting = lambda now: 0.8 if now % 0.3 < 0.2 else 0.0
    (reason,) = compare(host).noise
    assert reason.startswith("threads waited for a core in 6")


def test_measured_again_until_it_is_quiet() -> None:
    host = Invented()
    host.waiting = lambda now: 0.5 if now < 2.5 else 0.0
    host.slowness = lambda now: 2.0 if now < 2.5 else 1.0
    result = compare(host)
    assert result.noise == () and result.attempts == 2
    assert ratio(result) == pytest.approx(2.0)
    # There is no time for that.
    host = Invented()
    host.waiting = lambda now: 0.5
    assert compare(host, seconds=0.0).attempts == 1


def test_of_noisy_attempts_that_with_the_least_error_counts() -> None:
    host = Invented()
    host.waiting = lambda now: 0.5
    host.slowness = lambda now: 1.0 if 2.1 < now < 4.2 else 1 + (now * 61 % 1)
    result = compare(host)
    assert result.noise and result.attempts == ATTEMPTS
    assert result.times["ours"].median == pytest.approx(0.001)


def test_another_virtual_machine() -> None:
    host = Invented()
    host.stolen = 0.2
    assert compare(host).noise == ("another virtual machine had 20% of the cores",)


def test_the_clock() -> None:
    host = Invented()
    host.speed_at = lambda now: 100.0 if now % 0.1 < 0.05 else 80.0
    assert compare(host).noise == ("the clock moved by 25%",)
    # One probe of many that was interrupted says nothing.
    host = Invented()
    host.speed_at = lambda now: 30.0 if 0.05 < now < 0.06 else 100.0
    assert compare(host).noise == ()


def test_more_threads_than_cores() -> None:
    assert compare(Invented(), threads=3).noise == ("3 threads on 2 cores",)


def test_a_ratio_that_moves() -> None:
    host = Invented()
    host.slowness = lambda now: 1 + now / 20
    result = compare(host, seconds=4.0)
    assert result.times["ours"].error < 0.03
    (reason,) = result.noise
    assert reason.startswith("the ratio to peer still moved, by ")


def test_a_ratio_that_the_best_times_do_not_have() -> None:
    host = Invented()
    host.slowness = lambda now: 1.0 if now % 0.2 < 0.03 else 1.3
    (reason,) = compare(host).noise
    assert reason == "the ratio to peer is 30% off that of the best times"


def test_work_of_other_devices() -> None:
    host = Unwatched()
    assert (host.waited(), host.usage(), host.speed()) == (None, None, None)


def test_the_error_of_a_median() -> None:
    assert Timing.of([3.0]) == Timing(3.0, 3.0, 0.0, 0.0, 1)
    result = Timing.of([float(i) for i in range(101, 0, -1)])
    assert (result.median, result.best, result.rounds) == (51.0, 1.0, 101)
    assert result.spread == pytest.approx(50 / 51)
    # Ranks 40 to 61: those between which the median is in 95 of 100 samples.
    assert result.error == pytest.approx(11 / 51)


def test_the_fastest_way() -> None:
    host = Invented()
    calls: list[Call] = [host.work(0.003), host.work(0.001), host.work(0.002)]
    assert fastest(calls, host=host) is calls[1]
    assert fastest(calls[:1], host=host) is calls[0]


# What Linux says.


@contextmanager
def on_one_core() -> Iterator[int]:
    """This thread, and what it starts, on one core."""
    before = os.sched_getaffinity(0)
    core = min(before)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.skipif(Host().waited() is None, reason="this system does not say who waited")
def test_waiting_for_a_core() -> None:
    host = Host()
    with on_one_core():
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            before, end = host.waited(), time.monotonic() + 5
            # Two that want one core: one of them waits.
            while (waited := host.waited() or 0.0) - (before or 0.0) < 0.01:
                assert time.monotonic() < end, "nobody waited"
        finally:
            other.kill()
            other.wait()
    assert waited > (before or 0.0)


@pytest.mark.skipif(Host().waited() is None, reason="this system does not say who waited")
def test_a_busy_process_on_the_core() -> None:
    """The real clock, and a ratio that is known: what is off by more than a tenth is marked."""

    def once() -> None:
        for _ in range(5000):
            pass

    def twice() -> None:
        for _ in range(10_000):
            pass

    with on_one_core():
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            result = measure({"ours": once, "peer": twice}, seconds=0.1)
        finally:
            other.kill()
            other.wait()
    assert result.noise or 1.8 < ratio(result) < 2.2
    assert result.conditions.disturbed is not None and result.conditions.disturbed > 0
    assert result.conditions.cores == 1


def test_what_the_system_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 5000 600 7 8 90 40 4\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    monkeypatch.setattr(hosts, "_STAT", stat)
    monkeypatch.setattr(hosts, "_TASKS", tmp_path / "task")
    result, tick = Host().usage(), 1 / os.sysconf("SC_CLK_TCK")
    assert result is not None
    assert result.busy == pytest.approx((100 + 20 + 30 + 7 + 8) * tick)
    assert result.stolen == pytest.approx(90 * tick) and result.own > 0
    for number, line in ((1, "5 2000000000 3\n"), (2, "5 500000000 3\n")):
        (tmp_path / "task" / str(number)).mkdir(parents=True)
        (tmp_path / "task" / str(number) / "schedstat").write_text(line)
    assert Host().waited() == pytest.approx(2.5)
    (tmp_path / "task" / "1" / "schedstat").write_text("\n")
    stat.write_text("cpu 1 2\n")
    assert (Host().waited(), Host().usage()) == (None, None)
    monkeypatch.setattr(hosts, "_TASKS", tmp_path / "none")
    stat.unlink()
    assert (Host().waited(), Host().usage()) == (None, None)


def test_the_speed_of_a_core() -> None:
    speed = Host().speed()
    assert speed is None or speed > 0


# Peaks.


def test_peaks_by_type() -> None:
    assert [PEAKS.of(type_) for type_ in (f32, bf16, u8, s8, f64)] == [100, 200, 400, 400, 100]


def test_the_roof() -> None:
    def close(roof: Roof, seconds: float, level: str) -> bool:
        return roof.seconds == pytest.approx(seconds) and roof.level == level

    # 1x4096 by 4096x4096: half a flop for each byte, which memory does not give so fast.
    weights = 4 * (4096**2 + 2 * 4096)
    assert close(PEAKS.roof(2 * 4096**2, weights, f32), weights / 20e9, "DRAM")
    assert close(PEAKS.roof(2 * 4096**3, 12 * 4096**2, f32), 2 * 4096**3 / 100e9, "")
    # No arithmetic that counts, in the cache that holds it; two threads have two of those.
    assert close(PEAKS.roof(0, 2**16, None), 2**16 / 100e9, "L2")
    assert replace(PEAKS, threads=2).roof(0, 2**16, None).level == "L1"


def test_peaks_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.measure.peaks._SECONDS", 1e-4)
    peaks = measure_peaks(2)
    assert peaks.threads == 2
    assert set(peaks.bandwidth) == {"L1", "L2", "L3", "DRAM"}
    assert all(value > 0 for value in (*peaks.gflops.values(), *peaks.bandwidth.values()))


def test_a_peak_is_measured_until_nobody_waits() -> None:
    host = Invented()
    work = host.work(0.01)

    def run() -> float:
        start = host.now()
        work()
        return host.now() - start

    def best() -> tuple[float, bool]:
        seconds, alone = best_run(run, host)
        return round(1e3 * seconds, 6), alone

    assert best() == (10.0, True)
    assert host.now() == pytest.approx(0.09)
    host.waiting = lambda now: 0.5 if now < 0.3 else 0.0
    host.slowness = lambda now: 2.0 if now < 0.3 else 1.0
    assert best() == (10.0, True)
    host.waiting = lambda now: 0.5
    assert best() == (10.0, False)


def test_peaks_that_contradict_each_other() -> None:
    assert contradictions(PEAKS) == contradictions(PEAKS, PEAKS) == []
    slow = replace(PEAKS, bandwidth={**PEAKS.bandwidth, "L2": 30.0})
    assert contradictions(slow) == ["L3 50 above L2 30 GB/s"]
    assert contradictions(PEAKS, slow) == ["L2 100 before, 30 GB/s after"]
    narrow = replace(PEAKS, gflops={"f32": 100.0, "bf16": 60.0, "f64": 120.0})
    assert contradictions(narrow) == [
        "f64 120 above f32 100 GFLOP/s",
        "f32 100 above bf16 60 GFLOP/s",
    ]
    assert contradictions(replace(PEAKS, disturbed=("f32",))) == [
        "f32: threads waited for a core whenever it was measured"
    ]


def test_conditions_that_nobody_knows() -> None:
    assert Conditions(2, 1).others is None


@pytest.mark.parametrize(("kind", "name"), [("bf16", "tdpbf16ps"), ("int8", "tdpbusd")])
def test_the_peak_of_tiles_is_of_products_in_registers(kind: str, name: str) -> None:
    instruction = INSTRUCTIONS[kind][0]
    text = assembly(compute_code(instruction), "sapphirerapids", "+amx-tile,+amx-bf16,+amx-int8")
    assert text.count(f"{name}\t") == 12 and "tileload" not in text
    assert instruction.multiply_adds == {"bf16": 8192, "int8": 16384}[kind]
