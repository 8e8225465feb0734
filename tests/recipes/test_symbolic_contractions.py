"""Sums of products whose sizes calls say: scheduled as those of numbers are, one kernel for all."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

import tilewright as tw
from needs import need_device
from tilewright.dtypes import DType, bf16, f32
from tilewright.errors import ScheduleError
from tilewright.interpret import run as interpret
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import bind_scalars
from tilewright.ir.verify import verify
from tilewright.recipes.config import ContractionConfig, GroupsConfig
from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.groups import as_contraction
from tilewright.schedule.loops.narrow import narrow
from tilewright.schedule.loops.partition import partition
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.loops.unroll_lengths import unroll_lengths
from tilewright.schedule.staging.hoist import hoist_pack
from tilewright.schedule.staging.stage import stage

PRODUCT = """
kernel product({sizes}in a: f32[{m}, {k}], in b: f32[{k}, {n}], out c: f32[{m}, {n}]):
  compute zero(i in {m}, j in {n}):
    c[i, j] = 0.0
  compute product(i in {m}, j in {n}, p in {k}):
    c[i, j] add= a[i, p] * b[p, j]
"""
NUMBERS = {"m": 40, "n": 48, "k": 24}


def product(symbols: str, numbers: dict[str, int] = NUMBERS, bounds: str = "1..4096") -> Kernel:
    sizes = "".join(f"{name}: s64 in {bounds}, " for name in symbols)
    chosen = {name: name if name in symbols else size for name, size in numbers.items()}
    return parse_kernel(PRODUCT.format(sizes=sizes, **chosen))


@cache
def compiled(symbols: str, target: str = "x86") -> tw.CompiledKernel:
    return tw.compile(product(symbols), target, threads=2)


def check(run: tw.CompiledKernel, m: int, n: int, k: int) -> None:
    generator = np.random.default_rng(m * 10000 + n * 100 + k)
    a = generator.integers(-4, 5, (m, k)).astype(np.float32)
    b = generator.integers(-4, 5, (k, n)).astype(np.float32)
    assert np.array_equal(run(a=a, b=b), a @ b), (m, n, k)


@pytest.mark.parametrize("symbols", ["m", "n", "k", "mnk"])
def test_one_kernel_for_all_sizes(symbols: str) -> None:
    run = compiled(symbols)
    assert isinstance(run.config, ContractionConfig) and run.config.instruction
    lengths = {"m": (1, 4, 5, 6, 7, 64, 71), "n": (1, 8, 15, 16, 17, 70), "k": (1, 3, 4, 64, 65)}
    chosen = [lengths[d] if d in symbols else (size,) for d, size in NUMBERS.items()]
    for m, n, k in itertools.product(*chosen):
        check(run, m, n, k)


@pytest.mark.parametrize("bounds", ["16..20", "0..20"])
@pytest.mark.parametrize("of", ["a: f32[{m}, {k}]", "b: f32[{k}, {n}]", "c: f32[{m}, {n}]"])
def test_few_lengths_of_factors_in_any_order(of: str, bounds: str) -> None:
    """What is written out for each length does not hold the copies of factors of any size; tiles
    are whole vectors of few columns, too."""
    name, sizes = of.split(": f32")
    turned = of.replace(sizes, "[" + ", ".join(reversed(sizes[1:-1].split(", "))) + "]")
    text = PRODUCT.replace(of, turned)
    for access in ("a[i, p]", "b[p, j]", "c[i, j]"):
        if access[0] == name:
            text = text.replace(access, f"{name}[{access[5]}, {access[2]}]")
    symbols = "".join(f"{letter}: s64 in {bounds}, " for letter in "mnk")
    kernel = parse_kernel(text.format(sizes=symbols, m="m", n="n", k="k"))
    run = tw.compile(kernel, "x86:avx2", threads=2)
    generator = np.random.default_rng(0)
    for m, n, k in ((16, 20, 17), (20, 17, 16)):
        a, b = (generator.integers(-4, 5, s).astype(np.float32) for s in ((m, k), (k, n)))
        values = {"a": a, "b": b}
        if name in values:
            values[name] = np.ascontiguousarray(values[name].T)
        result = run(**values)
        np.testing.assert_array_equal(result.T if name == "c" else result, a @ b)


@pytest.mark.parametrize("constant", [(), ("b",)])
@pytest.mark.parametrize("bounds", ["0..0", "0..1", "0..2"])
def test_none_or_few_of_each(bounds: str, constant: tuple[str, ...]) -> None:
    kernel = product("mn", NUMBERS | {"k": 2}, bounds)
    run = tw.compile(kernel, "x86:avx2", threads=2, constant=constant)
    _, _, most = bounds.partition("..")
    for size in (0, *range(1, int(most) + 1)):
        a, b = np.ones((size, 2), np.float32), np.ones((2, size), np.float32)
        values = run.pack("b", b) if constant else b
        np.testing.assert_array_equal(run(a=a, b=values), a @ b)


def test_spirv() -> None:
    need_device("spirv")
    run = compiled("mk", "spirv")
    for m, k in ((1, 1), (5, 8), (33, 7), (64, 66)):
        check(run, m, NUMBERS["n"], k)


@pytest.mark.parametrize("target", ["spirv:gpu", "nvidia:sm_80"])
def test_work_items(target: str) -> None:
    kernel = product("mnk", bounds="1..64")
    run = tw.compile(kernel, target)
    m, n, k = 7, 9, 5
    generator = np.random.default_rng(1)
    a, b = (generator.integers(-4, 5, m * n * k).astype(np.float32) for _ in range(2))
    memory = {"a": a[: m * k], "b": b[: k * n], "c": np.empty(m * n, np.float32)}
    interpret(run.stages["parallel"], {"m": m, "n": n, "k": k, **memory})
    wanted = memory["a"].reshape(m, k) @ memory["b"].reshape(k, n)
    assert np.array_equal(memory["c"].reshape(m, n), wanted)


def test_constant_weights_are_packed_before() -> None:
    run = tw.compile(product("m"), constant=("b",), threads=1)
    assert run.packed == ("b",)
    generator = np.random.default_rng(3)
    b = generator.integers(-4, 5, (24, 48)).astype(np.float32)
    packed = run.pack("b", b)
    for m in (1, 5, 13):
        a = generator.integers(-4, 5, (m, 24)).astype(np.float32)
        assert np.array_equal(run(a=a, b=packed), a @ b)


def test_weights_of_a_size_that_a_call_passes_are_packed_by_it() -> None:
    assert tw.compile(product("mn"), constant=("b",), threads=1).packed == ()


def test_what_stands_behind_comes_along_with_its_numbers() -> None:
    text = """
