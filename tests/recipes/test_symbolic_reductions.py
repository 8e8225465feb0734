"""Elementwise work and reductions whose sizes a call passes: as one loop, on all threads, past the
caches where results do not stay there."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ScheduleError
from tilewright.interpret import run as interpret
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import bind_scalars
from tilewright.ir.verify import verify
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.loops.parallelize_parts import parallelize_parts
from tilewright.schedule.reductions.compare_bits import compare_bits
from tilewright.schedule.reductions.rfactor import rfactor
from tilewright.schedule.staging.store_non_temporally import store_non_temporally

RELU = """
kernel relu(m: s64 in 1..65536, n: s64 in 1..65536, in x: f32[m, n], out y: f32[m, n]):
  compute relu(i in m, j in n):
    x = x[i, j]
    y[i, j] = max(x, 0.0)
"""
BESIDE = """
kernel beside(
    m: s64 in 1..99, n: s64 in 1..99, in x: f32[m, n], in b: f32[n], out y: f32[m, n], out s: f32[m]
):
  alloc t: f32[m, n]
  compute twice(i in m, j in n):
    x = x[i, j]
    t[i, j] = x + x
  compute zero(i in m):
    s[i] = 0.0
  compute sums(i in m, j in n):
    t = t[i, j]
    s[i] add= t
  compute shift(i in m, j in n):
    t = t[i, j]
    b = b[j]
    y[i, j] = t + b
"""
NORM = """
kernel norm(
    b: s64 in 1..99, n: s64 in 1..99,
    in x: f32[b, n, 48], in w: f32[b * n, 48], out y: f32[b, n, 48]
):
  alloc t: f32[b, n, 48]
  alloc s: f32[b, n]
  compute both(i in b, j in n, k in 48):
    x = x[i, j, k]
    w = w[i * n + j, k]
    t[i, j, k] = x + w
  compute zero(i in b, j in n):
    s[i, j] = 0.0
  compute sums(i in b, j in n, k in 48):
    t = t[i, j, k]
    s[i, j] add= t
  compute less(i in b, j in n, k in 48):
    t = t[i, j, k]
    s = s[i, j]
    y[i, j, k] = t - s
"""
TOTAL = """
kernel total(n: s64 in 0..100000000, in x: f32[n], out y: f32[1]):
  compute zero(i in 1):
    y[i] = 0.0
  compute total(i in 1, k in n):
    x = x[k]
    y[i] add= x
