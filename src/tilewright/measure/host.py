"""The machine that something is timed on: its clock and its load.

The load comes from Linux's ``/proc``: how long threads of this process were ready to run without a
core (``schedstat``; in nanoseconds, so it holds for a single batch of calls), and how busy all the
cores were (``stat``; in ticks of 10 ms, so it holds for seconds). On other systems it is unknown,
and noise is judged by the times alone.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.measure.loops import CHAINS, ENTRY, compute_code, instruction_for, load

_TASKS, _STAT = Path("/proc/self/task"), Path("/proc/stat")
# Columns of the first line of /proc/stat, after its name (proc(5)).
_IDLE, _WAITING_FOR_DISKS, _STOLEN = 3, 4, 7
# Runs of a probe, and iterations in each: about 25 us, so that one of them runs uninterrupted.
_PROBES, _PROBE_ITERATIONS = 4, 8000


@dataclass(frozen=True)
class Usage:
    """Seconds of all cores since an arbitrary moment: ``busy`` in total, in this process
    (``own``), and ``stolen``: ready to run, but the core was with another virtual machine."""

    busy: float
    own: float
    stolen: float


class Host:
    """This machine. Tests replace it."""

    @property
    def cores(self) -> int:
        """Cores that this process may use."""
        return len(os.sched_getaffinity(0))

    def now(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def waited(self) -> float | None:
        """Seconds that threads of this process were ready to run without a core, summed."""
        total = 0
        try:
            threads = list(_TASKS.iterdir())
        except OSError:
            return None
        for thread in threads:
            try:
                total += int((thread / "schedstat").read_text().split()[1])
            except ProcessLookupError:
                continue  # the thread has ended
            except (OSError, ValueError, IndexError):
                return None
        return 1e-9 * total

    def usage(self) -> Usage | None:
        """The usage of the cores so far."""
        with suppress(OSError, ValueError, IndexError):
            ticks = [int(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1:]]
            stolen = ticks[_STOLEN]
            # The columns of guests are left out: their time is in that of user and nice, too.
            busy = sum(ticks[:_STOLEN]) - ticks[_IDLE] - ticks[_WAITING_FOR_DISKS]
            tick = 1 / os.sysconf("SC_CLK_TCK")
            return Usage(busy * tick, time.process_time(), stolen * tick)
        return None

    def speed(self) -> float | None:
        """Rate of this thread's core at the moment, in GFLOP/s of f32: it falls with the clock,
        and with a busy thread on the same core."""
        probe = _speed_probe()
        return None if probe is None else max(probe() for _ in range(_PROBES))


class Unwatched(Host):
    """The clock alone: for work on other devices, which this machine's load does not disturb."""

    def waited(self) -> float | None:
        return None

    def usage(self) -> Usage | None:
        return None

    def speed(self) -> float | None:
        return None


@cache
def _speed_probe() -> Callable[[], float] | None:
    """Times independent multiply-adds on this thread for a moment, and gives their GFLOP/s."""
    instruction = instruction_for("f32")
    if instruction is None:
        return None
    program = load(compute_code(instruction))
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        program.address(ENTRY)
    )
    arguments = (ctypes.c_int64 * 2)(_PROBE_ITERATIONS, 0)
    address = ctypes.addressof(arguments)
    flops = 2 * instruction.multiply_adds * CHAINS * _PROBE_ITERATIONS

    def probe(_keep: object = (program, arguments)) -> float:
        start = time.perf_counter()
        run(address, 0, 1)
        return 1e-9 * flops / (time.perf_counter() - start)

    return probe