kernel layer(m: s64 in 1..999, alpha: f32, in x: f32[m, 32], in w: f32[32, 16], in v: f32[16, 8],
             out y: f32[m, 8]):
  alloc h: f32[m, 16]
  compute clear(i in m, j in 16):
    h[i, j] = 0.0
  compute first(i in m, j in 16, k in 32):
    h[i, j] add= x[i, k] * w[k, j]
  compute scaled(i in m, j in 16):
    h[i, j] = max(alpha * h[i, j], 0.0)
  compute clear2(i in m, j in 8):
    y[i, j] = 0.0
  compute second(i in m, j in 8, k in 16):
    y[i, j] add= h[i, k] * v[k, j]
"""
    run = tw.compile(parse_kernel(text))
    assert isinstance(run.config, GroupsConfig) and len(run.config.groups) == 2
    generator = np.random.default_rng(0)
    w, v = (generator.integers(-2, 3, s).astype(np.float32) for s in ((32, 16), (16, 8)))
    for m, alpha in ((1, 1.0), (17, -2.0), (64, 0.5)):
        x = generator.integers(-2, 3, (m, 32)).astype(np.float32)
        wanted = np.maximum(np.float32(alpha) * (x @ w), 0) @ v
        assert np.array_equal(run(x=x, w=w, v=v, alpha=alpha), wanted)


def test_dims_are_called_otherwise_than_what_a_call_passes() -> None:
    text = to_text(as_contraction(product("mk")))
    assert "  alloc acc: f32[m, 48]\n  compute init(m2 in m, n in 48):\n" in text
    assert "  compute main(m2 in m, n in 48, k2 in k):\n" in text


def test_dims_of_numbers_fuse_beside_one_that_a_call_passes() -> None:
    text = """
