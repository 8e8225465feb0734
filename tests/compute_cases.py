"""Kernels of structured ops with several results, combiners, ordered dims and loaded places, each
with what it computes in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import interpret
from tilewright.ir.stmt import Kernel

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A kernel's text; arrays for its parameters, those that it writes too; what these become."""

    text: str
    arrays: Callable[[np.random.Generator], Arrays]
    wanted: Callable[[Arrays], Arrays]
    tolerance: float = 0.0


def run(kernel: Kernel, arrays: dict[str, Any]) -> dict[str, Any]:
    """What the interpreter makes of ``arrays``."""
    flat = {name: array.ravel().copy() for name, array in arrays.items()}
    interpret.run(kernel, flat)
    return {name: flat[name].reshape(array.shape) for name, array in arrays.items()}


def check(kernel: Kernel, case: Case, seed: int = 0) -> None:
    arrays = case.arrays(np.random.default_rng(seed))
    values = run(kernel, arrays)
    expected = case.wanted(arrays)
    assert expected
    for name, wanted in expected.items():
        np.testing.assert_allclose(
            values[name], wanted, case.tolerance, case.tolerance, err_msg=name
        )


def _normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def _integers(rng: np.random.Generator, high: int, *shape: int) -> Any:
    return rng.integers(0, high, shape).astype(np.float32)


def _zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


# Ties go to the first, as the combiner says: the order of the points is free.
ARGMAX = Case(
    """
kernel argmax(in src: f32[6, 40], out best: f32[6], out place: s64[6]):
  compute start(i in 6):
    best[i] = -inf
    place[i] = 1000
  compute argmax(m in 6, k in 40):
    x = src[m, k]
    combiner first(v: f32, p; w: f32, q) from (-inf, 1000) = select(
      w > v or w == v and q < p, w, v), select(w > v or w == v and q < p, q, p)
    best[m], place[m] first= x, k
""",
    lambda rng: {
        "src": _integers(rng, 9, 6, 40),
        "best": _zeros(6),
        "place": _zeros(6, dtype="i8"),
    },
    lambda a: {"best": a["src"].max(1), "place": a["src"].argmax(1)},
)

# Chan, Golub, LeVeque: "Updating formulae and a pairwise algorithm for computing sample variances".
WELFORD = Case(
    """
kernel welford(in src: f32[5, 37], out mean: f32[5], out variance: f32[5]):
  alloc n: f32[5] private
  alloc m: f32[5] private
  alloc m2: f32[5] private
  compute start(i in 5):
    n[i] = 0.0
    m[i] = 0.0
    m2[i] = 0.0
  compute moments(i in 5, k in 37):
    x = src[i, k]
    combiner joined(na: f32, ma: f32, sa: f32; nb: f32, mb: f32, sb: f32) from (
      0.0, 0.0, 0.0) = na + nb, ma + (mb - ma) * (nb / max(na + nb, 1.0)), sa + sb + (
      (mb - ma) * (mb - ma)) * (na * nb / max(na + nb, 1.0))
    n[i], m[i], m2[i] joined= 1.0, x, 0.0
  compute finish(i in 5):
    a = m[i]
    s = m2[i]
    c = n[i]
    mean[i] = a
    variance[i] = s / c
""",
    lambda rng: {"src": _normal(rng, 5, 37), "mean": _zeros(5), "variance": _zeros(5)},
    lambda a: {"mean": a["src"].mean(1), "variance": a["src"].var(1)},
    1e-5,
)

LOG_SUM_EXP = Case(
    """
kernel log_sum_exp(in src: f32[7, 24], out dst: f32[7]):
  alloc top: f32[7] private
  alloc total: f32[7] private
  compute start(i in 7):
    top[i] = -inf
    total[i] = 0.0
  compute sums(i in 7, k in 24):
    x = src[i, k]
    combiner lse(ma: f32, sa: f32; mb: f32, sb: f32) from (-inf, 0.0) = max(ma, mb), select(
      ma == -inf, 0.0, sa * exp(ma - max(ma, mb))) + select(
      mb == -inf, 0.0, sb * exp(mb - max(ma, mb)))
    top[i], total[i] lse= x, 1.0
  compute finish(i in 7):
    m = top[i]
    s = total[i]
    dst[i] = m + log(s)
""",
    lambda rng: {"src": _normal(rng, 7, 24), "dst": _zeros(7)},
    lambda a: {"dst": np.log(np.exp(a["src"].astype(np.float64)).sum(1))},
    1e-5,
)

INCLUSIVE = Case(
    """
kernel inclusive(in src: f32[6, 20], out dst: f32[6, 20]):
  compute scan(m in 6, ordered k in 20):
    x = src[m, k]
    before = dst[m, k - 1 | k > 0]
    dst[m, k] = before + x
""",
    lambda rng: {"src": _integers(rng, 50, 6, 20), "dst": _zeros(6, 20)},
    lambda a: {"dst": a["src"].cumsum(1)},
)

