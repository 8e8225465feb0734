"""Kernels of symbolic sizes, compiled once and run at many: by text, and random ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from kernel_examples import symbolic_matmul
from skips import lacking
from sweeps import in_turns
from symbolic_runs import compiled, difference_at, fault_of
from tilewright.ir import parse_kernel, to_text, verify
from tilewright.passes import run as run_passes
from tilewright.schedule.loops.lower import lower_computes
from tilewright.schedule.loops.tile import tile
from tilewright.targets.program import abi_of
from tilewright.targets.registry import find_target

ELEMENTWISE = """kernel scale(
    m: s64 in 0..300,
    n: s64 in 0..300,
    alpha: f32,
    in a: f32[m, n],
    out c: f32[m, n],
):
  compute scale(i in m, j in n):
    x = a[i, j]
    c[i, j] = x * alpha + 1.0"""

MATMUL = symbolic_matmul("1..4096", "1..4096", "0..4096", "inout")

BLOCKED = """kernel blocked(
    m: s64 in 1..40,
    n: s64 in 1..100,
    pad: s64 in 0..3,
    in a: s32[m, n] {0:m:(n + pad) 1:n:1 +pad},
    inout c: s32[m, n] {1:((n + 15) // 16):(m * 16) 0:m:16 1:16:1},
):
  compute copy(i in m, j in n):
    x = a[i, j]
    c[i, j] = x * s32(3)"""

WORKSPACE = """kernel turned(
    m: s64 in 1..40,
    n: s64 in 1..40,
    in a: s32[m, n],
    inout c: s32[m, n],
):
  alloc w: s32[n + 1, m]
  compute turn(i in m, j in n):
    x = a[i, j]
    w[j, i] = x + s32(1)
  compute back(i in m, j in n):
    x = w[j, i]
    c[i, j] = x * s32(2)"""

# Multiplied out, the distance to the last of `planes` has a constant that its factors have not.
PLANES = """kernel planes(
    m: s64 in 1..40,
    n: s64 in 1..40,
    in a: s32[3, m + 1, n + 1],
    inout c: s32[n],
):
  compute last(j in n):
    x = a[2, 1, j]
    c[j] = x"""

CALLS = {
    ELEMENTWISE: [{"m": m, "n": n, "alpha": 0.5} for m, n in ((1, 1), (7, 33), (300, 2), (0, 5))],
    MATMUL: [{"m": m, "n": n, "k": k} for m, n, k in ((1, 1, 1), (17, 33, 9), (4, 64, 0))],
    BLOCKED: [{"m": m, "n": n, "pad": p} for m, n, p in ((1, 1, 0), (3, 17, 2), (40, 100, 3))],
    PLANES: [{"m": m, "n": n} for m, n in ((1, 1), (2, 5), (40, 40))],
    WORKSPACE: [{"m": m, "n": n} for m, n in ((1, 1), (3, 17), (40, 40))],
}


@pytest.mark.parametrize("target", ["x86", "spirv", "nvidia:sm_80"])
@pytest.mark.parametrize("text", CALLS, ids=lambda text: text.split("(")[0].split()[1])
def test_kernels_of_any_size(text: str, target: str, request: pytest.FixtureRequest) -> None:
    kernel = parse_kernel(text)
    verify(kernel)
    _, binary, program = compiled(kernel, find_target(target))
    assert binary
    for seed, numbers in enumerate(CALLS[text] if program is not None else []):
        assert program is not None
        assert difference_at(kernel, program, numbers, seed) is None


@pytest.mark.parametrize(
    ("target", "part"), in_turns(2, ["x86", "spirv", "nvidia:sm_80"], range(2))
)
def test_random_kernels_with_symbols(target: str, part: int) -> None:
    for number in range(8):
        seed = part + 2 * number
        assert fault_of(seed, find_target(target)) is None, f"seed {seed}"


def test_a_tiled_matmul_of_any_size() -> None:
    kernel = tile(parse_kernel(MATMUL), "main", {"i": 4, "j": 32}, ["i", "j"])
    kernel = lower_computes(kernel, vector="j", lanes=16)
    verify(kernel)
    # Constants inside, the tail by masks: vectors have a length that is a number.
    assert "vector for j in 16:" in to_text(kernel)
    target = find_target("x86")
    kernel = run_passes(kernel)
    module = target.lower(kernel)
    if not target.runs_here:
        lacking("this processor runs no x86 code")
    program = target.load(target.assemble(module), abi_of(kernel, module))
    for seed, (m, n, k) in enumerate(((1, 1, 1), (5, 31, 3), (4, 32, 8), (33, 65, 7))):
        numbers = {"m": m, "n": n, "k": k}
        assert difference_at(parse_kernel(MATMUL), program, numbers, seed) is None


def test_pointers_are_moved_by_strides_that_are_values() -> None:
    text = """kernel turn(m: s64 in 1.., n: s64 in 1.., in a: f32[n, m], out c: f32[m, n]):
  for i in m:
    for j in n:
      c[i, j] = a[j, i]"""
    module = find_target("x86").lower(parse_kernel(text)).text
    inner = module[module.rindex("phi ptr") :]
    # In the innermost loop pointers move; the strides were multiplied out before it.
    assert "mul" not in inner[: inner.index("br i1")]
    assert re.search(r"getelementptr i8, ptr %p\d+, i64 %v\d+", inner)


def test_indices_are_as_wide_as_the_bounds_of_symbols_ask() -> None:
    bounded = """kernel k(n: s64 in 1..1000, in a: f32[n, n], out c: f32[n, n]):
  grid for g in 8:
    workgroup for t in 32:
      for i in n:
        if t < n:
          c[i, t] = a[(i + g) % n, t]"""
    target = find_target("nvidia:sm_80")

    def width(text: str) -> set[str]:
        module = target.lower(parse_kernel(text))
        return set(re.findall(r"[su]rem (i\d+)", module.text))

    assert width(bounded) == {"i32"}
    assert width(bounded.replace("1..1000", "1..")) == {"i64"}


def test_rows_of_a_promised_multiple_are_aligned() -> None:
    text = """kernel k(n: s64 in 16.. by 16, in a: f32[64, n], out c: f32[64, n]):
  grid for g in 1:
    workgroup for t in 32:
      for i in 64:
        vector for j in 4:
          c[i, j] = a[i, j]"""

    def alignment(text: str) -> set[str]:
        module = find_target("nvidia:sm_80").lower(parse_kernel(text))
        return set(re.findall(r"load <4 x float>, ptr \S+ \S+ align (\d+)", module.text))

    assert alignment(text) == {"16"}
    assert alignment(text.replace("16.. by 16", "16..")) == {"4"}


ROWS = """kernel rows(
    l: s64 in 0..9,
    m: s64 in 0..9,
    n: s64 in 0..9,
    inout c: s64[l, m, 2, n],
):
  parallel for i in l:
    parallel for j in m:
      parallel for k in 2:
        parallel for o in n:
          c[i, j, k, o] = c[i, j, k, o] + ((i * 10 + j) * 10 + k) * 10 + o"""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("known", [2, 3])
def test_parallel_loops_of_open_extents(threads: int, known: int) -> None:
    """Threads begin and end in the middle of rows."""
    text = ROWS
    if known == 3:
        text = (
            text.replace("2, n]", "n, 2]").replace("k in 2", "k in n").replace("o in n", "o in 2")
        )
    kernel = tw.compile(parse_kernel(text), "x86", threads=threads)
    for rows, m, n in ((3, 5, 4), (1, 1, 1), (4, 1, 7), (1, 9, 1), (2, 0, 3)):
        shape = (rows, m, 2, n) if known == 2 else (rows, m, n, 2)
        result = kernel(l=rows, m=m, n=n, c=np.ones(shape, np.int64))
        digits = sum(index * 10 ** (3 - place) for place, index in enumerate(np.indices(shape)))
        np.testing.assert_array_equal(result, digits + 1)
