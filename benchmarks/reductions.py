#!/usr/bin/env python3
"""Times kernels that are no contraction beside PyTorch on a processor: softmax, norms, sums.

Each is a kernel's text, of which nothing but its structure is known. Both sides run in turn, on
outputs that are allocated beforehand where PyTorch takes them; results are compared first. The
ratio is PyTorch's time over ours: above 1, we are faster.

Exit status: 0, 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any

import tilewright as tw
from tilewright.bench.torch_tensors import load_torch
from tilewright.measure.rounds import measure

EXAMPLES = """examples:
  python benchmarks/reductions.py --threads 1
  python benchmarks/reductions.py --only 'softmax|sum' --shape 512x768
"""
SHAPES = ("4096x4096", "512x768", "512x1003", "1x1000000")
Run = Callable[[], Any]

SOFTMAX = """
kernel softmax(in x: f32[{n}, {m}], out y: f32[{n}, {m}]):
  alloc largest: f32[{n}]
  alloc e: f32[{n}, {m}]
  alloc total: f32[{n}]
  compute start(i in {n}):
    largest[i] = -inf
  compute find(i in {n}, j in {m}):
    largest[i] max= x[i, j]
  compute exponential(i in {n}, j in {m}):
    e[i, j] = exp(x[i, j] - largest[i])
  compute zero(i in {n}):
    total[i] = 0.0
  compute sum(i in {n}, j in {m}):
    total[i] add= e[i, j]
  compute divide(i in {n}, j in {m}):
    y[i, j] = e[i, j] / total[i]
"""
# Of the points along {d}, {count}, for each {k}.
NORM = """
kernel norm(in x: f32[{n}, {m}], out y: f32[{n}, {m}]):
  alloc sum: f32[{kept}]
  alloc mean: f32[{kept}]
  alloc squares: f32[{kept}]
  alloc scale: f32[{kept}]
  compute zero({k} in {kept}):
    sum[{k}] = 0.0
  compute total(i in {n}, j in {m}):
    sum[{k}] add= x[i, j]
  compute average({k} in {kept}):
    mean[{k}] = sum[{k}] / {count}.0
  compute zero_squares({k} in {kept}):
    squares[{k}] = 0.0
  compute add_squares(i in {n}, j in {m}):
    squares[{k}] add= (x[i, j] - mean[{k}]) * (x[i, j] - mean[{k}])
  compute deviation({k} in {kept}):
    scale[{k}] = 1.0 / sqrt(squares[{k}] / {count}.0 + 0.00001)
  compute result(i in {n}, j in {m}):
    y[i, j] = (x[i, j] - mean[{k}]) * scale[{k}]
"""
REDUCE = """
kernel reduce(in x: f32[{n}, {m}], out y: f32[{kept}]):
  compute start({dims}):
    y[{k}] = {begin}
  compute main(i in {n}, j in {m}):
    y[{k}] {how}= x[i, j]
"""
PLACE = """
kernel place(in x: f32[{n}, {m}], out y: s64[{kept}]):
  alloc best: f32[{kept}]
  compute start({k} in {kept}):
    best[{k}] = -inf
    y[{k}] = {count}
  compute find(i in {n}, j in {m}):
    x = x[i, j]
    combiner first(v: f32, p; w: f32, q) from (-inf, {count}) = {values}
    best[{k}], y[{k}] first= x, {d}
"""
VALUES = ", ".join(f"select(v < w or v == w and q < p, {each})" for each in ("w, v", "q, p"))


def texts(n: int, m: int) -> dict[str, str]:
    """The kernels, by name."""
    rows: dict[str, Any] = {"n": n, "m": m, "k": "i", "kept": n, "d": "j", "count": m}
    columns: dict[str, Any] = {"n": n, "m": m, "k": "j", "kept": m, "d": "i", "count": n}
    found = {
        "softmax": SOFTMAX.format(**rows),
        "layer_norm": NORM.format(**rows),
        "batch_norm": NORM.format(**columns),
        "argmax_rows": PLACE.format(**rows, values=VALUES),
        "argmax_columns": PLACE.format(**columns, values=VALUES),
    }
    for name, how, begin in (("sum", "add", "0.0"), ("max", "max", "-inf")):
        given = {"how": how, "begin": begin}
        found[f"{name}_rows"] = REDUCE.format(**rows, dims=f"i in {n}", **given)
        found[f"{name}_columns"] = REDUCE.format(**columns, dims=f"j in {m}", **given)
        whole = {"n": n, "m": m, "kept": 1, "dims": "", "k": 0}
        found[f"{name}_all"] = REDUCE.format(**whole, **given)
    return found


def peer(torch: Any, name: str, x: Any, y: Any) -> Run:
    """PyTorch's side, which gives its result."""
    functions = torch.nn.functional
    axis = 1 if name.endswith("rows") else 0
    by_name: dict[str, Run] = {
        "softmax": lambda: torch.softmax(x, 1, out=y),
        "layer_norm": lambda: functions.layer_norm(x, x.shape[1:]),
        "batch_norm": lambda: functions.batch_norm(x, None, None, training=True),
        "sum_all": lambda: torch.sum(x),
        "max_all": lambda: torch.amax(x),
    }
    of_axis = {"sum": torch.sum, "max": torch.amax, "argmax": torch.argmax}
    return by_name.get(name) or (lambda: of_axis[name.partition("_")[0]](x, axis, out=y))


def compare(torch: Any, name: str, text: str, threads: int, seconds: float) -> bool:
    """Prints both sides' medians; whether the results agree."""
    kernel = tw.parse_kernel(text)
    made = tw.compile(kernel, threads=threads)
    source, result = (param.buffer for param in kernel.arrays)
    x = torch.randn(source.shape)
    kind = torch.float32 if result.dtype.is_float else torch.int64
    y = torch.zeros(result.shape, dtype=kind)
    ours = made.bind(x=x, y=y)
    ours()
    given = y.double().flatten()
    theirs = peer(torch, name, x, y)
    wanted = theirs().double().flatten()
    # What is added up in another order is off by as much as steps of a random walk.
    slack = 1e-6 * x.numel() ** 0.5 if name.startswith("sum") else 1e-5
    right = bool(torch.allclose(given, wanted, rtol=1e-4, atol=slack))
    found = measure({"ours": ours, "torch": theirs}, seconds=seconds, threads=threads)
    us = {side: timing.median * 1e6 for side, timing in found.times.items()}
    moved = (x.numel() + y.numel()) * 4 / us["ours"] / 1e3
    ratio = us["torch"] / us["ours"]
    shape = "x".join(map(str, source.shape))
    verdict = "" if right else "  WRONG"
    print(
        f"{name:16} {shape:12} {us['ours']:10.1f} us {us['torch']:10.1f} us "
        f"{ratio:6.2f}x {moved:7.1f} GB/s{verdict}",
        flush=True,
    )
    return right


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of kernels that match this expression")
    parser.add_argument("--shape", action="append", help="rows x columns; may be repeated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each side")
    given = parser.parse_args()
    torch = load_torch()
    torch.set_num_threads(given.threads)
    right = True
    for shape in given.shape or SHAPES:
        n, m = map(int, shape.split("x"))
        for name, text in texts(n, m).items():
            if re.search(given.only, name):
                right &= compare(torch, name, text, given.threads, given.seconds)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
