#!/usr/bin/env python3
"""Times the suite's kernels in Python on a processor beside the same kernels on its OpenCL device.

Both sides are launched from Python, in turn, on arrays of numpy, in the local size that is given
here; what they leave is compared first. Each kernel has a process of its own. Five of them run
beside numba, too (`prange`, fastmath), if it is there. A ratio is the other side's time over ours:
above 1, we are faster.

Exit status: 0, 1 if a result is wrong, or a kernel could not be measured.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import re
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.errors import TilewrightError
from tilewright.measure.rounds import measure

EXAMPLES = """examples:
  python benchmarks/kernels.py --threads 2
  python benchmarks/kernels.py --only 'nbody|saxpy' --seconds 1 --json kernels.json
"""
Sizes = tuple[int, ...]
Draw = Callable[[np.random.Generator], list[Any]]


@dataclass(frozen=True)
class Work:
    """How a kernel is launched: its range, its local size, what makes its arguments, and which of
    these is set to zero before each launch."""

    range: Sizes
    local: Sizes | None
    arguments: Draw
    cleared: int | None = None


def floats(g: np.random.Generator, *shape: int) -> Any:
    return g.standard_normal(shape, np.float32)


def whole(g: np.random.Generator, *shape: int, most: int = 100) -> Any:
    return g.integers(0, most, shape, dtype=np.int32)


def empty(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def options(g: np.random.Generator) -> list[Any]:
    n = 1 << 20
    ranges = ((5, 30), (1, 100), (0.25, 10))
    drawn = [g.uniform(low, high, n).astype(np.float32) for low, high in ranges]
    return [*drawn, empty(n), empty(n), 0.02, 0.3]


def sparse(g: np.random.Generator) -> list[Any]:
    rows, width = 1 << 16, 1 << 16
    start = np.concatenate([[0], np.cumsum(g.integers(8, 24, rows))]).astype(np.int32)
    count = int(start[-1])
    return [start, whole(g, count, most=width), floats(g, count), floats(g, width), empty(rows)]


def roots(half: int) -> Any:
    turns = np.exp(-1j * np.pi * np.arange(half) / half)
    return np.stack([turns.real, turns.imag], 1).astype(np.float32)


def small_bf16(g: np.random.Generator, *shape: int) -> Any:
    return g.integers(-3, 4, shape).astype(ml_dtypes.bfloat16)


_M = 1 << 20
WORKS: dict[str, Work] = {
    "saxpy": Work((4 * _M,), None, lambda g: [4 * _M, 2.5, floats(g, 4 * _M), floats(g, 4 * _M)]),
    "black_scholes": Work((_M,), None, options),
    "mandelbrot": Work((512, 512), None, lambda g: [50, empty(512, 512, dtype=np.int32)]),
    "stencil2d": Work((2048, 2048), None, lambda g: [floats(g, 2048, 2048), empty(2048, 2048)]),
    "stencil3d": Work((128,) * 3, None, lambda g: [floats(g, 128, 128, 128), empty(128, 128, 128)]),
    "nbody": Work((4096,), None, lambda g: [floats(g, 4096, 4), empty(4096, 3)]),
    "sobel": Work(
        (1024, 1024),
        None,
        lambda g: [g.integers(0, 256, (1024, 1024), dtype=np.uint8), empty(1024, 1024, dtype="u1")],
    ),
    "spmv": Work((1 << 16,), None, sparse),
    "floyd_warshall": Work((1024, 1024), None, lambda g: [whole(g, 1024, 1024), 3]),
    "kmeans": Work(
        (1 << 16,),
        None,
        lambda g: [floats(g, 1 << 16, 8), floats(g, 16, 8), empty(1 << 16, dtype=np.int32)],
    ),
    "matmul": Work(
        (256, 256), (16, 16), lambda g: [floats(g, 256, 256), floats(g, 256, 256), empty(256, 256)]
    ),
    "collatz": Work((1 << 16,), None, lambda g: [empty(1 << 16, dtype=np.int32), 400]),
    "hashes": Work(
        (4 * _M,),
        None,
        lambda g: [g.integers(0, 1 << 32, 4 * _M, np.uint32), empty(4 * _M, dtype=np.uint32)],
    ),
    "fft_step": Work(
        (_M // 2,), None, lambda g: [floats(g, _M, 2), roots(1024), empty(_M, 2), 1024]
    ),
    "tree_sum": Work((_M,), (64,), lambda g: [whole(g, _M, most=8).astype(np.float32), empty(1)]),
    "group_sums": Work(
        (_M,),
        (64,),
        lambda g: [whole(g, _M), empty(_M, dtype=np.int32), empty(_M, dtype=np.int32)],
    ),
    "prefix_sum": Work(
        (_M,),
        (64,),
        lambda g: [whole(g, _M), empty(_M, dtype=np.int32), empty(_M // 64, dtype=np.int32)],
    ),
    "add_sums": Work((_M,), (64,), lambda g: [whole(g, _M), whole(g, _M // 64)]),
    "scan_blelloch": Work((32,), (32,), lambda g: [whole(g, 32)]),
    "histogram": Work(
        (1 << 14,),
        (64,),
        lambda g: [
            g.integers(0, 256, 4 * _M, dtype=np.uint8),
            empty(16, dtype=np.uint32),
            4 * _M,
        ],
    ),
    "transpose": Work((2048, 2048), (8, 8), lambda g: [floats(g, 2048, 2048), empty(2048, 2048)]),
    "bitonic_step": Work((_M,), (32,), lambda g: [floats(g, _M)]),
    "radix_step": Work(
        (_M,),
        (64,),
        lambda g: [g.integers(0, 1 << 32, _M, np.uint32), empty(_M, dtype=np.uint32), 3],
    ),
    "softmax_rows": Work((1024, 64), (1, 64), lambda g: [floats(g, 1024, 1024), empty(1024, 1024)]),
    "layer_norm": Work(
        (1024, 8), (1, 8), lambda g: [floats(g, 1024, 1024), empty(1024, 1024), 1e-5]
    ),
    "subgroup_scans": Work((_M,), (64,), lambda g: [whole(g, _M), empty(4, _M, dtype=np.int32)]),
    "tiled_matmul": Work(
        (256, 256), (8, 8), lambda g: [floats(g, 256, 256), floats(g, 256, 256), empty(256, 256)]
    ),
    "flash_attention": Work(
        (2048,),
        (8,),
        lambda g: [*(floats(g, n, 16) for n in (2048, 512, 512)), empty(2048, 16), 0.25],
    ),
    "queue": Work(
        (_M,),
        (64,),
        lambda g: [whole(g, _M), empty(_M, dtype=np.int32), empty(1, dtype=np.int32)],
        cleared=2,
    ),
    "joint_matmul": Work(
        (16, 256),
        (1, 16),
        lambda g: [small_bf16(g, 256, 256), small_bf16(g, 256, 256), empty(256, 256)],
    ),
}
# Whose results depend on the order in which work-items come, but for the array at this place.
_ANY_ORDER = {"queue": 2}
_TOLERANCE = 1e-3


def differing(name: str, ours: list[Any], theirs: list[Any], strict: bool = True) -> bool:
    """Whether two sides left different contents; with other roundings, one in a thousand whole
    numbers may."""
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not isinstance(a, np.ndarray) or _ANY_ORDER.get(name, place) != place:
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        if a.dtype.kind in "iu":
            apart = float(np.mean(x != y)) > (0 if strict else 1e-3)
        else:
            apart = not np.allclose(x, y, _TOLERANCE, _TOLERANCE)
        if apart:
            return True
    return False


def row(name: str, threads: int, seconds: float) -> dict[str, Any]:
    """Times of one kernel in ms by side, and whether a result is wrong."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    found_kernels = {each.name: each.kernel for each in import_module("lang_kernels").CASES}
    kernel, work = found_kernels[name], WORKS[name]
    drawn = work.arguments(np.random.default_rng(0))
    wrong: list[str] = []
    calls: dict[str, Callable[[], object]] = {}
    left: dict[str, list[Any]] = {}
    for side, target in (("ours", "x86"), ("opencl", "spirv")):
        values = left[side] = copy.deepcopy(drawn)

        def launch(values: list[Any] = values, target: str = target) -> None:
            if work.cleared is not None:
                values[work.cleared][:] = 0
            kernel.launch(work.range, *values, local=work.local, target=target, threads=threads)

        launch()
        calls[side] = launch
    if differing(name, left["ours"], left["opencl"]):
        wrong.append("opencl")
    if name in NUMBA and find_spec("numba"):
        values = left["numba"] = copy.deepcopy(drawn)
        function = NUMBA[name](import_module("numba"), threads)
        calls["numba"] = lambda: function(*values)
        calls["numba"]()
        if differing(name, left["ours"], left["numba"], strict=False):
            wrong.append("numba")
    result = measure(calls, seconds=seconds, threads=threads)
    times = {side: time.median * 1e3 for side, time in result.times.items()}
    return {"kernel": name, "ms": times, "wrong": wrong, "noise": list(result.noise)}