kernel pixels(m: s64 in 1..99, in x: f32[{0}, 7, 4], out y: f32[{0}, 7, 4]):
  compute f({1}, q in 7, c in 4):
    v = x[{2}, q, c]
    y[{2}, q, c] = v
"""
    kernel = parse_kernel(text.format("m, 6", "i in m, p in 6", "i, p"))
    fused = to_text(fuse_dims(kernel, ["p", "q"], "pq"))
    assert "in x: f32[m, 42, 4], out y: f32[m, 42, 4]" in fused
    assert "compute f(i in m, pq in 42, c in 4)" in fused
    kernel = parse_kernel(text.format("6, m", "p in 6, i in m", "p, i"))
    assert "in x: f32[6 * m, 7, 4]" in to_text(fuse_dims(kernel, ["p", "i"], "pi"))
    with pytest.raises(ScheduleError, match="fuse_dims: the dims 0 and 2 of 'y' do not fuse"):
        fuse_dims(kernel, ["p", "q"], "pq")


def test_few_rows_at_most() -> None:
    run = tw.compile(product("m", bounds="1..3"), threads=1)
    assert " tdp" not in run.source("asm") and run.config.tile.get("m2", 1) <= 3
    for m in (1, 2, 3):
        check(run, m, 48, 24)


ROWS = """
kernel rows(m: s64 in 1..999, in a: f32[m], out c: f32[m]):
  compute f(i in m):
    c[i] = a[i]
"""


def test_a_loop_of_unknown_length_is_partitioned() -> None:
    kernel = partition(tile(parse_kernel(ROWS), "f", {"i": 4}), "i_o")
    verify(kernel)
    assert (
        to_text(kernel).split(":\n", 1)[1]
        == """\
  for i_o in m // 4:
    compute f(i in 4):
      c[i + i_o * 4] = a[i + i_o * 4]
  if 1 <= m % 4:
    compute f(i in m % 4):
      c[i + m // 4 * 4] = a[i + m // 4 * 4]"""
    )


def test_the_rest_is_written_out_for_each_length() -> None:
    kernel = partition(tile(parse_kernel(ROWS), "f", {"i": 3}), "i_o")
    written = unroll_lengths(kernel, "f", "i", 4)
    verify(written)
    assert ("  if 1 <= m % 3:\n    if m % 3 == 1:\n      compute f():\n") in to_text(written)
    assert unroll_lengths(kernel, "f", "i", 1) is kernel
    for m in (1, 2, 3, 4, 5, 9):
        memory = {"a": np.arange(m, dtype=np.float32), "c": np.zeros(m, np.float32)}
        interpret(bind_scalars(written, {"m": m}), memory)
        assert np.array_equal(memory["a"], memory["c"])


TILE = """
kernel tile(n: s64 in 1..999, in a: f32[n], out c: f32[n]):
  for o in (n + 15) // 16:
    alloc acc: f32[16]
    compute load(j in 16):
      a = a[o * 16 + j | o * 16 + j < n]
      acc[j] = a
    {0}
    compute store(j in 16):
      x = acc[j]
      c[o * 16 + j | o * 16 + j < n] = x
"""


def test_a_rest_has_as_many_vectors_as_it_needs() -> None:
    before = partition(parse_kernel(TILE.format("")), "o")
    after = narrow(before, "store", "j", 4)
    verify(after)
    lines = to_text(after).splitlines()
    assert [line.strip() for line in lines if "if " in line] == [
        "if 1 <= n % 16:",
        "if n % 16 < 5:",
        "if n % 16 < 9:",
        "if n % 16 < 13:",
    ]
    assert sum("compute store(j in 16)" in line for line in lines) == 2
    for n in range(1, 40):
        memory = {"a": np.arange(n, dtype=np.float32), "c": np.zeros(n, np.float32)}
        interpret(bind_scalars(after, {"n": n}), memory)
        assert np.array_equal(memory["a"], memory["c"])


