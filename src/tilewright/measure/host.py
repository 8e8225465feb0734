"""The machine that something is timed on: its clock, and what else it does meanwhile.

What counts is what Linux says, in ``/proc``: how long threads of this process were ready to run
and had no core (``schedstat``; in nanoseconds, so it holds for a single batch of calls), and what
all cores did (``stat``; in ticks of 10 ms, so it holds for seconds). Where a system does not say,
it is unknown, and only the times themselves tell.
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
# Columns of the first line of /proc/stat, behind its name (proc(5)).
_IDLE, _WAITING_FOR_DISKS, _STOLEN = 3, 4, 7
# Runs of a probe, and iterations of each: about 25 us, so that one of a few is not interrupted.
_PROBES, _PROBE_ITERATIONS = 4, 8000


@dataclass(frozen=True)
class Usage:
    """Seconds of all cores since some moment: ``busy`` with anything, with this process
    (``own``), and ``stolen``: wanted here, but given to another virtual machine."""

    busy: float
    own: float
    stolen: float


class Host:
    """This machine. Tests put another one in its place."""

    @property
    def cores(self) -> int:
        """Those that this process may use."""
        return len(os.sched_getaffinity(0))

    def now(self) -> float:
        """Seconds since some moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Does nothing for so long."""
        time.sleep(seconds)

    def waited(self) -> float | None:
        """Seconds that threads of this process were ready to run and had no core, all together."""
        total = 0
        try:
            threads = list(_TASKS.iterdir())
        except OSError:
            return None
        for thread in threads:
            try:
                total += int((thread / "schedstat").read_text().split()[1])
            except ProcessLookupError:
                continue  # it has ended since
            except (OSError, ValueError, IndexError):
                return None
        return 1e-9 * total

    def usage(self) -> Usage | None:
        """What the cores have done so far."""
        with suppress(OSError, ValueError, IndexError):
            ticks = [int(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1:]]
            stolen = ticks[_STOLEN]
            # Guests (the columns behind) count as what runs them, too.
            busy = sum(ticks[:_STOLEN]) - ticks[_IDLE] - ticks[_WAITING_FOR_DISKS]
            tick = 1 / os.sysconf("SC_CLK_TCK")
            return Usage(busy * tick, time.process_time(), stolen * tick)
        return None

    def speed(self) -> float | None:
        """What the core of this thread does at the moment, in GFLOP/s of f32: the clock, and what
        another thread on the same core leaves of it."""
        probe = _speed_probe()
        return None if probe is None else max(probe() for _ in range(_PROBES))


class Unwatched(Host):
    """The clock alone: for work that other devices do, to which this machine's load is nothing."""

    def waited(self) -> float | None:
        return None

    def usage(self) -> Usage | None:
        return None

    def speed(self) -> float | None:
        return None


@cache
def _speed_probe() -> Callable[[], float] | None:
    """Runs independent multiply-adds on this thread for a moment, and gives their GFLOP/s."""
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
