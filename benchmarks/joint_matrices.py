#!/usr/bin/env python3
"""Times a product by a user's joint matrices beside our own op on a processor, weights packed.

Both sides run in turn on the same numbers; results are compared first. The ratio is the time of
`tw.matmul` over the kernel's: above 1, the kernel is faster.

Exit status: 0, 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.dtypes import dtype
from tilewright.measure.rounds import measure

EXAMPLES = """examples:
  python benchmarks/joint_matrices.py --threads 1
  python benchmarks/joint_matrices.py --types bf16 --tile 128x128x64 --size 512
"""


@tw.kernel(subgroup=16)
def product(
    a: tw.array("T", 2),
    b: tw.array("T", 2),
    c: tw.array("f32", 2),
    kind: tw.constant,
    tile: tw.constant,
):
    m, n, k = tile
    row, col = tw.group_id(0) * m, tw.group_id(1) * n
    tile_a = tw.joint_matrix("a", m, k, kind)
    tile_b = tw.joint_matrix("b", k, n, kind)
    total = tw.joint_matrix("accumulator", m, n, "f32")
    total.fill(0.0)
    for start in range(0, a.shape[1], k):
        tile_a.load(a, (row, start))
        tile_b.load(b, (start, col))
        total.mad(tile_a, tile_b)
    total.store(c, (row, col))


def compare(kind: str, size: int, tile: tuple[int, int, int], threads: int, rounds: float) -> bool:
    """Prints both sides' medians; whether the results agree."""
    g = np.random.default_rng(0)
    a, b = (g.standard_normal((size, size)).astype(dtype(kind).numpy) for _ in range(2))
    c, y = np.zeros((size, size), np.float32), np.zeros((size, size), np.float32)
    m, n, _ = tile

    def kernel() -> Any:
        whole = (size // m, size // n * 16)
        product.launch(whole, a, b, c, kind, tile, local=(1, 16), threads=threads)

    shape = f"{size}x{size}:{size}x{size}"
    op = tw.compile(tw.matmul(shape, dtype=f"{kind}:{kind}:f32"), threads=threads)
    packed = op.pack("weights", b)

    def own() -> Any:
        op(src=a, weights=packed, out=y)

    kernel()
    own()
    right = bool(np.allclose(c, y, rtol=1e-2, atol=1e-2 * size**0.5))
    result = measure({"kernel": kernel, "own": own}, seconds=rounds, threads=threads)
    us = {side: timing.median * 1e6 for side, timing in result.times.items()}
    print(
        f"{kind:5} {size}^3 tile {'x'.join(map(str, tile)):12} {us['kernel'] / 1e3:8.2f} ms "
        f"{us['own'] / 1e3:8.2f} ms {us['own'] / us['kernel']:6.2f}x{'' if right else '  WRONG'}",
        flush=True,
    )
    return right


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--types", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--size", type=int, default=1024, help="of each dim, a multiple of tiles")
    parser.add_argument("--tile", action="append", help="rows x columns x depth; may be repeated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each side")
    args = parser.parse_args()
    right = True
    for kind in args.types:
        for text in args.tile or ["512x128x128"]:
            m, n, k = map(int, text.split("x"))
            right &= compare(kind, args.size, (m, n, k), args.threads, args.seconds)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
