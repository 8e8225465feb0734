"""Lanes of a vector that lie side by side in runs: in blocks of a layout, some of them masked."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sweeps import in_turns
from test_lane_values import targets
from tilewright.dtypes import DType, bf16, f16, f32, f64, s8, s32, s64, u8, u32
from tilewright.engine.program import Code
from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel, verify
from tilewright.machines import nvidia
from tilewright.targets.llvm.lane_places import parts_of, runs_of, vectors_over
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.targets.program import abi_of
from tilewright.targets.x86.target import x86_target

ROWS, CHANNELS = 5, 24


def _copy(type_: DType, block: int, lanes: int, mask: str = "", condition: str = "") -> Kernel:
    """A copy from rows to blocks of channels and back, so many ``lanes`` at a time."""
    blocks = CHANNELS // block
    layout = f"{{1:{blocks}:{ROWS * block} 0:{ROWS}:{block} 1:{block}:1}}"
    where = f"      if {condition}:\n  " if condition else ""
    kernel = parse_kernel(f"""kernel k(
    in src: {type_}[{ROWS}, {CHANNELS}],
    inout blocked: {type_}[{ROWS}, {CHANNELS}] {layout},
    inout dst: {type_}[{ROWS}, {CHANNELS}],
):
  for o in {ROWS}:
    vector for l in {lanes}:
{where}      blocked[o, l] = src[o, l]
  for o in {ROWS}:
    vector for l in {lanes}:
      dst[o, l] = blocked[o, l{mask}]
""")
    verify(kernel)
    return kernel


@pytest.mark.parametrize(
    ("places", "runs"),
    [
        ([0], [(0, 1)]),
        ([0, 1, 2, 3, 40, 41, 42, 43], [(0, 4), (4, 4)]),
        ([0, 1, 2, 40, 41, 42], [(0, 2), (2, 1), (3, 2), (5, 1)]),
        ([0, 2, 4, 5], [(0, 1), (1, 1), (2, 2)]),
        ([3, 2, 1, 0], [(0, 1), (1, 1), (2, 1), (3, 1)]),
    ],
)
def test_runs(places: list[int], runs: list[tuple[int, int]]) -> None:
    assert list(runs_of(places)) == runs


@pytest.mark.parametrize(
    ("places", "most", "vectors"),
    [
        # Every second one of 31: nothing behind the last one is loaded.
        (range(0, 32, 2), 16, [(0, 8), (15, 8)]),
        (range(0, 13, 2), 8, [(0, 3), (5, 4)]),
        (range(15, -1, -1), 16, [(0, 16)]),
        ([0, 0, 1, 1, 2, 2, 3, 3], 8, [(0, 8)]),
        (range(0, 48, 3), 16, [(0, 6), (16, 4), (30, 6)]),
    ],
)
def test_vectors_over_places(
    places: range | list[int], most: int, vectors: list[tuple[int, int]]
) -> None:
    starts, width = vectors_over(max(places) + 1, most)
    parts = parts_of(list(places), starts)
    assert list(zip(starts, map(len, parts), strict=True)) == vectors
    for lane, place in enumerate(places):
        (start,) = (s + part[lane] for s, part in zip(starts, parts, strict=True) if lane in part)
        assert start == place
    assert starts[-1] + width == max(places) + 1


# Places of lanes that lie in a few vectors.
CLOSE = (
    *("l * 2 + 1", "l * 3", "70 - l", "60 - l * 2", "l // 2 * 3", "l % 5 * 4 + l // 5"),
    "l * (l + 1) % 2 + 3",  # one element for all, as nobody sees from its bounds
)


@pytest.mark.parametrize(
    ("type_", "place", "lanes", "mask"),
    in_turns(
        9,
        [f16, s8, u8, bf16, f32, f64],
        CLOSE,
        [7, 8, 16, 21],
        ["", " | l < 5", " | l % 3 != o", " | o < 1", " | 3 <= {0} and {0} < 40"],
    ),
)
def test_lanes_are_chosen_from_vectors(type_: DType, place: str, lanes: int, mask: str) -> None:
    """As the interpreter loads them, on all levels that run here. What masks hide, lies outside."""
    kernel = parse_kernel(f"""kernel k(
    in src: {type_}[2, 72],
    inout dst: {type_}[2, {lanes}],
):
  for o in 2:
    vector for l in {lanes}:
      dst[o, l] = src[o, {place}{mask.format(place)}]
""")
    verify(kernel)
    source = (np.arange(144) % 100 + 1).astype(type_.numpy)
    wanted = np.full(2 * lanes, 7).astype(type_.numpy)
    run(kernel, {"src": source, "dst": wanted})
    for target in targets():
        module = target.lower(kernel)
        code = Code(target, target.assemble(module), abi_of(kernel, module))
        result = np.full(2 * lanes, 7).astype(type_.numpy)
        code.run([a.ctypes.data for a in (source, result)], 1)
        np.testing.assert_array_equal(result, wanted, err_msg=target.name)


def test_loaded_places_are_one_gather() -> None:
    kernel = parse_kernel("""kernel k(in src: f32[64], in p: s64[16], inout dst: f32[16]):
  vector for l in 16:
    dst[l] = src[p[l] | 0 <= p[l] and p[l] < 64]
