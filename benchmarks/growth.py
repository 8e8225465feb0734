#!/usr/bin/env python3
"""Times how compiling a graph grows with its length.

Graphs of so many computes: blocks of products, norms, softmaxes, shifts and residuals on sizes that
differ from block to block, as the networks that take longest to compile have them. Of each, seconds
for every phase: the builder, each pass, cutting into groups, the plan of memory; then all of
`tw.compile` with an empty cache and (in the same process) from the caches. The last column is the
exponent by which the phase grew since the graph before: 1 is as fast as its length.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = """examples:
  python benchmarks/growth.py 500 1000 2000 4000
  python benchmarks/growth.py 500 1000 --compile --threads 2 --json growth.json
"""
SHORTEST = 0.02  # seconds below which an exponent says nothing


def network(computes: int, different: int, rows: int = 32) -> Any:
    """A graph of about so many computes, whose blocks have ``different`` sizes in turn."""
    import numpy as np

    from tilewright.ir.stmt import Compute
    from tilewright.ir.visit import walk_stmts
    from tilewright.tensor.contractions import matmul
    from tilewright.tensor.elementwise import elementwise
    from tilewright.tensor.nn.norms import softmax, standardized
    from tilewright.tensor.tensor import Builder
    from tilewright.tensor.views import broadcast_to, reshape, slice_, transpose

    rng = np.random.default_rng(0)

    def built(blocks: int) -> Any:
        builder = Builder("network")
        now = builder.input("x", "f32", (rows, 64))

        def constant(*shape: int) -> Any:
            return builder.constant(rng.standard_normal(shape).astype(np.float32) * 0.1)

        def add(a: Any, b: Any) -> Any:
            return elementwise(lambda x, y: x + y, a, broadcast_to(b, a.shape), name="add")

        for block in range(blocks):
            with builder.at(f"block_{block}"):
                wide = 64 + 4 * (block % different)
                normed = standardized(now, [1], (None, None), 1e-5, now.dtype).result
                hidden = add(matmul(normed, constant(64, wide)), constant(wide))
                hidden = elementwise(lambda x: x * x, hidden, name="square")
                fourth = wide // 4
                parts = [slice_(hidden, (0, k * fourth), (rows, (k + 1) * fourth)) for k in (0, 1)]
                mixed = softmax(matmul(parts[0], transpose(parts[1], (1, 0))), 1, now.dtype)
                turned = transpose(reshape(mixed, (4, rows // 4, rows)), (1, 0, 2))
                back = matmul(reshape(turned, (rows, rows)), constant(rows, 64))
                now = builder.materialize(add(now, add(back, constant(64))))
        builder.output("y", now)
        return builder.kernel()

    def count(kernel: Any) -> int:
        return sum(isinstance(stmt, Compute) for stmt in walk_stmts(kernel.body))

    one = count(built(2)) - count(built(1))
    return built(max(1, computes // one))


def phases(computes: int, different: int, values: argparse.Namespace) -> dict[str, float]:
    """Seconds of each phase."""
    from tilewright.graph.cutting import cut_graph
    from tilewright.graph.graph import Graph
    from tilewright.graph.memory import lifetimes, plan
    from tilewright.graph.passes.pipeline import PASSES
    from tilewright.ir.printer import to_text

    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        done = work()
        seconds[name] = time.process_time() - start
        return done

    kernel = whole = timed("build", lambda: network(computes, different, values.rows))
    timed("print", lambda: to_text(whole))
    for graph_pass in PASSES:
        kernel = timed(graph_pass.name, lambda: graph_pass.function(kernel))  # noqa: B023
    cut = timed("cut", lambda: cut_graph(kernel))
    timed("plan", lambda: plan(lifetimes(cut)))
    seconds["graph"] = sum(seconds.values())
    if values.compile:
        import tilewright as tw

        compiled: Any = timed("compile", lambda: tw.compile(Graph(whole), threads=values.threads))
        timed("again", lambda: tw.compile(Graph(whole), threads=values.threads))
        seconds["kernels"] = len(compiled.groups)
        seconds["launches"] = len(compiled.launches)
    return seconds


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lengths", nargs="*", type=int, default=[500, 1000, 2000, 4000])
    parser.add_argument("--different", type=int, default=8, help="sizes of blocks in turn")
    parser.add_argument("--rows", type=int, default=32, help="1024: products leave a cache")
    parser.add_argument("--compile", action="store_true", help="compile them, too")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    if "TILEWRIGHT_CACHE_DIR" not in os.environ or args.compile:
        os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp(prefix="growth-")
    network(16, 1)  # What is loaded the first time counts for none.
    result = {length: phases(length, args.different, args) for length in args.lengths}
    names = list(result[args.lengths[0]])
    print(f"{'phase':<10}" + "".join(f"{length:>10}" for length in args.lengths) + "  exponent")
    for name in names:
        values = [result[length][name] for length in args.lengths]
        growth = ""
        if len(values) > 1 and values[-2] >= SHORTEST:
            longer = math.log(args.lengths[-1] / args.lengths[-2])
            growth = f"{math.log(values[-1] / values[-2]) / longer:>10.2f}"
        print(f"{name:<10}" + "".join(f"{value:>10.3f}" for value in values) + growth)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
