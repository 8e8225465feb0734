"""Peak rates of this machine, measured: multiply-adds per second, and bytes per second.

A percentage of a peak says more than a ratio to another library, but only if the peak is measured
beside it: clocks vary by machine, by instruction and by load. So two generated kernels are timed in
every run: independent multiply-adds in registers, and repeated loads of a buffer of a given size.
Other processes make measured peaks too low: `contradictions` finds those that are impossible.
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
# Relative difference allowed between two measurements of one peak.
_APART = 0.1
# Pairs of rates (GFLOP/s) of which the first cannot be greater; memory levels from the fastest.
_NOT_ABOVE = (("f64", "f32"), ("f32", "bf16"), ("f32", "int8"))
_LEVELS = ("L1", "L2", "L3", "DRAM")


@dataclass(frozen=True)
class Roof:
    """The bound on a call: the least ``seconds`` that it can take, and the memory ``level`` whose
    bandwidth gives it, "" where arithmetic does."""

    seconds: float
    level: str


@dataclass(frozen=True)
class Peaks:
    """``gflops`` by kind of multiply-add (each counts two), ``bandwidth`` (GB/s) by memory level.

    Both are of ``threads`` threads together. ``sizes``: bytes of each cache level for one core.
    ``disturbed``: peaks, of both kinds, for which the threads never had their cores undisturbed.
    ``device``: name and properties of a device whose peaks are not measured but given by its
    machine's data; empty for this processor.
    """

    threads: int
    gflops: Mapping[str, float]
    bandwidth: Mapping[str, float]
    sizes: Mapping[str, int]
    disturbed: tuple[str, ...] = ()
    device: Mapping[str, str] = field(default_factory=dict)

    def of(self, a: DType) -> float:
        """GFLOP/s for operands of this type; of f32 for types without an instruction."""
        return self.gflops.get(_kind(a), self.gflops.get("f32", 0.0))

    def roof(self, flops: int, moved: int, element: DType | None) -> Roof:
        """The roofline at an intensity: a call that does ``flops`` on operands of type ``element``
        (None: no arithmetic counts) and moves ``moved`` bytes takes at least the longer of both.

        Source: Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
        """
        level = memory_of(moved, self.sizes, self.threads)
        by_memory = 1e-9 * moved / self.bandwidth[level]
        peak = 0.0 if element is None else self.of(element)
        by_compute = 1e-9 * flops / peak if peak else 0.0
        return Roof(by_memory, level) if by_memory >= by_compute else Roof(by_compute, "")


def memory_of(moved: int, sizes: Mapping[str, int], threads: int) -> str:
    """The smallest memory level that holds ``moved`` bytes."""
    return next((level for level, size in sizes.items() if moved <= size * threads), "DRAM")


def _kind(element: DType) -> str:
    return {"u8": "int8", "s8": "int8"}.get(element.name, element.name)


def cache_sizes() -> dict[str, int]:
    """Bytes of each cache level of this machine, for one core."""
    return dict(zip(_LEVELS, host_machine().caches[:3], strict=False))


def measure_peaks(
    threads: int = 1,
    host: Host | None = None,
    kinds: Collection[str] = tuple(INSTRUCTIONS),
    levels: Collection[str] = _LEVELS,
) -> Peaks:
    """The peaks of this machine with ``threads`` threads, for ``kinds`` of multiply-adds and
    ``levels`` of memory; all take a second or two, longer on a busy machine."""
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
    """The roof of one call on this machine: as `Peaks.roof`, but measures only the peaks that it
    needs, which takes a quarter of a second."""
    kinds = [] if element is None else dict.fromkeys((_kind(element), "f32"))
    measurable = [kind for kind in kinds if kind in INSTRUCTIONS and instruction_for(kind)]
    level = memory_of(moved, cache_sizes(), threads)
    return measure_peaks(threads, None, measurable[:1], (level,)).roof(flops, moved, element)


def contradictions(peaks: Peaks, later: Peaks | None = None) -> list[str]:
    """Impossible peaks, in words: a memory level slower than the next one outward, arithmetic on
    wide numbers faster than on narrow ones, or the same peak measured ``later`` and different."""
    messages = [
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
                messages.append(f"{low} {values[low]:.0f} above {high} {values[high]:.0f} {unit}")
    return messages if later is None else [*messages, *_changed(peaks, later)]


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
    """Bytes for each thread: well inside the level, and well over the size of the one before;
    threads share the last cache."""
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
    """Rate of ``count`` iterations of the loop in ``seconds``."""
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
    # The first run starts the workers, and others may be interrupted: the best of four.
    count = 1
    while (seconds := min(run(count) for _ in range(4))) < _SECONDS:
        count = max(2 * count, int(count * _SECONDS / max(seconds, 1e-7)))
    best, alone = best_run(lambda: run(count), host)
    return best, count, alone


def best_run(run: Callable[[], float], host: Host) -> tuple[float, bool]:
    """The least of the seconds that ``run`` gives, and whether in one run no thread of this process
    waited for a core: runs are repeated until there is such a one, up to a limit."""
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
