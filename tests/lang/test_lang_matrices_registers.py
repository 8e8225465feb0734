"""Joint matrices on processors: sums in registers, products by instructions, slices by vectors."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import dtype
from tilewright.interpret import run
from tilewright.ir.stmt import Kernel


@tw.kernel(subgroup=8)
def scaled(
    a: tw.array("A", 2),
    b: tw.array("B", 2),
    c: tw.array("C", 2),
    sizes: tw.constant,
    types: tw.constant,
) -> None:
    m, n, k = sizes
    row, col = tw.group_id(0) * m, tw.group_id(1) * n
    tile_a = tw.joint_matrix("a", m, k, types[0])
    tile_b = tw.joint_matrix("b", k, n, types[1])
    total = tw.joint_matrix("accumulator", m, n, types[2])
    total.fill(0)
    for start in range(0, a.shape[1], k):
        tile_a.load(a, (row, start))
        tile_b.load(b, (start, col))
        total.mad(tile_a, tile_b)
        total.apply(lambda value: max(value, 0) * 2)
    total.store(c, (row, col))


def made(sizes: tuple[int, int, int], types: tuple[str, str, str]) -> Kernel:
    names = dict(zip("ABC", types, strict=True))
    result: Kernel = scaled.over(local=(1, 8), sizes=sizes, types=types, **names)
    return result


F32 = ("f32", "f32", "f32")
BF16 = ("bf16", "bf16", "f32")
TF32 = ("tf32", "tf32", "f32")
U8 = ("u8", "s8", "s32")


@cache
def assembly(sizes: tuple[int, int, int], types: tuple[str, str, str], target: str) -> str:
    return tw.compile(made(sizes, types), target).source("asm")


def loop_of(text: str, instruction: str) -> list[str]:
    """The instructions of the innermost loop that has ``instruction``."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith(instruction))
    labels = {line[:-1]: i for i, line in enumerate(lines) if re.match(r"\.L\w+:$", line)}
    for end in range(at, len(lines)):
        jump = re.match(r"j\w+\s+(\.L\w+)", lines[end])
        if jump and labels.get(jump[1], at) < at:
            body = lines[labels[jump[1]] : end]
            return [line for line in body if line and not line.startswith(".")]
    raise AssertionError(f"no loop around {instruction}")


STORES = re.compile(r"v?mov\w*\s+%\w+, .*\(")
ELEMENTS = re.compile(r"v?(pextr|pinsr|extractps|insertps)")


def test_small_sums_stay_in_registers_from_fill_to_store() -> None:
    *_, stage = tw.compile(made((4, 16, 32), F32), "x86:avx2").stages.values()
    assert "alloc total: f32[4, 16] private" in str(stage)
    text = assembly((4, 16, 32), F32, "x86:avx2")
    inside = loop_of(text, "vfmadd231ps")
    assert sum(line.startswith("vfmadd231ps") for line in inside) % 8 == 0
    assert not any(map(STORES.match, inside))
    # Between two products, and around: neither stores of sums, nor single elements.
    assert not any(map(ELEMENTS.match, text.split()))
    # What is stored: A and B as they are copied, sums at the end, each a vector.
    assert len(re.findall(r"vmovups\s+%ymm\d+, (?!.*rsp)", text)) >= 8
    assert not re.search(r"vmovups\s+%ymm\d+, -?\d+\(%rsp\).*Spill", text)


@pytest.mark.parametrize(
    ("types", "target", "instruction", "count"),
    [
        (F32, "x86:avx2", "vfmadd231ps", 5),
        (BF16, "x86:avx2", "vfmadd231ps", 5),
        (TF32, "x86:avx2", "vfmadd231ps", 5),
        (BF16, "x86:avx512_bf16", "vdpbf16ps", 5),
        (U8, "x86:avx512_vnni", "vpdpbusd", 5),
    ],
)
def test_large_sums_are_added_to_tile_by_tile(
    types: tuple[str, str, str], target: str, instruction: str, count: int
) -> None:
    inside = loop_of(assembly((32, 32, 64), types, target), instruction)
    assert sum(line.startswith(instruction) for line in inside) >= count
    assert not any(map(STORES.match, inside))
    assert not any(map(ELEMENTS.match, inside))


@pytest.mark.parametrize("types", [F32, BF16, U8], ids="-".join)
@pytest.mark.parametrize("sizes", [(4, 16, 32), (32, 32, 64), (32, 72, 64), (9, 24, 20), (3, 5, 4)])
def test_numbers(sizes: tuple[int, int, int], types: tuple[str, str, str]) -> None:
    m, n, k = sizes
    g = np.random.default_rng(m)
    low = 0 if types[0] == "u8" else -3
    a = g.integers(low, 4, (2 * m, 2 * k)).astype(dtype(types[0]).numpy)
    b = g.integers(-3, 4, (2 * k, 3 * n)).astype(dtype(types[1]).numpy)
    c = np.zeros((2 * m, 3 * n), dtype(types[2]).numpy)
    scaled.launch((2, 24), a, b, c, sizes, types, local=(1, 8), target="x86")
    x, y = a.astype(np.float64), b.astype(np.float64)
    first = np.maximum(x[:, :k] @ y[:k], 0) * 2
    np.testing.assert_array_equal(c, np.maximum(first + x[:, k:] @ y[k:], 0) * 2)