EXCLUSIVE = Case(
    """
kernel exclusive(in src: f32[20, 6], out dst: f32[20, 6], inout total: f32[6]):
  compute scan(ordered k in 20, m in 6):
    x = src[k, m]
    before = total[m]
    dst[k, m] = before
    total[m] = before + x
""",
    lambda rng: {"src": _integers(rng, 50, 20, 6), "dst": _zeros(20, 6), "total": _zeros(6)},
    lambda a: {
        "dst": np.concatenate((_zeros(1, 6), a["src"].cumsum(0)[:-1])),
        "total": a["src"].sum(0),
    },
)


def _recurrence(a: Arrays) -> Arrays:
    state = np.zeros(5, np.float64)
    rows = []
    for k in range(16):
        state = a["decay"][:, k].astype(np.float64) * state + a["src"][:, k]
        rows.append(state)
    return {"dst": np.stack(rows, 1)}


RECURRENCE = Case(
    """
kernel recurrence(in src: f32[5, 16], in decay: f32[5, 16], out dst: f32[5, 16]):
  compute recur(m in 5, ordered k in 16):
    x = src[m, k]
    d = decay[m, k]
    before = dst[m, k - 1 | k > 0]
    dst[m, k] = d * before + x
""",
    lambda rng: {
        "src": _normal(rng, 5, 16),
        "decay": rng.random((5, 16), np.float32),
        "dst": _zeros(5, 16),
    },
    _recurrence,
    1e-6,
)

GATHER = Case(
    """
kernel gather(in table: f32[9, 8], in index: s32[5], out dst: f32[5, 8]):
  compute rows(m in 5, n in 8):
    i = index[m]
    x = table[s64(i), n]
    dst[m, n] = x
""",
    lambda rng: {
        "table": _normal(rng, 9, 8),
        "index": rng.integers(0, 9, 5).astype(np.int32),
        "dst": _zeros(5, 8),
    },
    lambda a: {"dst": a["table"][a["index"]]},
)


def _scatter_added(a: Arrays) -> Arrays:
    dst = a["dst"].copy()
    np.add.at(dst, a["index"], a["src"])
    return {"dst": dst}


SCATTER_ADD = Case(
    """
kernel scatter_add(in src: f32[30, 8], in index: s32[30], inout dst: f32[9, 8]):
  compute add_rows(m in 30, n in 8):
    i = index[m]
    x = src[m, n]
    dst[s64(i), n] add= x
""",
    lambda rng: {
        "src": _integers(rng, 9, 30, 8),
        "index": rng.integers(0, 9, 30).astype(np.int32),
        "dst": _integers(rng, 9, 9, 8),
    },
    _scatter_added,
)


def _scattered(a: Arrays) -> Arrays:
    dst = a["dst"].copy()
    dst[a["index"]] = a["src"]
    return {"dst": dst}


SCATTER = Case(
    """
kernel scatter(in src: f32[7, 8], in index: s64[7], inout dst: f32[9, 8]):
  compute rows(m in 7, n in 8):
    i = index[m]
    x = src[m, n]
    unique dst[i, n] = x
""",
    lambda rng: {
        "src": _normal(rng, 7, 8),
        "index": rng.permutation(9)[:7].astype(np.int64),
        "dst": _zeros(9, 8),
    },
    _scattered,
)

HISTOGRAM = Case(
    """
kernel histogram(in src: u8[500], out counts: s32[256]):
  compute start(i in 256):
    counts[i] = s32(0)
  compute count(k in 500):
    x = src[k]
    counts[s64(x)] add= s32(1)
""",
    lambda rng: {
        "src": rng.integers(0, 256, 500).astype(np.uint8),
        "counts": _zeros(256, dtype=np.int32),
    },
    lambda a: {"counts": np.bincount(a["src"], minlength=256)},
)

# Two sums of one load, one of them over another dim; and a product with the old value.
SUMS = Case(
    """
kernel sums(in src: f32[6, 10], inout rows: f32[6], inout columns: f32[10], inout most: f32[6]):
  compute both(m in 6, k in 10):
    x = src[m, k]
    rows[m] add= x
    columns[k] add= x * x
    most[m] max= x
""",
    lambda rng: {
        "src": _integers(rng, 9, 6, 10),
        "rows": _integers(rng, 9, 6),
        "columns": _zeros(10),
        "most": _zeros(6),
    },
    lambda a: {
        "rows": a["rows"] + a["src"].sum(1),
        "columns": (a["src"] ** 2).sum(0),
        "most": a["src"].max(1),
    },
)

# Each result has what the other had: old values are read first.
SWAP = Case(
    """
kernel swap(inout a: f32[4, 9], inout b: f32[4, 9]):
  compute swap(i in 4, j in 9):
    x = a[i, j]
    y = b[i, j]
    a[i, j] = y
    b[i, j] = x
""",
    lambda rng: {"a": _normal(rng, 4, 9), "b": _normal(rng, 4, 9)},
    lambda a: {"a": a["b"], "b": a["a"]},
)

CASES = {name.lower(): case for name, case in list(globals().items()) if isinstance(case, Case)}