@pytest.mark.parametrize(
    "between",
    [
        "acc[3] = 1.0",  # somebody else writes there
        "compute turn(j in 16):\n      y = acc[15 - j]\n      acc[j] = y",  # what others need
    ],
)
def test_a_rest_whose_points_need_others_stays_whole(between: str) -> None:
    kernel = partition(parse_kernel(TILE.format(between)), "o")
    assert narrow(kernel, "store", "j", 4) is kernel


def test_few_columns_take_few_vectors() -> None:
    run = tw.compile(product("n"), "x86:avx2", threads=1)
    text = to_text(run.stages["partitioned"])
    assert "if n % 16 < 9:" in text
    for n in (1, 8, 9, 16, 17, 24, 25):
        check(run, NUMBERS["m"], n, NUMBERS["k"])


def test_dims_grow_to_multiples() -> None:
    text = to_text(pad(parse_kernel(ROWS), "f", multiples={"i": 8}))
    assert "compute f(i in (m + 7) // 8 * 8):" in text
    assert "c[i | i < m] = a" in text
    kernel = parse_kernel(ROWS.replace("1..999", "8..800 by 8"))
    assert pad(kernel, "f", multiples={"i": 8}) is kernel
    with pytest.raises(ScheduleError, match="'f' has no dim 'j'"):
        pad(kernel, "f", multiples={"j": 8})


def test_copies_are_as_long_as_a_call_says() -> None:
    kernel = stage(
        as_contraction(product("nk")),
        "main",
        "b",
        shape="dims",
        space=tw.Space.GLOBAL,
        layout=["n2", "k2", ("n2", 16)],
    )
    verify(kernel)
    assert (
        "alloc b_packed: f32[(n + 15) // 16 * 16, k] "
        "{0:((n + 15) // 16):(k * 16) 1:k:16 0:16:1}" in to_text(kernel)
    )
    with pytest.raises(ScheduleError, match="what is packed depends on n, k"):
        hoist_pack(kernel, "b_packed")


def test_an_extent_and_a_multiple_of_one_dim_are_refused() -> None:
    kernel = tw.parse_kernel(
        """
        kernel k(in x: f32[10], out y: f32[10]):
          alloc acc: f32[10]
          compute fill(i in 10):
            acc[i] = x[i]
          compute store(i in 10):
            y[i] = acc[i]
        """
    )
    with pytest.raises(ScheduleError, match="'i' is to have an extent, and a multiple"):
        pad(kernel, "store", {"i": 14}, multiples={"i": 3})


ROWS_OF_BATCHES = """
kernel contraction(g: s64 in 2..99, n: s64 in 2..99, in a: {t}[g, n, n], in b: {t}[n * g, 32],
                   out c: f32[g, n, 16]):
  compute zero(h in g, i in n, j in 16):
    c[h, i, j] = 0.0
  compute product(h in g, i in n, j in 16, k in n):
    x = a[h, i, k]
    y = b[h * n + k, j + 16]
    c[h, i, j] add= f32(x) * f32(y)
"""


@pytest.mark.parametrize("dtype", [f32, bf16])
def test_a_batch_whose_rows_lie_behind_each_other(dtype: DType) -> None:
    """The rows of one batch are no box of `b`: where they begin is a product of two sizes."""
    run = tw.compile(parse_kernel(ROWS_OF_BATCHES.format(t=dtype.name)), threads=2)
    assert isinstance(run.config, ContractionConfig)
    generator = np.random.default_rng(0)
    for g, n in ((2, 3), (3, 10), (5, 33)):
        a, b = (generator.integers(-4, 5, s).astype(np.float32) for s in ((g, n, n), (n * g, 32)))
        result = run(a=a.astype(dtype.numpy), b=b.astype(dtype.numpy))
        assert np.array_equal(result, a @ b.reshape(g, n, 32)[:, :, 16:]), (g, n)


def test_what_is_no_box_is_not_staged_as_one() -> None:
    kernel = parse_kernel(ROWS_OF_BATCHES.format(t="f32"))
    with pytest.raises(ScheduleError, match="what is read of dim 0 of 'b' is no box"):
        stage(kernel, "product", "y", space=tw.Space.GLOBAL)
    verify(stage(kernel, "product", "y", shape="dims", space=tw.Space.GLOBAL))