def test_a_is_read_where_it_lies() -> None:
    """Where a tile has few rows; where A is changed in between, a copy is."""
    *_, stage = tw.compile(made((32, 32, 64), F32), "x86:avx512").stages.values()
    assert "alloc tile_a" not in str(stage) and "alloc tile_b" in str(stage)
    *_, stage = tw.compile(made((16, 16, 64), F32), "x86:avx512").stages.values()
    assert "alloc tile_a" in str(stage)  # All 16 rows are in registers.
    *_, stage = tw.compile(made((32, 32, 64), BF16), "x86:avx2").stages.values()
    assert "alloc tile_a: f32" in str(stage)


@tw.kernel(subgroup=8)
def changed(
    a: tw.array("f32", 2), b: tw.array("f32", 2), c: tw.array("f32", 2), layout: tw.constant
) -> None:
    tile_a = tw.joint_matrix("a", 32, 16, "f32", layout)
    tile_b = tw.joint_matrix("b", 16, 64, "f32")
    total = tw.joint_matrix("accumulator", 32, 64, "f32")
    tile_b.load(b, (0, 0))
    total.fill(0.0)
    tile_a.load(a, (0, 0))
    total.mad(tile_a, tile_b)
    if layout == "row":
        tile_a.apply(lambda value: value + 1.0)
        total.mad(tile_a, tile_b)
    total.store(c, (0, 0))


@pytest.mark.parametrize("layout", ["row", "col"])
def test_a_is_copied_where_it_changes_or_lies_in_columns(layout: str) -> None:
    g = np.random.default_rng(0)
    a, b = (g.integers(-3, 4, size).astype(np.float32) for size in ((32, 16), (16, 64)))
    c = np.zeros((32, 64), np.float32)
    values = a if layout == "row" else np.ascontiguousarray(a.T)
    changed.launch((1, 8), values, b, c, layout, local=(1, 8), target="x86")
    np.testing.assert_array_equal(c, a @ b + (a + 1) @ b if layout == "row" else a @ b)
    kernel = changed.over(local=(1, 8), layout=layout)
    assert "alloc tile_a" in str(last_stage(kernel, "x86:avx512"))


@pytest.mark.parametrize(
    ("types", "target", "instruction"),
    [
        (BF16, "x86:avx512_bf16", "interleave_bf16_2x16"),
        (U8, "x86:avx512_vnni", "interleave_s8_4x16"),
    ],
)
def test_rows_of_b_are_interleaved(
    types: tuple[str, str, str], target: str, instruction: str
) -> None:
    kernel = made((32, 72, 64), types)
    assert f"<{instruction}>" in str(last_stage(kernel, target))
    assert not any(map(ELEMENTS.match, tw.compile(kernel, target).source("asm").split()))


@tw.kernel(subgroup=8)
def behind(
    a: tw.array("A", 2),
    b: tw.array("B", 2),
    c: tw.array("C", 2),
    sizes: tw.constant,
    types: tw.constant,
) -> None:
    m, n, k = sizes
    row, col = tw.group_id(0) * m, tw.group_id(1) * n
    tile_a = tw.joint_matrix("a", m, k, types[0])
    tile_b = tw.joint_matrix("b", k, n, types[1])
    total = tw.joint_matrix("accumulator", m, n, types[2])
    total.fill(0)
    for start in range(0, a.shape[1], k):
        tile_a.load(a, (row, start))
        tile_b.load(b, (start, col))
        total.mad(tile_a, tile_b)
    total.apply(lambda value: max(value, 0))
    total.store(c, (row, col))


def last_stage(kernel: Kernel, target: str) -> Kernel:
    *_, stage = tw.compile(kernel, target).stages.values()
    return stage


@pytest.mark.parametrize(("types", "product"), [(BF16, "tdpbf16ps"), (U8, "tdpbusd")])
def test_sums_stay_in_tiles_of_the_matrix_unit(types: tuple[str, str, str], product: str) -> None:
    names = dict(zip("ABC", types, strict=True))
    kernel = behind.over(local=(1, 8), sizes=(32, 20, 128), types=types, **names)
    text = tw.compile(kernel, "x86:amx").source("asm")
    assert [text.count(f"{instruction}\t") for instruction in ("tilezero", "tilestored")] == [4, 4]
    inside = [line.split()[0] for line in loop_of(text, product)]
    assert inside.count(product) == 4 * 128 // (32 if types == BF16 else 64)
    assert "tilestored" not in inside
    # Products of a step share the tiles of their factors.
    assert 4 * inside.count("tileloadd") <= 5 * inside.count(product)


