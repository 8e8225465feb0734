"""Joint matrices where subgroups multiply as one: sums in lanes' registers, interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from assembly import assembled
from sweeps import in_turns
from tilewright.dtypes import dtype
from tilewright.interpret import run
from tilewright.ir.stmt import Kernel
from tilewright.machines import nvidia
from tilewright.passes import run as run_passes
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches

Types = tuple[str, str, str]

BF16 = ("bf16", "bf16", "f32")
TYPES = [
    BF16,
    ("f16", "f16", "f32"),
    ("f16", "f16", "f16"),
    ("s8", "s8", "s32"),
    ("u8", "s8", "s32"),
    ("tf32", "tf32", "f32"),
    ("f64", "f64", "f64"),
]


@tw.kernel(subgroup=32)
def product(
    a: tw.array("A", 2),
    b: tw.array("B", 2),
    c: tw.array("C", 2),
    sizes: tw.constant,
    types: tw.constant,
) -> None:
    m, n, k = sizes
    row = tw.group_id(0) * m
    col = (tw.group_id(1) * tw.local_size(1) // 32 + tw.subgroup_id()) * n
    tile_a = tw.joint_matrix("a", m, k, types[0])
    tile_b = tw.joint_matrix("b", k, n, types[1])
    total = tw.joint_matrix("accumulator", m, n, types[2])
    total.fill(1)
    for start in range(0, a.shape[1], k):
        tile_a.load(a, (row, start), checked=True)
        tile_b.load(b, (start, col), checked=True)
        total.mad(tile_a, tile_b)
    total.apply(lambda value, i, j: value * 2 + types[2](i - j))
    total.store(c, (row, col), checked=True)


def scheduled(kernel: Kernel, level: str = "sm_80") -> KernelSchedule:
    _, result = choose.choose(Start(kernel, kernel, None), nvidia.machine(level))
    return result


def numbers(g: np.random.Generator, type_: str, *shape: int) -> Any:
    return g.integers(0 if type_[0] == "u" else -3, 4, shape).astype(dtype(type_).numpy)


def interpret(
    stage: Kernel, given: dict[str, Any], range_: tuple[int, int], **numbers: int
) -> None:
    lengths = {f"{name}_{d}": value.shape[d] for name, value in given.items() for d in (0, 1)}
    flat = {name: value.reshape(-1) for name, value in given.items()}
    run(stage, {**flat, **lengths, **numbers, "global_0": range_[0], "global_1": range_[1]})


def check(types: Types, sizes: tuple[int, int, int], level: str = "sm_80") -> str:
    """Compares the last stage with numpy, and gives it."""
    m, n, k = sizes
    names = dict(zip("ABC", types, strict=True))
    chosen = tuple(map(dtype, types))
    result = product.over(local=(1, 64), sizes=sizes, types=chosen, **names)
    stage = scheduled(result, level).kernel
    g = np.random.default_rng(m)
    a, b = numbers(g, types[0], 2 * m - 3, 2 * k - 1), numbers(g, types[1], 2 * k - 1, 2 * n - 1)
    c = np.zeros((2 * m - 3, 2 * n - 1), dtype(types[2]).numpy)
    interpret(stage, {"a": a, "b": b, "c": c}, (2, 64))
    i, j = np.indices(c.shape)
    wanted = 2 * (1 + a.astype(np.float64) @ b.astype(np.float64)) + i % m - j % n
    np.testing.assert_array_equal(c.astype(np.float64), wanted)
    return str(stage)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_types(types: Types) -> None:
    text = check(types, (16, 16, 32))
    assert "<mma_" in text and "alloc total: " in text and "total_load" not in text


def test_quads_of_products() -> None:
    assert "<mma_m16n16k4_f32_f16" in check(("f16", "f16", "f32"), (32, 16, 16), "sm_70")


@pytest.mark.parametrize(("m", "n", "k"), in_turns(6, (16, 32, 48), (8, 16, 24, 64), (16, 48, 64)))
def test_sizes(m: int, n: int, k: int) -> None:
    assert check(BF16, (m, n, k)).count("<mma_m16n8k16_f32_bf16>") == 1


def test_sums_that_registers_do_not_hold_come_there_tile_by_tile() -> None:
    text = check(BF16, (128, 128, 16))
    assert "alloc total: f32[2, 128, 128] workgroup" in text
    assert "alloc total_tile: f32[64, 64] {" in text


@pytest.mark.parametrize("sizes", [(8, 8, 16), (16, 12, 16), (16, 16, 8)])
def test_other_sizes_are_sums_of_each_lane(sizes: tuple[int, int, int]) -> None:
    assert "<mma_" not in check(BF16, sizes)


@tw.kernel(subgroup=16)
def half(a: tw.array("bf16", 2), b: tw.array("bf16", 2), c: tw.array("f32", 2)) -> None:
    row, col = tw.group_id(0) * 16, tw.group_id(1) * 16
    tile_a = tw.joint_matrix("a", 16, 32, "bf16")
    tile_b = tw.joint_matrix("b", 32, 16, "bf16")
    total = tw.joint_matrix("accumulator", 16, 16, "f32")
    total.load(c, (row, col))
    for start in range(0, a.shape[1], 32):
        tile_a.load(a, (row, start))
        tile_b.load(b, (start, col))
        total.mad(tile_a, tile_b)
    for i in range(total.length):
        total.set(i, max(total.get(i), tw.f32(tw.lane_id())))
    total.store(c, (row, col))


def test_subgroups_of_fewer_lanes_and_elements_of_lanes() -> None:
    stage = scheduled(half.over(local=(1, 16))).kernel
    text = str(stage)
    assert "<mma_" in text and "if lane < 16:" in text
    assert "alloc total: f32[16, 16] workgroup" in text  # lanes ask for their elements
    g = np.random.default_rng(0)
    a, b = numbers(g, "bf16", 32, 64), numbers(g, "bf16", 64, 32)
    c = numbers(g, "f32", 32, 32)
    wanted = np.maximum(c + a.astype(np.float32) @ b.astype(np.float32), np.arange(32) % 16)
    interpret(stage, {"a": a, "b": b, "c": c}, (2, 32))
    np.testing.assert_array_equal(c, wanted)


@tw.kernel(subgroup=32)
def twice(a: tw.array("bf16", 2), b: tw.array("bf16", 2), c: tw.array("f32", 2)) -> None:
    """c = relu(a b) b, where each product hands its sums on."""
    tile_a = tw.joint_matrix("a", 16, 16, "bf16")
    tile_b = tw.joint_matrix("b", 16, 16, "bf16")
    first = tw.joint_matrix("accumulator", 16, 16, "f32")
    second = tw.joint_matrix("accumulator", 16, 16, "f32")
    tile_a.load(a, (0, 0))
    tile_b.load(b, (0, 0))
    first.fill(0.0)
    first.mad(tile_a, tile_b)
    first.apply(lambda value, other: max(value, other), tile_a)
    tile_a.copy(first)
    second.copy(first)
    second.mad(tile_a, tile_b)
    second.apply(lambda value, other: value - other, first)
    second.store(c, (0, 0))
    second.load(c, (0, 0), layout="col")
    second.store(c, (0, 0))


def test_products_hand_sums_on() -> None:
    stage = scheduled(twice.over(local=(1, 32))).kernel
    text = str(stage)
    assert text.count("<mma_") == 2 and text.count("private") >= 6
    g = np.random.default_rng(0)
    a, b = numbers(g, "bf16", 16, 16), numbers(g, "bf16", 16, 16)
    c = np.zeros((16, 16), np.float32)
    interpret(stage, {"a": a, "b": b, "c": c}, (1, 32))
    x, y = a.astype(np.float32), b.astype(np.float32)
    first = np.maximum(x @ y, x)
    np.testing.assert_array_equal(c, (first.astype(a.dtype).astype(np.float32) @ y).T)


@tw.kernel(subgroup=32)
def guarded(a: tw.array("f16", 2), b: tw.array("f16", 2), c: tw.array("f32", 2), n: tw.s32) -> None:
    """Control of its own around products, and memory of the lanes' own beside them."""
    tile_a = tw.joint_matrix("a", 16, 16, "f16")
    tile_b = tw.joint_matrix("b", 16, 16, "f16")
    total = tw.joint_matrix("accumulator", 16, 16, "f32")
    total.fill(0.0)
    seen = tw.private((2,), "f32")
    seen[0] = tw.f32(tw.lane_id())
    for k in range(n):
        tile_a.load(a, (0, k * 16))
        tile_b.load(b, (k * 16, 0))
        if k != 1:
            total.mad(tile_a, tile_b)
        seen[0] = seen[0] + tw.shuffle(seen[0], 0) + 1.0
    total.apply(lambda value: value if value < 9.0 else -value)
    total.store(c, (0, 0))
    tw.subgroup_reduce(1.0, "add")
    if tw.lane_id() < 16:
        c[0, tw.lane_id()] = c[0, tw.lane_id()] + seen[0]