""")
    for level, count in (("avx512", 1), ("avx2", 0)):
        text = x86_target(level).lower(kernel).text
        assert len(re.findall(r"call <16 x float> @llvm.masked.gather", text)) == count


def test_every_second_element_is_two_loads() -> None:
    def text(level: str, mask: str = "") -> str:
        kernel = parse_kernel(f"""kernel k(in src: f32[64], inout dst: f32[16]):
  vector for l in 16:
    dst[l] = src[l * 2{mask}]
""")
        return x86_target(level).lower(kernel).text

    plain, masked = text("avx512"), text("avx512", " | 0.0 < dst[l]")
    assert len(re.findall(r"load <16 x float>", plain)) == 2
    assert len(re.findall(r"call <16 x float> @llvm.masked.load", masked)) == 2
    for found in (plain, masked):
        assert not re.findall(r"load float|extractelement <16 x i1>", found)
    # There are no masked loads: lanes one by one.
    assert not re.findall(r"llvm.masked.load", text("sse42", " | 0.0 < dst[l]"))


@pytest.mark.parametrize(
    ("type_", "lanes", "place", "mask"),
    in_turns(
        7,
        [f32, f64, s32, u32, s64, bf16, u8],
        [5, 8, 16, 21, 32],
        ["p[l]", "p[l] + l * 2", "s64(n[l])", "s64(n[l]) * 2 - o"],
        ["", " | l < 5", " | o < 1", " | {0} < 40 and 0 <= {0}"],
    ),
)
def test_elements_at_loaded_places(type_: DType, lanes: int, place: str, mask: str) -> None:
    """As the interpreter loads them. What masks hide, lies outside."""
    kernel = parse_kernel(f"""kernel k(
    in src: {type_}[2, 128],
    in p: s64[{lanes}],
    in n: s32[{lanes}],
    inout dst: {type_}[2, {lanes}],
):
  for o in 2:
    vector for l in {lanes}:
      dst[o, l] = src[o, {place}{mask.format(place)}]
""")
    verify(kernel)
    rng = np.random.default_rng(1)
    src = (np.arange(256) % 100 + 1).astype(type_.numpy)
    p = rng.integers(1, 20, lanes)
    if "<=" in mask:
        p = np.where(rng.random(lanes) < 0.5, p, rng.choice([-1, 1], lanes) * 10**9)
    n = p.astype(np.int32)
    wanted = np.full(2 * lanes, 7).astype(type_.numpy)
    run(kernel, {"src": src, "p": p, "n": n, "dst": wanted})
    for target in targets():
        module = target.lower(kernel)
        code = Code(target, target.assemble(module), abi_of(kernel, module))
        result = np.full(2 * lanes, 7).astype(type_.numpy)
        code.run([a.ctypes.data for a in (src, p, n, result)], 1)
        np.testing.assert_array_equal(result, wanted, err_msg=target.name)


@pytest.mark.parametrize(
    ("type_", "block", "lanes", "mask"),
    in_turns(
        9,
        [f16, s8, u8, bf16, f32, f64],
        [2, 3, 4, 8],
        [8, 11, 16, 24],
        ["", " | l < 9", " | o < 2", " | l < o + 5"],
    ),
)
def test_blocks_are_copied(type_: DType, block: int, lanes: int, mask: str) -> None:
    """As the interpreter does, on all levels that run here; also where an `if` is in the way."""
    for condition in ("", "l < 7"):
        kernel = _copy(type_, block, lanes, mask, condition)
        size = ROWS * CHANNELS
        source = (np.arange(size) % 100 + 1).astype(type_.numpy)
        wanted = {n: np.full(size, 7).astype(type_.numpy) for n in ("blocked", "dst")}
        run(kernel, {"src": source, **wanted})
        for target in targets():
            result = {n: np.full(size, 7).astype(type_.numpy) for n in wanted}
            module = target.lower(kernel)
            code = Code(target, target.assemble(module), abi_of(kernel, module))
            code.run([a.ctypes.data for a in (source, result["blocked"], result["dst"])], 1)
            for name, array in wanted.items():
                np.testing.assert_array_equal(result[name], array, err_msg=f"{name} {target.name}")


def test_a_block_is_one_access() -> None:
    text = x86_target("avx512").lower(_copy(f32, 4, 24)).text
    # Of 24 lanes, in the registers of 32, blocks of four.
    assert len(re.findall(r"store <4 x float>", text)) == CHANNELS // 4
    assert len(re.findall(r"load <4 x float>", text)) == CHANNELS // 4
    assert not re.findall(r"(store|load) float", text)


def test_a_block_is_one_access_of_a_device() -> None:
    text = lower_launches(_grid(), nvidia.machine("sm_70")).text
    ptx = to_ptx(text, "sm_70")
    assert ptx.count("st.global.v4.b32") == 2 and "st.global.b32" not in ptx


def _grid() -> Kernel:
    return parse_kernel("""kernel k(
    in src: f32[64, 8],
    out dst: f32[64, 8] {1:2:256 0:64:4 1:4:1},
):
  grid for g in 2:
    workgroup for o in 32:
      vector for l in 8:
        dst[g * 32 + o, l] = src[g * 32 + o, l]
""")
