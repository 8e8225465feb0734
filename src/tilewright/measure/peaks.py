"""What this machine can do at most, measured: multiply-adds per second, and bytes per second.

A percentage of a peak says more than a ratio to somebody else's library, but only if the peak is
measured beside it: clocks vary by machine, by instruction and by what else runs. So two generated
kernels are timed in every run: one that does nothing but independent multiply-adds in registers,
one that does nothing but load a buffer of a given size again and again. What others do meanwhile
makes peaks too low: `contradictions` finds those that cannot be.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tilewright.dtypes import DType
from tilewright.measure.host import Host
from tilewright.measure.loops import (
    CHAINS,
    ENTRY,
    INSTRUCTIONS,
    MultiplyAdd,
    compute_code,
    instruction_for,
    load,
    load_code,
)
from tilewright.measure.verdict import DISTURBED
from tilewright.targets.x86.assemble import host_features
from tilewright.targets.x86.device import host as host_machine
from tilewright.targets.x86.driver import Program
from tilewright.targets.x86.pool import worker_pool

_REPEATS, _MOST_REPEATS = 9, 27
_SECONDS = 0.01
# What two measurements of one peak may be apart.
_APART = 0.1
# A peak that another one cannot be above, in GFLOP/s, and levels from the fastest.
_NOT_ABOVE = (("f64", "f32"), ("f32", "bf16"), ("f32", "int8"))
_LEVELS = ("L1", "L2", "L3", "DRAM")


@dataclass(frozen=True)
class Roof:
    """What limits a call: the least ``seconds`` that it can take, and ``level``, the memory whose
    bandwidth says so, or "" where arithmetic does."""

    seconds: float
    level: str


@dataclass(frozen=True)
class Peaks:
    """``gflops`` by kind of multiply-add (each counts two), ``bandwidth`` (GB/s) by memory level.

    Both are of ``threads`` threads together. ``sizes``: bytes that each cache holds for one core.
    ``disturbed``: those, of both, for which threads never had the cores for themselves.
    ``device``: what is known of a device, by kind, whose peaks are not measured but those of its
    machine's data; empty for this processor.
    """

    threads: int
    gflops: Mapping[str, float]
    bandwidth: Mapping[str, float]
    sizes: Mapping[str, int]
    disturbed: tuple[str, ...] = ()
    device: Mapping[str, str] = field(default_factory=dict)

    def of(self, a: DType) -> float:
        """GFLOP/s for operands of this type: those of f32 where there is no instruction for it."""
        return self.gflops.get(_kind(a), self.gflops.get("f32", 0.0))

    def roof(self, flops: int, moved: int, element: DType | None) -> Roof:
        """The roofline at an intensity: a call that does ``flops`` on operands of type ``element``
        (None: no arithmetic counts) and moves so many bytes takes at least the longer of both.

        Source: Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
        """
        level = memory_of(moved, self.sizes, self.threads)
        by_memory = 1e-9 * moved / self.bandwidth[level]
        peak = 0.0 if element is None else self.of(element)
        by_compute = 1e-9 * flops / peak if peak else 0.0
        return Roof(by_memory, level) if by_memory >= by_compute else Roof(by_compute, "")


def memory_of(moved: int, sizes: Mapping[str, int], threads: int) -> str:
    """The least memory that holds so many bytes."""
    return next((level for level, size in sizes.items() if moved <= size * threads), "DRAM")


def _kind(element: DType) -> str:
    return {"u8": "int8", "s8": "int8"}.get(element.name, element.name)


def cache_sizes() -> dict[str, int]:
    """Bytes that each cache of this machine holds, of one core."""
    return dict(zip(_LEVELS, host_machine().caches[:3], strict=False))


def measure_peaks(
    threads: int = 1,
    host: Host | None = None,
    kinds: Collection[str] = tuple(INSTRUCTIONS),
    levels: Collection[str] = _LEVELS,
) -> Peaks:
    """The peaks of this machine with so many threads, of these ``kinds`` of multiply-adds and
    ``levels`` of memory; all take a second or two, longer where others have the cores."""
    host = host or Host()
    disturbed: list[str] = []
    compute = {}
    for kind in kinds:
        instruction = instruction_for(kind)
        if instruction is not None:
            with load(compute_code(instruction)) as program:
                seconds, count, alone = _timed(program, threads, [0] * threads, host)
            compute[kind] = _gflops(instruction, count * threads, seconds)
            disturbed += [] if alone else [kind]
    bandwidth = {}
    for level, size in _buffer_sizes(host_machine().caches, threads).items():
        if level in levels:
            bandwidth[level], alone = _bandwidth(size, threads, host)
            disturbed += [] if alone else [level]
    return Peaks(threads, compute, bandwidth, cache_sizes(), tuple(disturbed))


def measure_roof(flops: int, moved: int, element: DType | None, threads: int) -> Roof:
    """The roof of one call on this machine: `Peaks.roof` with no more peaks than that takes, which
    is a quarter of a second."""
    kinds = [] if element is None else dict.fromkeys((_kind(element), "f32"))
    known = [kind for kind in kinds if kind in INSTRUCTIONS and instruction_for(kind)]
    level = memory_of(moved, cache_sizes(), threads)
    return measure_peaks(threads, None, known[:1], (level,)).roof(flops, moved, element)


def contradictions(peaks: Peaks, later: Peaks | None = None) -> list[str]:
    """What cannot be, in words: a level that is slower than one farther away, arithmetic on wide
    numbers that is faster than on narrow ones, the same measured ``later`` with another result."""
    found = [
        f"{name}: threads waited for a core whenever it was measured" for name in peaks.disturbed
    ]
    levels = [level for level in _LEVELS if level in peaks.bandwidth]
    farther = [(far, near) for near, far in pairwise(levels)]
    for values, pairs, unit in (
        (peaks.bandwidth, farther, "GB/s"),
        (peaks.gflops, _NOT_ABOVE, "GFLOP/s"),
    ):
        for low, high in pairs:
            if low in values and high in values and values[low] > (1 + _APART) * values[high]:
                found.append(f"{low} {values[low]:.0f} above {high} {values[high]:.0f} {unit}")
    return found if later is None else [*found, *_changed(peaks, later)]


def _changed(peaks: Peaks, later: Peaks) -> Iterator[str]:
    for before, after, unit in (
        (peaks.gflops, later.gflops, "GFLOP/s"),
        (peaks.bandwidth, later.bandwidth, "GB/s"),
    ):
        for name in before:
            values = (before[name], after[name])
            if max(values) > (1 + _APART) * min(values):
                yield f"{name} {values[0]:.0f} before, {values[1]:.0f} {unit} after"


def _buffer_sizes(caches: tuple[int, ...], threads: int) -> dict[str, int]:
    """Bytes for each thread: well inside of a level, and well outside of the one before; threads
    share the last."""
    l1, l2, l3 = caches[:3]
    return {
        "L1": l1 // 2,
        "L2": l1 + (l2 - l1) // 2,
        "L3": max(2 * l2, l3 // 3) // threads,
        "DRAM": max(4 * l3, 2**26) // threads,
    }


def _bandwidth(size: int, threads: int, host: Host) -> tuple[float, bool]:
    """GB/s of loads from a buffer of ``size`` bytes for each thread, and whether no thread waited
    for a core."""
    features = host_features().split(",")
    vector_bytes = 64 if "+avx512f" in features else 32 if "+avx" in features else 16
    step = 8 * vector_bytes
    size = max(step, size // step * step)
    buffers = [np.ones(size + 64, np.uint8) for _ in range(threads)]
    pointers = [buffer.ctypes.data + -buffer.ctypes.data % 64 for buffer in buffers]
    with load(load_code(vector_bytes, size)) as program:
        seconds, count, alone = _timed(program, threads, pointers, host)
    return 1e-9 * size * count * threads / seconds, alone


def _gflops(instruction: MultiplyAdd, count: int, seconds: float) -> float:
    """Those of so many iterations of the loop."""
    return 2e-9 * instruction.multiply_adds * CHAINS * count / seconds


def _timed(
    program: Program, threads: int, pointers: list[int], host: Host
) -> tuple[float, int, bool]:
    """The best time in seconds, the iterations of each thread in it, and whether no thread waited
    for a core in one of the runs."""
    arguments = (ctypes.c_int64 * (1 + threads))(1, *pointers)
    address = program.address(ENTRY)

    def run(count: int) -> float:
        arguments[0] = count
        start = host.now()
        if threads == 1:
            single(ctypes.addressof(arguments), 0, 1)
        else:
            worker_pool().run(address, ctypes.addressof(arguments), threads)
        return host.now() - start

    single = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    # The best of some: the first starts the workers, and one that was held up says nothing.
    count = 1
    while (seconds := min(run(count) for _ in range(4))) < _SECONDS:
        count = max(2 * count, int(count * _SECONDS / max(seconds, 1e-7)))
    best, alone = best_run(lambda: run(count), host)
    return best, count, alone


def best_run(run: Callable[[], float], host: Host) -> tuple[float, bool]:
    """The least of the seconds that ``run`` gives, and whether no thread of this process waited for
    a core in one of its runs: it is run more often until there is such a one, but not for ever."""
    best, alone = float("inf"), False
    for number in range(_MOST_REPEATS):
        if number >= _REPEATS and alone:
            break
        before = host.waited()
        seconds = run()
        after = host.waited()
        best = min(best, seconds)
        alone |= before is None or after is None or after - before <= DISTURBED * seconds
    return best, alone