def test_tiles_of_four_shapes_are_more_than_a_function_has() -> None:
    """LLVM gives a tile one shape in a function, and fails where shapes want more than eight."""
    names = dict(zip("ABC", BF16, strict=True))
    kernel = scaled.over(local=(1, 8), sizes=(40, 36, 64), types=BF16, **names)
    assert tw.compile(kernel, "x86:amx").source("asm").count("tdpbf16ps\t") == 2 * 9


@pytest.mark.parametrize("types", [BF16, U8], ids="-".join)
@pytest.mark.parametrize("kernel", [scaled, behind], ids=["within", "behind"])
@pytest.mark.parametrize("sizes", [(32, 32, 64), (20, 9, 64), (40, 36, 64)])
def test_tiles_in_the_interpreter(
    sizes: tuple[int, int, int], kernel: Any, types: tuple[str, str, str]
) -> None:
    m, n, k = sizes
    names = dict(zip("ABC", types, strict=True))
    stage = last_stage(kernel.over(local=(1, 8), sizes=sizes, types=types, **names), "x86:amx")
    assert "<tdp" in str(stage)
    g = np.random.default_rng(m)
    low = 0 if types[0] == "u8" else -3
    a = g.integers(low, 4, (m, 2 * k)).astype(dtype(types[0]).numpy)
    b = g.integers(-3, 4, (2 * k, n)).astype(dtype(types[1]).numpy)
    given = {"a": a, "b": b, "c": np.zeros((m, n), dtype(types[2]).numpy)}
    lengths = {f"{name}_{d}": array.shape[d] for name, array in given.items() for d in (0, 1)}
    flat = {name: array.reshape(-1) for name, array in given.items()}
    run(stage, {**flat, **lengths, "global_0": 1, "global_1": 8})
    x, y = a.astype(np.float64), b.astype(np.float64)
    if kernel is scaled:
        wanted = np.maximum(x[:, :k] @ y[:k], 0) * 2
        wanted = np.maximum(wanted + x[:, k:] @ y[k:], 0) * 2
    else:
        wanted = np.maximum(x @ y, 0)
    np.testing.assert_array_equal(given["c"], wanted)


@tw.kernel(subgroup=8)
def rows(x: tw.array("f32", 2), y: tw.array("f32", 2)) -> None:
    matrix = tw.joint_matrix("accumulator", 4, 8, "f32")
    matrix.load(x, (0, 0))
    for i in tw.static_range(matrix.length):
        row, _col = matrix.coordinates(i)
        matrix.set(i, matrix.get(i) + tw.f32(row))
    matrix.store(y, (0, 0))


def test_a_slice_of_all_lanes_is_one_vector() -> None:
    text = tw.compile(rows.over(local=(1, 8)), "x86:avx2").source("asm")
    words = text.split()
    assert words.count("vaddps") == 4
    assert not any(map(ELEMENTS.match, words))
    assert not any(word.startswith(("vgather", "vaddss", "vmovss")) for word in words)


@tw.kernel(subgroup=8)
def doubled(a: tw.array("f32", 2), b: tw.array("f32", 2), c: tw.array("f32", 2)) -> None:
    tile_a = tw.joint_matrix("a", 12, 16, "f32")
    tile_b = tw.joint_matrix("b", 16, 32, "f32")
    total = tw.joint_matrix("accumulator", 12, 32, "f32")
    tile_a.load(a, (0, 0))
    tile_b.load(b, (0, 0))
    total.fill(0.0)
    total.mad(tile_a, tile_b)
    for i in range(total.length):
        total.set(i, total.get(i) * 2.0)
    total.store(c, (0, 0))


def test_slices_of_sums_are_vectors_beside_products_in_registers() -> None:
    g = np.random.default_rng(0)
    a = g.integers(-3, 4, (12, 16)).astype(np.float32)
    b = g.integers(-3, 4, (16, 32)).astype(np.float32)
    c = np.zeros((12, 32), np.float32)
    doubled.launch((1, 8), a, b, c, local=(1, 8), target="x86")
    np.testing.assert_array_equal(c, a @ b * 2)
    result = tw.compile(doubled.over(local=(1, 8)), "x86:avx2")
    text = str(list(result.stages.values())[-1])
    # In rows, where neighbouring lanes are neighbours; factors in panels of a tile.
    assert "alloc total: f32[12, 32] workgroup" in text and "compute total_mad<fma_f32x8>" in text
    assert "alloc tile_b: f32[16, 32] {" in text
    assert not any(word.startswith("vgather") for word in result.source("asm").split())
