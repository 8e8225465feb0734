#!/usr/bin/env python3
"""Times tuned kernels in Python on a processor beside their author's first guess.

Each kernel declares what it may choose, the sizes that a GPU's programmer would write first. A
search (`tw.autotune`) has the same time for each; then both are launched in turn on the same
arrays, whose contents are compared first. A ratio is the first guess's time over the tuned one's:
above 1, tuning pays.

Exit status: 0, 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tilewright as tw
from tilewright.measure.rounds import measure

EXAMPLES = """examples:
  python benchmarks/tuned_kernels.py --threads 1 --threads 2
  python benchmarks/tuned_kernels.py --only product --budget 60s --json tuned.json
"""
Chosen = dict[str, Any]

TILE = tw.tunable("TILE", (32, 8, 16, 64, 128))
ROWS = tw.tunable("ROWS", (8, 1, 2, 4, 16, 32))


@tw.kernel(local=(ROWS, TILE))
def transpose(
    x: tw.array("f32", 2),
    y: tw.array("f32", 2),
    pad: tw.constant = tw.tunable("PAD", (1, 0)),
):
    """Squares through local memory, whose rows are padded so that a column's elements do not share
    a bank; a work-item moves some elements of its column."""
    square = tw.local((TILE, TILE + pad), "f32")
    row, col = tw.local_id(0), tw.local_id(1)
    top, left = tw.group_id(0) * TILE, tw.group_id(1) * TILE
    for k in range(row, TILE, ROWS):
        square[k, col] = x[top + k, left + col]
    tw.barrier()
    for k in range(row, TILE, ROWS):
        y[left + k, top + col] = square[col, k]


LOCAL = tw.tunable("LOCAL", (256, 16, 64, 1024))


@tw.kernel(local=LOCAL)
def total(
    x: tw.array("f32", 1),
    y: tw.array("f32", 1),
    items: tw.constant = tw.tunable("ITEMS", (4, 1, 16, 64, 256)),
):
    """Each work-item adds some elements, a group's sum is added atomically."""
    first = tw.group_id(0) * (LOCAL * items) + tw.local_id(0)
    part = 0.0
    for k in range(items):
        part += x[first + k * LOCAL]
    part = tw.group_reduce(part, "add")
    if tw.local_id(0) == 0:
        tw.atomic_add(y, 0, part)


@tw.kernel(local=tw.tunable("BLOCK", ((16, 16), (1, 64), (1, 256), (4, 64), (8, 8), (32, 32))))
def blur(
    x: tw.array("f32", 2),
    y: tw.array("f32", 2),
    rows: tw.constant = tw.tunable("ROWS", (1, 2, 4, 8)),
):
    """The mean of nine neighbours, in some rows of each work-item."""
    height, width = x.shape
    col = tw.global_id(1)
    for k in tw.static_range(rows):
        row = tw.global_id(0) * rows + k
        if row > 0 and row < height - 1 and col > 0 and col < width - 1:
            around = 0.0
            for i in tw.static_range(3):
                for j in tw.static_range(3):
                    around += x[row + i - 1, col + j - 1]
            y[row, col] = around * (1.0 / 9.0)


SIZE = tw.tunable(
    "SIZE",
    tuple(
        (m, n, k) for m in (16, 32, 64, 128) for n in (16, 32, 64, 128) for k in (16, 32, 64, 128)
    ),
)


@tw.kernel(subgroup=16, local=(1, 16))
def product(a: tw.array("bf16", 2), b: tw.array("bf16", 2), c: tw.array("f32", 2)):
    """A tile of the result for each subgroup."""
    row, col = tw.group_id(0) * SIZE[0], tw.group_id(1) * SIZE[1]
    tile_a = tw.joint_matrix("a", SIZE[0], SIZE[2], "bf16")
    tile_b = tw.joint_matrix("b", SIZE[2], SIZE[1], "bf16")
    sums = tw.joint_matrix("accumulator", SIZE[0], SIZE[1], "f32")
    sums.fill(0.0)
    for start in range(0, a.shape[1], SIZE[2]):
        tile_a.load(a, (row, start))
        tile_b.load(b, (start, col))
        sums.mad(tile_a, tile_b)
    sums.store(c, (row, col))


