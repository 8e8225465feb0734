#!/usr/bin/env python3
"""Times ops that are no contraction on a processor beside PyTorch: norms, softmax, reductions,
functions of elements, copies; and large products of matrices.

The same as `tilewright bench` of each, in one run, by the peaks of this run. With ``--inductor``,
what `torch.compile` makes of PyTorch's call is a second way of the peer, of which the faster
counts. The ratio is the peer's time over ours: above 1, we are faster.

Exit status: 0, 1 if an op could not be measured.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright.bench.benchmark import benchmark
from tilewright.bench.peer import find_peers
from tilewright.bench.report import as_json, geometric_mean, print_table
from tilewright.bench.torch_tensors import Peers, load_torch
from tilewright.errors import TilewrightError
from tilewright.measure.peaks import contradictions, measure_peaks

EXAMPLES = """examples:
  python benchmarks/ops.py --threads 1
  python benchmarks/ops.py --only 'softmax|sum' --types f32 --inductor
  python benchmarks/ops.py --threads 1 --threads 2 --json ops
"""
SHAPES = ("4096x4096", "512x768", "32x128x128")
# What is reduced, and to what.
REDUCED = (
    *("4096x4096:4096x1", "4096x4096:1x4096", "4096x4096:1x1", "1000000:1"),
    *("64x56x56x64:64x56x56x1", "64x56x56x64:1x1x1x64"),
)
CHAIN = [
    tw.relu(),
    tw.unary("linear", 0.5, 1.0),
    tw.unary("clip", -2.0, 2.0),
    tw.unary("linear", 3.0, -1.0),
]
LARGE = "4096x4096"


def works(dtype: str) -> Iterator[tuple[str, str, Any]]:
    """The kind of work, what the table calls it, and the op."""
    for shape in SHAPES:
        last = shape.count("x")
        yield "softmax", shape, tw.softmax(shape, axis=last, dtype=dtype)
        yield "layer_norm", shape, tw.layer_norm(shape, dtype=dtype)
        yield "rms_norm", shape, tw.rms_norm(shape, dtype=dtype)
    for shape in ("mb4096ic4096", "mb512ic768", "mb32ic128iw128"):
        yield "batch_norm", shape, tw.batch_norm(shape, dtype=dtype)
    for kind in ("sum", "mean", "max"):
        for shape in REDUCED:
            yield kind, shape, tw.reduce(shape, algorithm=kind, dtype=dtype)
    for shape, axis in ((LARGE, 1), (LARGE, 0), ("1000000", 0), ("64x56x56x64", 3)):
        yield "argmax", f"{shape} along {axis}", tw.argmax(shape, axis=axis, dtype=dtype)
    for function, alpha in (("gelu_erf", 0.0), ("swish", 1.0), ("exp", 0.0), ("tanh", 0.0)):
        yield function, LARGE, tw.elementwise(LARGE, function, alpha, dtype=dtype)
    yield "five functions", LARGE, tw.elementwise(LARGE, "abs", dtype=dtype, epilogue=CHAIN)
    for rows, columns, many in ((30522, 768, 4096), (32000, 4096, 512)):
        name = f"{rows}x{columns}:{many}"
        yield "embedding", name, tw.embedding(rows, columns, (many,), dtype=dtype)
    for shape in ("4096x4096", "512x768"):
        yield "gather", f"{shape}:512", tw.gather(f"{shape}:512", dtype=dtype)
        yield "concat", f"{shape}:{shape}", tw.concat(f"{shape}:{shape}", dtype=dtype)
        yield "transpose", shape, tw.transpose(f"{shape}:1x0", dtype=dtype)
    for size in (2048, 4096):
        name = f"{size}x{size}:{size}x{size}"
        yield "matmul", name, tw.matmul(name, dtype=dtype)


def with_inductor(op: Any, threads: int) -> Peers:
    """PyTorch's ways, and what its compiler makes of each."""
    torch = load_torch()
    # Its compiler gives up on a function after some shapes, and runs it as it is: it starts anew.
    torch.compiler.reset()
    peers = find_peers(op, threads)
    return {
        name: [*calls, *(torch.compile(call, dynamic=False) for call in calls)]
        for name, calls in peers.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, action="append", help="may be repeated")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--only", default="", help="work whose name matches this expression")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each side")
    parser.add_argument("--inductor", action="store_true", help="torch.compile is a way, too")
    parser.add_argument("--json", type=Path, help="write figures to FILE.THREADS.json")
    args = parser.parse_args()
    failed = 0
    for threads in args.threads or [1]:
        failed += run(args, threads)
    return 1 if failed else 0


def run(values: argparse.Namespace, threads: int) -> int:
    """The table of so many threads; how many could not be measured."""
    peaks = measure_peaks(threads)
    compile = partial(tw.compile, target="x86", threads=threads)
    peers = with_inductor if values.inductor else find_peers
    rows, failed = [], 0
    for dtype in values.types.split(","):
        for kind, name, op in works(dtype):
            label = f"{kind} {dtype} {name}"
            if not re.search(values.only, label):
                continue
            print(f"\r{label:60}", end="", file=sys.stderr, flush=True)
            try:
                row = benchmark(
                    *(op, label, compile, peaks), label=label, seconds=values.seconds, peers=peers
                )
            except TilewrightError as error:
                failed += 1
                print(f"\r{label}: {error}", file=sys.stderr)
                continue
            rows.append(row)
    print(f"\r{'':60}\r", end="", file=sys.stderr)
    if not rows:
        return failed
    doubts = contradictions(peaks, measure_peaks(threads))
    print_table(rows, peaks, doubts=doubts)
    kinds: dict[str, list[float]] = {}
    for row in rows:
        if row.ratio is not None:
            kinds.setdefault(" ".join(row.name.split()[:-1]), []).append(row.ratio)
    for kind, ratios in kinds.items():
        print(f"{kind}: geometric mean {geometric_mean(ratios):.2f}, worst {min(ratios):.2f}")
    if values.json:
        file = values.json.with_suffix(f".{threads}.json")
        file.write_text(json.dumps(as_json(rows, peaks, True, doubts), indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
