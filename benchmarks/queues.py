#!/usr/bin/env python3
"""Times queues: what a submission costs, independent kernels in and out of order, and chains of
elementwise kernels fused and one by one.

Times are the medians of rounds that take turns. A submission's is processor time of the thread that
submits, to a queue whose commands wait. A chain's ideal ratio is that of the bytes that move.

Exit status: 0.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

import tilewright as tw

EXAMPLES = """examples:
  python benchmarks/queues.py
  python benchmarks/queues.py --device spirv --only chains --rounds 9
"""
KERNELS = 16
SUBMISSIONS = 500


@tw.kernel
def spin(n: tw.s32, x: tw.array("f32", 1)):
    i = tw.global_id(0)
    value = x[i]
    for _ in range(n):
        value = value * 0.999 + 0.5
    x[i] = value


@tw.kernel
def scale(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)):
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i]


def median(call: Callable[[], None], rounds: int) -> float:
    """Seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def submissions(device: str, rounds: int) -> None:
    times = []
    with tw.Queue(device) as queue:
        x, y = (queue.buffer(np.ones(64, np.float32)) for _ in range(2))
        queue.submit(scale, (64,), 64, 2.0, x, y).wait()
        for _ in range(rounds):
            gate = threading.Event()
            queue.host_task(lambda values, gate=gate: gate.wait(60), y)
            start = time.thread_time()
            for _ in range(SUBMISSIONS):
                queue.submit(scale, (64,), 64, 2.0, x, y)
            times.append((time.thread_time() - start) / SUBMISSIONS)
            gate.set()
            queue.wait()
    print(f"submit: {statistics.median(times) * 1e6:.1f} us")


def independent(device: str, rounds: int) -> None:
    seconds = {}
    for in_order in (True, False):
        with tw.Queue(device, in_order=in_order) as queue:
            buffers = [queue.buffer(np.ones(64, np.float32)) for _ in range(KERNELS)]

            def run(queue: tw.Queue = queue, buffers: list[tw.Buffer] = buffers) -> None:
                for buffer in buffers:
                    queue.submit(spin, (64,), 100_000, buffer, local=(64,))
                queue.wait()

            run()
            seconds[in_order] = median(run, rounds)
    print(
        f"{KERNELS} independent kernels: in order {seconds[True] * 1e3:.2f} ms, out of order "
        f"{seconds[False] * 1e3:.2f} ms, {seconds[True] / seconds[False]:.2f} x"
    )


def chains(device: str, rounds: int, mebibytes: int) -> None:
    n = mebibytes * 2**20 // 4
    with tw.Queue(device) as queue:
        for length in (2, 4, 8):
            buffers = [queue.buffer(np.ones(n, np.float32)) for _ in range(length + 1)]
            inner = dict.fromkeys(buffers[1:-1], "private")

            def submit(buffers: list[tw.Buffer] = buffers) -> None:
                for source, to in pairwise(buffers):
                    queue.submit(scale, (n,), n, 0.5, source, to)

            def one_by_one(submit: Callable[[], None] = submit) -> None:
                submit()
                queue.wait()

            def fused(
                submit: Callable[[], None] = submit, inner: dict[tw.Buffer, str] = inner
            ) -> None:
                with queue.fusion(promote=inner, constants=True, require=True) as fusion:
                    submit()
                fusion.event.wait()

            one_by_one()
            fused()
            apart, together = median(one_by_one, rounds), median(fused, rounds)
            print(
                f"chain of {length} on {mebibytes} MiB: one by one {apart * 1e3:.1f} ms, fused "
                f"{together * 1e3:.1f} ms, {apart / together:.2f} x, ideal {length:.2f} x"
            )
            for buffer in buffers:
                buffer.close()


def small_fusions(device: str, rounds: int) -> None:
    times = []
    with tw.Queue(device) as queue:
        buffers = [queue.buffer(np.ones(64, np.float32)) for _ in range(5)]
        inner = dict.fromkeys(buffers[1:-1], "private")
        for _ in range(rounds + 1):
            start = time.thread_time()
            with queue.fusion(promote=inner, constants=True, require=True):
                for source, to in pairwise(buffers):
                    queue.submit(scale, (64,), 64, 0.5, source, to)
            times.append(time.thread_time() - start)
            queue.wait()
    print(f"four kernels, fused from the cache: {statistics.median(times[1:]) * 1e6:.0f} us")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="x86", help="the target of the queues (default: x86)")
    parser.add_argument("--only", choices=("submit", "independent", "chains", "fusions"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mebibytes", type=int, default=64, help="of each array of a chain")
    options = parser.parse_args()
    if options.only in (None, "submit"):
        submissions(options.device, options.rounds)
    if options.only in (None, "independent"):
        independent(options.device, options.rounds)
    if options.only in (None, "fusions"):
        small_fusions(options.device, options.rounds)
    if options.only in (None, "chains"):
        chains(options.device, options.rounds, options.mebibytes)


if __name__ == "__main__":
    main()