@dataclass(frozen=True)
class Work:
    """A kernel, its range by what is chosen, and what makes its arguments."""

    kernel: Any
    range: Callable[[Chosen], tuple[int, ...]]
    arguments: Callable[[np.random.Generator], list[Any]]


def floats(g: np.random.Generator, *shape: int) -> Any:
    return g.standard_normal(shape, np.float32)


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


_N = 2048
_M = 2**22
_K = 512
WORKS = [
    Work(
        transpose,
        lambda chosen: (_N // chosen["TILE"] * chosen["ROWS"], _N),
        lambda g: [floats(g, _N, _N), zeros(_N, _N)],
    ),
    Work(
        total,
        lambda chosen: (_M // chosen["ITEMS"],),
        lambda g: [g.integers(0, 2, _M).astype(np.float32), zeros(1)],
    ),
    Work(
        blur,
        lambda chosen: (_N // chosen["ROWS"], _N),
        lambda g: [floats(g, _N, _N), zeros(_N, _N)],
    ),
    Work(
        product,
        lambda chosen: (_K // chosen["SIZE"][0], _K // chosen["SIZE"][1] * 16),
        lambda g: [
            *(g.integers(-3, 4, (_K, _K)).astype(ml_dtypes.bfloat16) for _ in range(2)),
            zeros(_K, _K),
        ],
    ),
]


def row(work: Work, threads: int, budget: str, seconds: float, database: Path) -> dict[str, Any]:
    """Times in ms of the first guess and of the tuned kernel, what was chosen, and whether they
    agree."""
    arguments = work.arguments(np.random.default_rng(0))
    kernel, size = work.kernel, work.range
    tw.autotune(
        kernel,
        threads=threads,
        budget=budget,
        database=database,
        range=size,
        arguments=arguments,
    )
    calls: dict[str, Callable[[], object]] = {}
    results: list[Any] = []
    for side, tunables in (("first", {}), ("tuned", None)):
        passed = [argument.copy() for argument in arguments]

        def launch(passed: Any = passed, tunables: Any = tunables) -> None:
            kernel.launch(size, *passed, threads=threads, tunables=tunables)

        launch()
        results.append(passed[-1].copy())
        calls[side] = launch
    result = measure(calls, seconds=seconds, threads=threads)
    return {
        "kernel": kernel.name,
        "threads": threads,
        "ms": {side: timing.median * 1e3 for side, timing in result.times.items()},
        "chosen": {
            name: value for name, value in kernel.tuned(size, *arguments, threads=threads).items()
        },
        "wrong": not np.allclose(*results, 1e-4, 1e-4),
        "noise": list(result.noise),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of kernels that match this expression")
    parser.add_argument("--threads", type=int, action="append", help="default: 1 and 2")
    parser.add_argument("--budget", default="15s", help="of each search")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each side")
    parser.add_argument("--db", type=Path, help="a database, which keeps what was measured")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("| kernel | threads | first, ms | tuned, ms | ratio | chosen |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    with tempfile.TemporaryDirectory() as folder:
        database = args.db or Path(folder) / "tuned.db"
        for threads in args.threads or (1, 2):
            for work in WORKS:
                if re.search(args.only, work.kernel.name):
                    one = row(work, threads, args.budget, args.seconds, database)
                    first, tuned = one["ms"]["first"], one["ms"]["tuned"]
                    chosen = ", ".join(f"{n}={value}" for n, value in one["chosen"].items())
                    marks = " WRONG" if one["wrong"] else ""
                    print(
                        f"| {one['kernel']}{marks} | {threads} | {first:.3g} | {tuned:.3g} | "
                        f"{first / tuned:.2f} | {chosen} |",
                        flush=True,
                    )
                    rows.append(one)
    ratios = [one["ms"]["first"] / one["ms"]["tuned"] for one in rows]
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}x, least {min(ratios):.2f}x")
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if not rows or any(one["wrong"] for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