"""


def same(before: Kernel, after: Kernel, **numbers: int) -> None:
    """Both give the same of whole numbers."""
    results = []
    for kernel in (before, after):
        verify(kernel)
        known = bind_scalars(kernel, numbers)
        rng = np.random.default_rng(0)
        memory = {
            p.name: rng.integers(-4, 5, p.buffer.layout.extent).astype(p.dtype.numpy)
            for p in known.arrays
        }
        interpret(known, memory)
        results.append(memory)
    for name, values in results[0].items():
        np.testing.assert_array_equal(values, results[1][name])


@pytest.mark.parametrize(("b", "n"), [(1, 1), (3, 7), (20, 33)])
def test_rows_of_two_sizes_with_what_one_index_reaches(b: int, n: int) -> None:
    """A linear index counts through both dims, which are one then; rows stay in one loop."""
    run = tw.compile(tw.parse_kernel(NORM), "x86:avx2", threads=2)
    text = to_text(run.schedule.kernel)
    assert "in x: f32[b * n, 48]" in text and "alloc t: f32[1, 48] private" in text
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((b, n, 48), (b * n, 48)))
    t = x + w.reshape(x.shape)
    np.testing.assert_array_equal(run(x=x, w=w), t - t.sum(-1, keepdims=True))


def test_rows_become_one_dim() -> None:
    before = tw.parse_kernel(RELU)
    after = fuse_dims(before, ["i", "j"], "e")
    assert "in x: f32[m * n], out y: f32[m * n]" in to_text(after)
    assert "compute relu(e in m * n):" in to_text(after)
    same(before, after, m=3, n=5)


@pytest.mark.parametrize("x", ["f32[m, n] {0:m:(n + 8) 1:n:1}", "f32[m, n] {1:n:m 0:m:1}"])
def test_rows_that_are_apart_stay_two(x: str) -> None:
    kernel = tw.parse_kernel(RELU.replace("in x: f32[m, n]", f"in x: {x}"))
    with pytest.raises(ScheduleError, match="in memory, a step of dim 0 is not the whole of"):
        fuse_dims(kernel, ["i", "j"], "e")


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 5000), (5000, 1), (65, 65), (3000, 3001)])
def test_elementwise_work_of_any_rows(m: int, n: int) -> None:
    run = tw.compile(tw.parse_kernel(RELU), "x86:avx2", threads=2)
    text = to_text(run.schedule.kernel)
    assert "parallel for i_j_o in m * n // 512:" in text
    # Behind tiles, four registers at a time, then single ones.
    for rest in ("m * n // 32 % 16", "m * n // 8 % 4"):
        assert f" for i_j_o in {rest}:" in text and f"parallel for i_j_o in {rest}" not in text
    assert "<= m * n:\n    parallel for i_j_o in m * n // 512" in text
    assert "stream y[" in text and "    y[" in text
    x = np.random.default_rng(0).integers(-9, 9, (m, n)).astype(np.float32)
    np.testing.assert_array_equal(run(x=x), np.maximum(x, 0))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 99), (64, 64), (33, 5)])
def test_what_others_reach_by_rows_stays_in_rows(m: int, n: int) -> None:
    run = tw.compile(tw.parse_kernel(BESIDE), "x86:avx2", threads=2)
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (m, n)).astype(np.float32)
    b = rng.integers(-9, 9, n).astype(np.float32)
    result = run(x=x, b=b)
    np.testing.assert_array_equal(result["y"], 2 * x + b)
    np.testing.assert_array_equal(result["s"], 2 * x.sum(1))


@pytest.mark.parametrize("n", [0, 1, 5, 31, 9, 100, 103])
def test_parts_of_a_sum(n: int) -> None:
    before = tw.parse_kernel(TOTAL)
    after = rfactor(before, "total", "k", 4, multiple=8, least=20)
    assert "alloc total_pieces: f32[min(max(n // 20, 1), 4), 1]" in to_text(after)
    same(before, after, n=n)


def test_no_masks_are_waited_for_where_there_is_no_rest() -> None:
    kernel = rfactor(tw.parse_kernel(TOTAL), "total", "k", 2, lanes=16, masked=True)
    assert "if 1 <= n % 16:\n    compute total_rest(" in to_text(kernel)


@pytest.mark.parametrize("m", [0, 1])
def test_what_no_row_gives_has_no_place(m: int) -> None:
    """An index of a dim of one point at most is the number 0, also where there is none."""
    before = tw.parse_kernel("""
kernel row(m: s64 in 0..1, n: s64 in 0..40, in x: f32[m, n], inout y: f32[m]):
  compute total(i in m, k in n):
    x = x[0, k]
    y[0] add= x
""")
    same(before, rfactor(before, "total", "k", 1, lanes=8), m=m, n=11)
    same(before, rfactor(before, "total", "k", 2), m=m, n=11)


@pytest.mark.parametrize("n", [1, 33, 32767, 65537, 999999])
def test_a_whole_sum_is_divided_by_its_length(n: int) -> None:
    run = tw.compile(tw.parse_kernel(TOTAL), "x86:avx2", threads=2)
    assert "parallel for piece in min(max(n // 32768, 1), " in to_text(run.schedule.kernel)
    x = np.random.default_rng(0).integers(-9, 9, n).astype(np.float32)
    assert run(x=x)[0] == x.sum(dtype=np.float64)


def test_a_sum_that_is_short_by_promise_is_not_divided() -> None:
    run = tw.compile(tw.parse_kernel(TOTAL.replace("0..100000000", "1..9000")), "x86:avx2")
    assert "parallel" not in to_text(run.schedule.kernel)


def test_stores_past_the_caches_by_size() -> None:
    loops = """
kernel scale(n: s64 in 1..1000000, in x: f32[n * 8], out y: f32[n * 8], out z: f32[80]):
  for i_o in n:
    vector for i in 8:
      y[8 * i_o + i] = x[8 * i_o + i] * 2.0
  for k in 80:
    z[k] = 1.0
"""
    before = tw.parse_kernel(loops)
    after = store_non_temporally(before, ["y", "z"], beyond=256)
    assert (
        to_text(after).splitlines()[1:]
        == (
            """\
  if 8 <= n:
    for i_o in n:
      vector for i in 8:
        stream y[i + i_o * 8] = x[i + i_o * 8] * 2.0
  else:
    for i_o in n:
      vector for i in 8:
        y[i + i_o * 8] = x[i + i_o * 8] * 2.0
  for k in 80:
    stream z[k] = 1.0"""
        ).splitlines()
    )
    same(before, after, n=9)


def test_few_iterations_of_a_rest_start_no_threads() -> None:
    kernel = tw.parse_kernel("""