def test_control_around_products() -> None:
    stage = scheduled(guarded.over(local=(1, 32))).kernel
    assert "<mma_" in str(stage) and "alloc total: f32[16, 16] {" in str(stage)
    g = np.random.default_rng(0)
    a, b = numbers(g, "f16", 16, 48), numbers(g, "f16", 48, 16)
    c = np.zeros((16, 16), np.float32)
    interpret(stage, {"a": a, "b": b, "c": c}, (1, 32), n=3)
    x, y = a.astype(np.float32), b.astype(np.float32)
    wanted = x[:, :16] @ y[:16] + x[:, 32:] @ y[32:]
    wanted = np.where(wanted < 9, wanted, -wanted)
    wanted[0] += np.arange(16) + 1 + 2 + 4
    np.testing.assert_array_equal(c, wanted)


@tw.kernel(subgroup=32)
def counted(a: tw.array("bf16", 2), b: tw.array("bf16", 2), c: tw.array("f32", 2)) -> None:
    tile_a = tw.joint_matrix("a", 16, 16, "bf16")
    tile_b = tw.joint_matrix("b", 16, 16, "bf16")
    total = tw.joint_matrix("accumulator", 16, 16, "f32")
    total.fill(0.0)
    k = 0
    while k < a.shape[1]:
        tile_a.load(a, (0, k))
        tile_b.load(b, (k, 0))
        total.mad(tile_a, tile_b)
        k += 16
    total.store(c, (0, 0))


