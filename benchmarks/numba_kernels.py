#!/usr/bin/env python3
"""Times kernels of suites, written in Python for us and for numba, on a processor.

hotspot3D and srad are those of Rodinia (neighbours clamped at the borders), spmm is a sparse matrix
(CSR) times a dense one, a work-item for each element, or for each row. numba has `prange` over the
outermost loop and fastmath. Both sides run in turn on the same arrays; what they leave is compared
first. The ratio is numba's time over ours.

Exit status: 0, also without numba; 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.measure.rounds import measure

Call = Callable[[], None]


@tw.kernel
def hotspot3d(
    a: tw.f32,
    b: tw.f32,
    c: tw.f32,
    power: tw.array("f32", 3),
    x: tw.array("f32", 3),
    y: tw.array("f32", 3),
) -> None:
    k, i, j = tw.global_id(0), tw.global_id(1), tw.global_id(2)
    layers, rows, columns = x.shape
    if k < layers and i < rows and j < columns:
        beside = x[k, i, max(j - 1, 0)] + x[k, i, min(j + 1, columns - 1)]
        along = x[k, max(i - 1, 0), j] + x[k, min(i + 1, rows - 1), j]
        across = x[max(k - 1, 0), i, j] + x[min(k + 1, layers - 1), i, j]
        y[k, i, j] = a * x[k, i, j] + b * (beside + along + across) + c * power[k, i, j]


@tw.kernel
def srad(q0: tw.f32, x: tw.array("f32", 2), c: tw.array("f32", 2)) -> None:
    i, j = tw.global_id(0), tw.global_id(1)
    rows, columns = x.shape
    if i < rows and j < columns:
        here = x[i, j]
        north, south = x[max(i - 1, 0), j] - here, x[min(i + 1, rows - 1), j] - here
        west, east = x[i, max(j - 1, 0)] - here, x[i, min(j + 1, columns - 1)] - here
        g2 = (north * north + south * south + west * west + east * east) / (here * here)
        laplacian = (north + south + west + east) / here
        num = 0.5 * g2 - laplacian * laplacian / 16.0
        den = 1.0 + 0.25 * laplacian
        den = (num / (den * den) - q0) / (q0 * (1.0 + q0))
        c[i, j] = min(max(1.0 / (1.0 + den), 0.0), 1.0)


@tw.kernel
def spmm(
    start: tw.array("s32", 1),
    column: tw.array("s32", 1),
    value: tw.array("f32", 1),
    x: tw.array("f32", 2),
    y: tw.array("f32", 2),
) -> None:
    row, j = tw.global_id(0), tw.global_id(1)
    total = 0.0
    for k in range(start[row], start[row + 1]):
        total += value[k] * x[column[k], j]
    y[row, j] = total


@tw.kernel
def spmm_rows(
    start: tw.array("s32", 1),
    column: tw.array("s32", 1),
    value: tw.array("f32", 1),
    x: tw.array("f32", 2),
    y: tw.array("f32", 2),
) -> None:
    row = tw.global_id(0)
    for j in range(x.shape[1]):
        y[row, j] = 0.0
    for k in range(start[row], start[row + 1]):
        for j in range(x.shape[1]):
            y[row, j] += value[k] * x[column[k], j]


def of_hotspot3d(numba: Any, decorated: Any, g: np.random.Generator) -> tuple[Call, Call, Any, Any]:
    x, power = (g.uniform(300, 340, (8, 512, 512)).astype(np.float32) for _ in range(2))
    ours, theirs = np.zeros_like(x), np.zeros_like(x)
    a, b, c = np.float32(0.4), np.float32(0.09), np.float32(0.06)
    prange = numba.prange

    @decorated
    def run(a: Any, b: Any, c: Any, power: Any, x: Any, y: Any) -> None:
        layers, rows, columns = x.shape
        for row in prange(layers * rows):
            k, i = row // rows, row % rows
            for j in range(columns):
                beside = x[k, i, max(j - 1, 0)] + x[k, i, min(j + 1, columns - 1)]
                along = x[k, max(i - 1, 0), j] + x[k, min(i + 1, rows - 1), j]
                across = x[max(k - 1, 0), i, j] + x[min(k + 1, layers - 1), i, j]
                y[k, i, j] = a * x[k, i, j] + b * (beside + along + across) + c * power[k, i, j]

    return (
        lambda: hotspot3d.launch(x.shape, a, b, c, power, x, ours),
        lambda: run(a, b, c, power, x, theirs),
        ours,
        theirs,
    )


def of_srad(numba: Any, decorated: Any, g: np.random.Generator) -> tuple[Call, Call, Any, Any]:
    x = np.exp(g.uniform(0, 1, (1024, 1024))).astype(np.float32)
    ours, theirs, q0 = np.zeros_like(x), np.zeros_like(x), np.float32(0.05)
    prange, f32 = numba.prange, np.float32

    @decorated
    def run(q0: Any, x: Any, c: Any) -> None:
        rows, columns = x.shape
        for i in prange(rows):
            for j in range(columns):
                here = x[i, j]
                north, south = x[max(i - 1, 0), j] - here, x[min(i + 1, rows - 1), j] - here
                west, east = x[i, max(j - 1, 0)] - here, x[i, min(j + 1, columns - 1)] - here
                g2 = (north * north + south * south + west * west + east * east) / (here * here)
                laplacian = (north + south + west + east) / here
                num = f32(0.5) * g2 - laplacian * laplacian / f32(16.0)
                den = f32(1.0) + f32(0.25) * laplacian
                den = (num / (den * den) - q0) / (q0 * (f32(1.0) + q0))
                c[i, j] = min(max(f32(1.0) / (f32(1.0) + den), f32(0.0)), f32(1.0))

    return (
        lambda: srad.launch(x.shape, q0, x, ours),
        lambda: run(q0, x, theirs),
        ours,
        theirs,
    )


def of_spmm(
    numba: Any, decorated: Any, g: np.random.Generator, *, by_rows: bool = False
) -> tuple[Call, Call, Any, Any]:
    rows, width = 1 << 14, 64
    start = np.concatenate([[0], np.cumsum(g.integers(8, 24, rows))]).astype(np.int32)
    column = g.integers(0, rows, int(start[-1]), dtype=np.int32)
    value, x = (
        g.standard_normal(len(column), np.float32),
        g.standard_normal((rows, width), np.float32),
    )
    ours, theirs = np.zeros_like(x), np.zeros_like(x)
    prange = numba.prange

    @decorated
    def run(start: Any, column: Any, value: Any, x: Any, y: Any) -> None:
        for row in prange(len(start) - 1):
            y[row, :] = 0
            for k in range(start[row], start[row + 1]):
                for j in range(x.shape[1]):
                    y[row, j] += value[k] * x[column[k], j]

    kernel, shape = (spmm_rows, (rows,)) if by_rows else (spmm, x.shape)
    return (
        lambda: kernel.launch(shape, start, column, value, x, ours),
        lambda: run(start, column, value, x, theirs),
        ours,
        theirs,
    )


KERNELS = {
    "hotspot3d": of_hotspot3d,
    "srad": of_srad,
    "spmm": of_spmm,
    "spmm_rows": partial(of_spmm, by_rows=True),
}


def main() -> int:
    """Runs the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="of both sides (default: 2)")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each kernel (default: 3)")
    parser.add_argument("--only", choices=KERNELS, help="one of the kernels")
    options = parser.parse_args()
    if find_spec("numba") is None:
        print("numba is not there, and nothing to compare with: pip install numba")
        return 0
    numba = import_module("numba")
    numba.set_num_threads(options.threads)
    decorated = numba.njit(parallel=True, fastmath=True)
    wrong = False
    print("| kernel | ms | numba |\n| --- | ---: | ---: |")
    for name in [options.only] if options.only else KERNELS:
        call, other, ours, theirs = KERNELS[name](numba, decorated, np.random.default_rng(0))
        call()
        other()
        same = np.allclose(ours, theirs, rtol=1e-4, atol=1e-4)
        wrong |= not same
        result = measure(
            {"ours": call, "numba": other}, seconds=options.seconds, threads=options.threads
        )
        ours_s, numba_s = (result.times[side].median for side in ("ours", "numba"))
        note = ", ".join([*result.noise, *([] if same else ["the results differ"])])
        print(
            f"| {name} | {ours_s * 1e3:.3g} | {numba_s / ours_s:.2f} | {note}".rstrip(" |") + " |"
        )
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