kernel rest(n: s64 in 1..1000000, out y: f32[n]):
  if 1 <= n % 64:
    for i in n % 64:
      y[n - n % 64 + i] = 1.0
  if 1 <= n % 640000:
    for i in n % 640000:
      y[n - n % 640000 + i] = 2.0
""")
    text = to_text(parallelize_parts(kernel, 16))
    assert "    for i in n % 64:" in text and "    parallel for i in n % 640000:" in text


SOFTMAX = """
kernel softmax(m: s64 in 0.., n: s64 in 1..{most}, in x: f32[m, n], out y: f32[m, n]):
  alloc e: f32[m, n]
  alloc total: f32[m]
  compute power(i in m, j in n):
    x = x[i, j]
    e[i, j] = exp(x)
  compute zero(i in m):
    total[i] = 0.0
  compute sum(i in m, j in n):
    e = e[i, j]
    total[i] add= e
  compute part(i in m, j in n):
    e = e[i, j]
    t = total[i]
    y[i, j] = e / t
"""


@pytest.mark.parametrize(("most", "own"), [(5000, True), (500000, False)])
def test_a_row_that_is_handed_on_is_a_threads_own_if_it_fits(most: int, own: bool) -> None:
    run = tw.compile(tw.parse_kernel(SOFTMAX.format(most=most)), "x86:avx2", threads=2)
    text = to_text(run.schedule.kernel)
    assert ("alloc e: f32[1, 5000] private" in text) == own
    # Rows that go together are short, and have memory for that: three quarters of the first cache.
    longest = run.target.machine.caches[0] * 3 // 4 // (8 * 4)
    assert (f"alloc e: f32[8, {longest}] private" in text) == own
    assert "alloc total: f32[1] private" in text and "parallel for i_o in m // 8" in text
    assert '!"branch_weights"' in run.source("llvm")
    for m, n in ((1, 1), (7, 100), (40, 4999)):
        x = np.random.default_rng(0).uniform(-1, 1, (m, n)).astype(np.float32)
        wanted = np.exp(x.astype(np.float64))
        wanted /= wanted.sum(1, keepdims=True)
        np.testing.assert_allclose(run(x=x), wanted, rtol=1e-5)


COLUMNS = """
kernel columns(m: s64 in 1..5000, n: s64 in 1..5000, in x: f32[m, n], out y: f32[n]):
  compute zero(j in n):
    y[j] = 0.0
  compute sum(j in n, i in m):
    x = x[i, j]
    y[j] add= x
"""


def test_whole_vectors_of_a_last_tile_have_no_masks() -> None:
    run = tw.compile(tw.parse_kernel(COLUMNS), "x86:avx2", threads=2)
    text = to_text(run.schedule.kernel)
    assert re.search(r"for j_o in n // 8 % (32|64):", text) and "_tail" not in text
    # What rows add up to is in registers, that of the last lanes as well.
    assert "y_tile[j] = y_tile[j] + x[" in text
    assert not re.search(r"alloca .* x float", run.target.lower(run.schedule.kernel).text)
    for m, n in ((1, 1), (9, 64), (17, 100), (64, 129), (5, 1000)):
        x = np.random.default_rng(0).integers(-9, 9, (m, n)).astype(np.float32)
        np.testing.assert_array_equal(run(x=x), x.sum(0))


def test_extremes_of_columns_are_found_by_their_bits() -> None:
    source = COLUMNS.replace("add=", "max=").replace("= 0.0", "= -inf")
    run = tw.compile(tw.parse_kernel(source), "x86:avx2", threads=2)
    assert to_text(run.schedule.kernel).count("sum_signed: s32[8] private") > 1
    for m, n in ((1, 1), (9, 64), (17, 100), (64, 129), (5, 1000)):
        x = np.random.default_rng(0).standard_normal((m, n)).astype(np.float32)
        x[0, n // 2] = np.nan
        np.testing.assert_array_equal(run(x=x), x.max(0))


def test_bits_beside_results_have_a_greatest_number() -> None:
    source = COLUMNS.replace("add=", "max=").replace("n: s64 in 1..5000", "n: s64")
    with pytest.raises(ScheduleError, match="an extent has no greatest value"):
        compare_bits(tw.parse_kernel(source), "sum")