def alone(name: str, threads: int, seconds: float) -> dict[str, Any]:
    """`row` in a process of its own: threads of one library take no cores from those of the next,
    and what ends in a device's library ends there."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(row, name, threads, seconds).result()


def _decorated(numba: Any, threads: int) -> Any:
    numba.set_num_threads(threads)
    return numba.njit(parallel=True, fastmath=True)


def _saxpy(numba: Any, threads: int) -> Any:
    prange = numba.prange

    @_decorated(numba, threads)
    def saxpy(n, a, x, y):
        for i in prange(n):
            y[i] = np.float32(a) * x[i] + y[i]

    return saxpy


def _black_scholes(numba: Any, threads: int) -> Any:
    prange, f32 = numba.prange, np.float32

    @numba.njit(fastmath=True)
    def normal(x):
        return f32(0.5) * (f32(1) + f32(math.erf(x * f32(0.70710678))))

    @_decorated(numba, threads)
    def black_scholes(price, strike, years, call, put, rate, volatility):
        r, v = f32(rate), f32(volatility)
        for i in prange(len(price)):
            s, k, t = price[i], strike[i], years[i]
            spread = v * math.sqrt(t)
            d1 = (math.log(s / k) + (r + f32(0.5) * v * v) * t) / spread
            d2 = d1 - spread
            discounted = k * math.exp(-r * t)
            call[i] = s * normal(d1) - discounted * normal(d2)
            put[i] = discounted * normal(-d2) - s * normal(-d1)

    return black_scholes


def _mandelbrot(numba: Any, threads: int) -> Any:
    prange, f32 = numba.prange, np.float32

    @_decorated(numba, threads)
    def mandelbrot(most, out):
        height, width = out.shape
        for row in prange(height):
            for col in range(width):
                cx = f32(3) * f32(col) / f32(width) - f32(2)
                cy = f32(2) * f32(row) / f32(height) - f32(1)
                x, y, count = f32(0), f32(0), most
                for k in range(most):
                    if x * x + y * y > f32(4):
                        count = k
                        break
                    x, y = x * x - y * y + cx, f32(2) * x * y + cy
                out[row, col] = count

    return mandelbrot


def _stencil2d(numba: Any, threads: int) -> Any:
    prange = numba.prange

    @_decorated(numba, threads)
    def stencil2d(x, y):
        height, width = x.shape
        for i in prange(1, height - 1):
            for j in range(1, width - 1):
                around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
                y[i, j] = np.float32(0.25) * around

    return stencil2d


def _nbody(numba: Any, threads: int) -> Any:
    prange, f32 = numba.prange, np.float32

    @_decorated(numba, threads)
    def nbody(position, acceleration):
        for i in prange(len(position)):
            x, y, z = position[i, 0], position[i, 1], position[i, 2]
            ax, ay, az = f32(0), f32(0), f32(0)
            for j in range(len(position)):
                dx, dy, dz = position[j, 0] - x, position[j, 1] - y, position[j, 2] - z
                inverse = f32(1) / f32(math.sqrt(dx * dx + dy * dy + dz * dz + f32(0.01)))
                scale = position[j, 3] * inverse * inverse * inverse
                ax += scale * dx
                ay += scale * dy
                az += scale * dz
            acceleration[i, 0], acceleration[i, 1], acceleration[i, 2] = ax, ay, az

    return nbody


NUMBA: dict[str, Callable[[Any, int], Any]] = {
    "saxpy": _saxpy,
    "black_scholes": _black_scholes,
    "mandelbrot": _mandelbrot,
    "stencil2d": _stencil2d,
    "nbody": _nbody,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of kernels that match this expression")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each side")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    failed = False
    print("| kernel | ms | numba | OpenCL |\n| --- | ---: | ---: | ---: |")
    for name in WORKS:
        if not re.search(args.only, name):
            continue
        try:
            result = alone(name, args.threads, args.seconds)
        except (TilewrightError, BrokenProcessPool) as error:
            why = error.what if isinstance(error, TilewrightError) else "its process died"
            print(f"| {name} | {why} | | |", flush=True)
            failed = True
            continue
        rows.append(result)
        ours = result["ms"]["ours"]
        cells = [
            f"{result['ms'][s] / ours:.2f}" if s in result["ms"] else ""
            for s in ("numba", "opencl")
        ]
        marks = f" WRONG beside {', '.join(result['wrong'])}" if result["wrong"] else ""
        print(f"| {name}{marks} | {ours:.3g} | {' | '.join(cells)} |", flush=True)
    for side in ("numba", "opencl"):
        ratios = [r["ms"][side] / r["ms"]["ours"] for r in rows if side in r["ms"]]
        if ratios:
            mean, least = statistics.geometric_mean(ratios), min(ratios)
            print(f"{side}: {len(ratios)} kernels, geometric mean {mean:.2f}x, least {least:.2f}x")
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if not rows:
        print("no kernel was measured", file=sys.stderr)
    return 1 if failed or not rows or any(each["wrong"] for each in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
