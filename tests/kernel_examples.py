"""Kernels that are no op, as text, with arguments and what numpy makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Example:
    """``arguments`` makes the arguments from random numbers; ``wanted`` gives the results by name.

    Where results are ``exact``, every target gives the same; else they are within rounding.
    """

    text: str
    arguments: Callable[[np.random.Generator], dict[str, Any]]
    wanted: Callable[..., Arrays]
    exact: bool = True


def small(generator: np.random.Generator, *shape: int) -> Any:
    """Whole numbers whose sums are exact."""
    return generator.integers(-4, 5, shape).astype(np.float32)


def symbolic_matmul(m: str, n: str, k: str, access: str) -> str:
    """A matmul whose sizes are parameters, within such bounds."""
    return f"""kernel matmul(
    m: s64 in {m},
    n: s64 in {n},
    k: s64 in {k},
    in a: f32[m, k],
    in b: f32[k, n],
    {access} c: f32[m, n],
):
  compute zero(i in m, j in n):
    c[i, j] = 0.0
  compute main(i in m, j in n, p in k):
    x = a[i, p]
    y = b[p, j]
    c[i, j] add= x * y"""


PERCEPTRON = Example(
    """
    # Two layers: two contractions in one kernel.
    kernel perceptron(
        in x: f32[32, 64], in w1: f32[64, 96], in b1: f32[96], in w2: f32[96, 10],
        out y: f32[32, 10],
    ):
      alloc hidden: f32[32, 96]
      compute bias(m in 32, h in 96):
        hidden[m, h] = b1[h]
      compute first(m in 32, h in 96, k in 64):
        hidden[m, h] add= x[m, k] * w1[k, h]
      compute relu(m in 32, h in 96):
        hidden[m, h] = max(hidden[m, h], 0.0)
      compute clear(m in 32, n in 10):
        y[m, n] = 0.0
      compute second(m in 32, n in 10, h in 96):
        y[m, n] add= hidden[m, h] * w2[h, n]
    """,
    lambda g: {
        "x": small(g, 32, 64),
        "w1": small(g, 64, 96),
        "b1": small(g, 96),
        "w2": small(g, 96, 10),
    },
    lambda x, w1, b1, w2: {"y": np.maximum(x @ w1 + b1, 0) @ w2},
)

ARGMAX = Example(
    """
    kernel argmax(in src: f32[64, 100], out best: f32[64], out place: s64[64]):
      compute start(m in 64):
        best[m] = -inf
        place[m] = 100
      compute argmax(m in 64, k in 100):
        x = src[m, k]
        combiner first(v: f32, p: s64; w: f32, q: s64) from (-inf, 100) = select(
            v < w or v == w and q < p, w, v), select(v < w or v == w and q < p, q, p)
        best[m], place[m] first= x, k
    """,
    lambda g: {"src": g.permuted(np.tile(np.arange(100, dtype=np.float32), (64, 1)), axis=1)},
    lambda src: {"best": src.max(1), "place": src.argmax(1)},
)

WELFORD = Example(
    """
    # Mean and variance in one pass: how many, their mean, the sum of squared differences from it.
    kernel welford(in src: f32[64, 100], out mean: f32[64], out variance: f32[64]):
      alloc count: f32[64]
      compute start(m in 64):
        count[m] = 0.0
        mean[m] = 0.0
        variance[m] = 0.0
      compute welford(m in 64, k in 100):
        x = src[m, k]
        combiner both(n: f32, a: f32, s: f32; o: f32, b: f32, t: f32) from (0.0, 0.0, 0.0) = (
            n + o), (
            select(0.0 < n + o, a + (b - a) * o / (n + o), 0.0)), (
            select(0.0 < n + o, s + t + (b - a) * (b - a) * n * o / (n + o), 0.0))
        count[m], mean[m], variance[m] both= f32(1.0), x, f32(0.0)
      compute divide(m in 64):
        variance[m] = variance[m] / count[m]
    """,
    lambda g: {"src": g.standard_normal((64, 100), np.float32)},
    lambda src: {"mean": src.mean(1), "variance": src.var(1)},
    exact=False,
)

CUMULATIVE_SUM = Example(
    """
    kernel cumulative_sum(in src: f32[64, 100], out dst: f32[64, 100]):
      compute scan(m in 64, ordered k in 100):
        before = dst[m, k - 1 | 0 < k]
        dst[m, k] = before + src[m, k]
    """,
    lambda g: {"src": small(g, 64, 100)},
    lambda src: {"dst": np.cumsum(src, axis=1)},
)

GATHER = Example(
    """
    kernel gather(in table: f32[200, 24], in index: s32[50], out dst: f32[50, 24]):
      compute gather(m in 50, n in 24):
        i = index[m]
        dst[m, n] = table[s64(i), n]
    """,
    lambda g: {"table": small(g, 200, 24), "index": g.integers(0, 200, 50).astype(np.int32)},
    lambda table, index: {"dst": table[index]},
)

SCATTER_ADD = Example(
    """
    kernel scatter_add(in src: f32[50, 24], in index: s32[50], inout table: f32[20, 24]):
      compute scatter(m in 50, n in 24):
        i = index[m]
        table[s64(i), n] add= src[m, n]
    """,
    lambda g: {
        "src": small(g, 50, 24),
        "index": g.integers(0, 20, 50).astype(np.int32),
        "table": small(g, 20, 24),
    },
    lambda src, index, table: {"table": _added(table, index, src)},
)


def _added(table: Any, index: Any, src: Any) -> Any:
    result = table.copy()
    np.add.at(result, index, src)
    return result


NEWTON = Example(
    """
    # Square roots, each until it is right.
    kernel newton(in a: f32[40], out x: f32[40]):
      for i in 40:
        alloc error: f32[1] private
        x[i] = a[i]
        error[0] = 1.0
        while 0.000001 < error[0]:
          old: f32 = x[i]
          x[i] = 0.5 * (old + a[i] / old)
          error[0] = abs(x[i] - old) / x[i]
    """,
    lambda g: {"a": g.uniform(0.1, 1000, 40).astype(np.float32)},
    lambda a: {"x": np.sqrt(a)},
    exact=False,
)

HASH = Example(
    """
    # The finalizer of MurmurHash3 (Austin Appleby, public domain).
    kernel mixed(in key: u32[1000], out digest: u32[1000]):
      for i in 1000:
        a: u32 = (key[i] ^ (key[i] >> u32(16))) * u32(2246822507)
        b: u32 = (a ^ (a >> u32(13))) * u32(3266489909)
        digest[i] = b ^ (b >> u32(16))
    """,
    lambda g: {"key": g.integers(0, 2**32, 1000, dtype=np.uint32)},
    lambda key: {"digest": _mixed(key)},
)


def _mixed(key: Any) -> Any:
    a = (key ^ (key >> 16)) * np.uint32(2246822507)
    b = (a ^ (a >> 13)) * np.uint32(3266489909)
    return b ^ (b >> 16)


SCALE = Example(
    """
    # Sizes and the factor are known when it is called; sizes by the shapes of the arrays.
    kernel scale(
        m: s64 in 1..4096, n: s64 in 1..4096, alpha: f32, in a: f32[m, n], out c: f32[m, n]
    ):
      compute scale(i in m, j in n):
        c[i, j] = alpha * a[i, j]
    """,
    lambda g: {"alpha": 3.0, "a": small(g, *g.integers(1, 60, 2))},
    lambda alpha, a: {"c": np.float32(alpha) * a},
)

PRODUCT = Example(
    """
    kernel product(
        m: s64 in 1..512, n: s64 in 4..512 by 4, k: s64 in 1..512,
        in a: f32[m, k], in b: f32[k, n], out c: f32[m, n],
    ):
      compute clear(i in m, j in n):
        c[i, j] = 0.0
      compute product(i in m, j in n, p in k):
        c[i, j] add= a[i, p] * b[p, j]
    """,
    lambda g: {"a": small(g, m := int(g.integers(1, 60)), k := m + 7), "b": small(g, k, 24)},
    lambda a, b: {"c": a @ b},
)

EXAMPLES = {
    "perceptron": PERCEPTRON,
    "argmax": ARGMAX,
    "welford": WELFORD,
    "cumulative sum": CUMULATIVE_SUM,
    "gather": GATHER,
    "scatter-add": SCATTER_ADD,
    "Newton": NEWTON,
    "hash": HASH,
    "symbolic scale": SCALE,
    "symbolic product": PRODUCT,
}