def test_the_report_says_what_was_refused() -> None:
    result = scheduled(counted.over(local=(1, 32)))
    assert "<mma_" not in str(result.kernel)
    (note,) = result.log.notes
    assert note.startswith("products by each lane for itself ('k' is private to lanes")
    (note,) = scheduled(half.over(local=(1, 16))).log.notes
    assert note == "sums in memory between products ('total' is not only used as a whole)"
    assert scheduled(twice.over(local=(1, 32))).log.notes == []


@pytest.mark.parametrize(
    ("types", "sizes"),
    [
        (BF16, (32, 64, 32)),
        (("s8", "s8", "s32"), (32, 64, 64)),
        (("tf32", "tf32", "f32"), (16, 8, 8)),
    ],
    ids=lambda each: "-".join(map(str, each)),
)
def test_ptxas_spills_nothing(types: Types, sizes: tuple[int, int, int]) -> None:
    names = dict(zip("ABC", types, strict=True))
    chosen = tuple(map(dtype, types))
    result = product.over(local=(1, 64), sizes=sizes, types=chosen, **names)
    launches = lower_launches(run_passes(scheduled(result).kernel), nvidia.machine("sm_80"))
    ptx = to_ptx(launches.text, "sm_80")
    assert "mma.sync" in ptx
    if assembled(ptx, "sm_80") is None:
        pytest.skip("no ptxas here knows sm_80")


def test_combinations_say_which_sizes_are_native() -> None:
    result = {
        str(matrix_combination): matrix_combination
        for matrix_combination in tw.matrix_combinations("nvidia:sm_90a")
    }
    each = result["bf16 by bf16 into f32"]
    assert (each.instructions, each.sizes) == (("mma_m16n8k16_f32_bf16",), ((16, 8, 16),))
    assert (16, 8, 8) in result["f16 by f16 into f16"].sizes
