"""Factors that leave a sum, and products with weights that become floats in registers."""

from __future__ import annotations

import random
import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import NVIDIA, need_device, needs_x86
from renaming import renamed
from schedule_cases import becomes
from tilewright.errors import ScheduleError
from tilewright.interpret import run
from tilewright.ir import Kernel, parse_kernel, verify
from tilewright.ir.printer import to_text
from tilewright.recipes import choose
from tilewright.recipes.config import ContractionConfig, FactoredConfig, parse_config
from tilewright.recipes.start import Start
from tilewright.schedule.reductions.factor_out import factor_out
from tilewright.targets.registry import find_target
from tilewright.testing.verify import Status
from tilewright.testing.verify import verify as verify_op

pytestmark = pytest.mark.usefixtures("own_cache")
AVX2 = "x86:avx2"
MACHINE = find_target(AVX2).machine

SUMS = """
    kernel sums(in x: f32[8], in q: f32[8, 6], in z: f32[2, 6], in s: f32[2, 6], out y: f32[6]):
      compute init(n in 6):
        y[n] = 0.0
      compute main(n in 6, g in 2, r in 4):
        a = x[g * 4 + r]
        q = q[g * 4 + r, n]
        z = z[g, n]
        s = s[g, n]
        y[n] add= a * ((q - z) * s)
    """


def _kernel(text: str) -> Kernel:
    kernel = parse_kernel(textwrap.dedent(text).strip() + "\n")
    verify(kernel)
    return kernel


# The transform.


def test_factors_leave_the_sum() -> None:
    becomes(
        SUMS,
        lambda k: factor_out(k, "main", ["r"]),
        """
        kernel sums(in x: f32[8], in q: f32[8, 6], in z: f32[2, 6], in s: f32[2, 6], out y: f32[6]):
          compute init(n in 6):
            y[n] = 0.0
          alloc main_sums: f32[6, 2]
          compute main_sums_init(n in 6, g in 2):
            main_sums[n, g] = 0.0
          compute main(n in 6, g in 2, r in 4):
            a = x[g * 4 + r]
            q = q[g * 4 + r, n]
            main_sums[n, g] add= a * q
          alloc main_sums2: f32[2]
          compute main_sums2_init(g in 2):
            main_sums2[g] = 0.0
          compute main2(g in 2, r in 4):
            a = x[g * 4 + r]
            main_sums2[g] add= a
          compute main_total(n in 6, g in 2):
            z = z[g, n]
            s = s[g, n]
            sum = main_sums[n, g]
            sum2 = main_sums2[g]
            y[n] add= s * sum + -z * s * sum2
        """,
    )


# Bodies over a, q, which vary along what is summed first, and z, s, which don't.
BODIES = {
    "a * q * s": ["main"],
    "(a + q) * (z - s)": ["main"],
    "s * (q - 3.0) * a": ["main", "main2"],
    "z * a - s * q": ["main", "main2"],
    "z + q * s": ["main"],
    "-(a * (q - z))": ["main", "main2"],
    "max(q, z) * s": ["main"],
    "z * s": [],
    "(a + q) * (a - q) * (s + z) * (a + z)": ["main"],
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("inner", [("r",), ("g", "r")])
def test_sums_are_the_same(body: str, inner: tuple[str, ...]) -> None:
    kernel = _kernel(SUMS.replace("a * ((q - z) * s)", body))
    result = factor_out(kernel, "main", inner)
    verify(result)
    rng = np.random.default_rng(5)
    values = {
        array.name: rng.integers(-4, 5, array.buffer.shape).astype(np.float32)
        for array in kernel.arrays
        if array.access == "in"
    }
    results = []
    for stage in (kernel, result):
        memory = {**values, "y": np.zeros(6, np.float32)}
        flat = {name: np.ascontiguousarray(array).reshape(-1) for name, array in memory.items()}
        run(stage, flat)
        results.append(flat["y"])
    np.testing.assert_array_equal(*results)
    sums = [s for s in BODIES[body] if f"compute {s}(" in to_text(result)]
    assert sums == BODIES[body] and "main_total" in to_text(result)


@pytest.mark.parametrize(
    ("change", "dims", "message"),
    [
        (("r in 4", "r in 4"), ["n"], "'n' is not reduced"),
        (("r in 4", "r in 4"), ["k"], "has no dim 'k'"),
        (("r in 4", "r in 4"), [], "no dims are named"),
        (("add=", "max="), ["r"], "'main' does not add up"),
        (("y[n] add", "y[n | n < 5] add"), ["r"], "stores under a mask"),
    ],
)
def test_what_is_refused(change: tuple[str, str], dims: list[str], message: str) -> None:
    kernel = _kernel(SUMS.replace(*change))
    with pytest.raises(ScheduleError, match=f"factor_out: .*{message}"):
        factor_out(kernel, "main", dims)


# The recipe.

NIBBLES = """
    kernel k(in x: f32[{m}, {k}], in w: u8[{h}, {n}], in s: f32[{g}, {n}], out y: f32[{m}, {n}]):
      alloc t: f32[{k}, {n}]
      compute number(c in {k}, d in {n}):
        w = w[c // 2, d]
        s = s[c // 32, d]
        t[c, d] = s * (f32(s32(w) >> s32(c % 2 * 4) and s32(15)) - 8.0)
      compute clear(m in {m}, n in {n}):
        y[m, n] = 0.0
      compute product(m in {m}, n in {n}, k in {k}):
        x = x[m, k]
        t = t[k, n]
        y[m, n] add= x * t
    """


def nibbles(m: int, k: int, n: int) -> Kernel:
    return _kernel(NIBBLES.format(m=m, k=k, n=n, h=k // 2, g=k // 32))


def given_for(kernel: Kernel, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        array.name: rng.integers(0, 200, array.buffer.shape).astype(np.uint8)
        if array.dtype.name == "u8"
        else rng.integers(-4, 5, array.buffer.shape).astype(np.float32)
        for array in kernel.arrays
        if array.access == "in"
    }


@pytest.mark.parametrize("shape", [(1, 64, 40), (3, 32, 33), (2, 96, 8), (5, 64, 1)], ids=str)
@pytest.mark.parametrize("target", [pytest.param(AVX2, marks=needs_x86), "spirv:cpu", NVIDIA])
def test_kernels_of_text(shape: tuple[int, int, int], target: str) -> None:
    need_device(target)
    kernel = nibbles(*shape)
    values = given_for(kernel)
    result = tw.compile(kernel, target, threads=1)
    expected = tw.compile(kernel, "interpreter")(**values)
    np.testing.assert_array_equal(result(**values), expected)
    if target == AVX2 and shape[2] > 1:
        assert isinstance(result.config, FactoredConfig) and not result.config.pack


def test_names_play_no_part() -> None:
    kernel = nibbles(1, 64, 40)
    first, _ = choose.choose(Start(kernel, kernel), MACHINE)
    other, _ = renamed(kernel, random.Random(1))
    second, _ = choose.choose(Start(other, other), MACHINE)
    assert isinstance(first, FactoredConfig) and first == second


def test_rows_decide() -> None:
    """Few rows take weights as they are; for many, they become floats once."""
    configs = {
        m: choose.choose(Start(nibbles(m, 512, 512), nibbles(m, 512, 512)), MACHINE)[0]
        for m in (1, 8, 512)
    }
    assert isinstance(configs[1], FactoredConfig) and configs[1].tile == {"n": 32}
    assert isinstance(configs[8], FactoredConfig) and configs[8].tile == {"m": 4, "n": 16}
    assert isinstance(configs[512], ContractionConfig)


def test_packed_weights_stay_small() -> None:
    scale = tw.scale("weights", policy="per_ocic", group=32)
    op = tw.matmul("1x64:64x64", dtype="bf16:s4:f32", epilogue=[scale])
    _, scheduled = choose.choose(Start.of(op), MACHINE)
    pack = scheduled.packed["weights"]
    (packed,) = (array.buffer for array in pack.arrays if array.access != "in")
    assert packed.dtype.name == "u8" and packed.bytes == 32 * 64
    # The other factor becomes a float once, not for each column.
    assert "src_packed" in to_text(scheduled.stages["copied"])
    # Weights are asked for before they are read.
    assert "prefetch(&weights_packed[" in to_text(scheduled.kernel)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": "m"}, "lanes='m' is not along the weights"),
        ({"tile": {"k": 2}}, "is not a part of a dim of the result"),
        ({"tile": {"n": 64}}, "is not a part of a dim of the result"),
        ({"step": 12}, "step=12 is no part of a group"),
        ({"step": 1}, "step=1 is no part of a group"),
    ],
)
def test_configs_that_are_refused(change: dict[str, Any], message: str) -> None:
    kernel = nibbles(2, 64, 40)
    with pytest.raises(ScheduleError, match=message):
        tw.compile(kernel, AVX2, config=change)


def test_configs_that_are_not_of_such_products() -> None:
    config = parse_config("FactoredConfig(lanes='n', tile={'n': 8}, columns=8, step=2)")
    with pytest.raises(ScheduleError, match="multiplies by nothing that it makes of integers"):
        tw.compile(tw.matmul("2x8:8x16"), AVX2, config=config)


def test_weights_that_lie_the_other_way_are_packed() -> None:
    op = tw.matmul(
        "1x64:64x40",
        dtype="f32:u4:f32",
        weights="ba",
        epilogue=[tw.scale("weights", policy="per_ocic", group=32)],
    )
    config, scheduled = choose.choose(Start.of(op), MACHINE)
    assert isinstance(config, FactoredConfig) and config.pack and not scheduled.packed
    # In squares, in registers, and it is said what to do about it.
    assert "<transpose_u8x16>" in to_text(scheduled.stages["copied in squares"])
    assert scheduled.log.notes[0].startswith(
        "weights: brought into the order of reading in each call"
    )
    with pytest.raises(ScheduleError, match="the weights do not lie along the lanes"):
        tw.compile(op, AVX2, config={"pack": False})


def test_packing_in_each_call_is_predicted() -> None:
    scale = tw.scale("weights", policy="per_ocic", group=64)
    result = {}
    for layout in ("any", "ab", "ba"):
        op = tw.matmul("1x4096:4096x4096", dtype="f32:u4:f32", weights=layout, epilogue=[scale])
        start = Start.of(op)
        config, _ = choose.choose(start, MACHINE)
        ((_, candidates),) = choose.candidates(start, MACHINE, config).values()
        result[layout] = candidates[0].prediction
    assert result["any"].seconds == result["ab"].seconds < result["ba"].seconds / 2
    assert result["ba"].limit == "packing in each call"


@needs_x86
@pytest.mark.parametrize("group", [16, 32, 96])
@pytest.mark.parametrize("columns", [9, 40, 100])
def test_results_with_weights_that_lie_the_other_way(group: int, columns: int) -> None:
    scale = tw.scale("weights", policy="per_ocic", group=group)
    op = tw.matmul(f"2x96:96x{columns}", dtype="f32:u4:f32", weights="ba", epilogue=[scale])
    result = tw.compile(op, AVX2, threads=2)
    assert isinstance(result.config, FactoredConfig) and result.config.pack
    assert verify_op(op, lambda each: tw.compile(each, AVX2, threads=2)).status is Status.PASSED


def test_the_record_replays() -> None:
    scale = tw.scale("weights", policy="per_ocic", group=32)
    op = tw.matmul("3x64:64x40", dtype="bf16:s4:f32", epilogue=[scale, tw.bias(), tw.relu()])
    result = tw.compile(op, AVX2, threads=1)
    steps = result.source("schedule")
    assert 'schedule.factor_out("main", ("k_r_q", "k_r_r"))' in steps
    again = tw.compile(op, AVX2, threads=1, schedule=steps)
    assert again.source("llvm") == result.source("llvm")


def test_groups_that_do_not_divide_what_is_summed() -> None:
    """Of 96, 64 are one group and 32 another: sums are over 32."""
    text = NIBBLES.replace("c // 32", "c // 64").format(m=1, k=96, n=40, h=48, g=2)
    kernel = _kernel(text)
    values = given_for(kernel)
    result = tw.compile(kernel, AVX2, threads=1)
    assert isinstance(result.config, FactoredConfig)
    if result.target.runs_here:
        expected = tw.compile(kernel, "interpreter")(**values)
        np.testing.assert_array_equal(result(**values), expected)


def test_what_configs_may_be() -> None:
    kernel = nibbles(3, 64, 40)
    config, _ = choose.choose(Start(kernel, kernel), MACHINE)
    (words,) = choose.legal_values(Start(kernel, kernel), MACHINE, config).values()
    assert words["lanes"] == "'n'" and words["tile"] == "m: 1 to 3; n: 1 to 40"
    assert words["step"] == "2 or 4 or 8 or 16 or 32" and words["pack"] == "True or False"
    assert words["instruction"] == "''"
    start, machine = Start.of(product_of_pairs("3x64:64x32")), find_target(DOT).machine
    config, _ = choose.choose(start, machine)
    (words,) = choose.legal_values(start, machine, config).values()
    assert words["instruction"] == "'' or 'vdpbf16ps_512'"


def test_a_config_of_rows_fits_one() -> None:
    scale = tw.scale("weights", policy="per_ocic", group=32)
    several, one = (
        tw.matmul(f"{m}x64:64x40", dtype="f32:u8:f32", epilogue=[scale]) for m in (4, 1)
    )
    config = tw.compile(several, AVX2, threads=1).config
    assert isinstance(config, FactoredConfig) and config.tile["m"] == 4
    left = tw.compile(one, AVX2, threads=1, config=config).config
    assert isinstance(left, FactoredConfig) and left.tile == {"n": config.tile["n"]}


# With a dot product.

DOT = "x86:avx512_bf16"


def product_of_pairs(shape: str, weights: str = "u4", out: str = "f32", group: int = 32) -> tw.Op:
    return tw.matmul(
        shape,
        dtype=f"bf16:{weights}:{out}",
        epilogue=[
            tw.zero_point("weights", policy="per_ocic", dtype=weights, group=group),
            tw.scale("weights", policy="per_ocic", group=group),
        ],
    )


def floats_of(op: tw.Op) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        array.name: (
            rng.integers(-4, 5, array.buffer.shape)
            if array.dtype.is_float
            else rng.integers(0, 8 if array.dtype.name in ("u4", "s4") else 256, array.buffer.shape)
        ).astype(array.dtype.numpy)
        for array in Start.of(op).exact.arrays
        if array.access == "in"
    }


@pytest.mark.parametrize("weights", ["u4", "s4"])
@pytest.mark.parametrize(
    ("shape", "group"), [("1x64:64x32", 32), ("6x64:64x80", 64), ("3x128:128x16", 16)]
)
def test_pairs_are_added_up_by_a_dot_product(weights: str, shape: str, group: int) -> None:
    op = product_of_pairs(shape, weights, group=group)
    config, scheduled = choose.choose(Start.of(op), find_target(DOT).machine)
    assert isinstance(config, FactoredConfig) and config.instruction == "vdpbf16ps_512"
    (packed,) = (
        array.buffer for array in scheduled.packed["weights"].arrays if array.access == "out"
    )
    assert packed.dtype.name == "u16"
    for stage in scheduled.stages.values():
        verify(stage)
    assert "main<vdpbf16ps_512>(n in 16, k" in to_text(scheduled.kernel)
    result = tw.compile(op, DOT, threads=1)
    assert "permvar.hi" in result.source("llvm") and "dpbf16ps" in result.source("llvm")
    floats = floats_of(op)
    expected = tw.compile(op, "interpreter")(**floats)
    # What is scheduled gives the same in the interpreter, and on processors that have all of it.
    on_paper = {**floats, "weights_packed": np.zeros(packed.layout.extent, np.uint16)}
    flat = {name: np.ascontiguousarray(value).reshape(-1) for name, value in on_paper.items()}
    flat["dst"] = np.zeros(expected.size, np.float32)
    for kernel in (scheduled.packed["weights"], scheduled.kernel):
        run(kernel, {array.name: flat[array.name] for array in kernel.arrays})
    np.testing.assert_array_equal(flat["dst"].reshape(expected.shape), expected)
    if result.target.runs_here:
        floats["weights"] = result.pack("weights", floats["weights"])
        np.testing.assert_array_equal(result(**floats), expected)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (product_of_pairs("1x64:64x40"), "no whole vectors"),
        (product_of_pairs("1x60:60x32", group=12), "groups of no whole steps"),
        (product_of_pairs("1x64:64x32", group=8), "groups of one step"),
        (tw.matmul("1x64:64x32", dtype="bf16:u8:f32"), "a weight is an element"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_a_dot_product_does_not_take(op: tw.Op, why: str) -> None:
    config, _ = choose.choose(Start.of(op), find_target(DOT).machine)
    assert not isinstance(config, FactoredConfig) or not config.instruction


@pytest.mark.parametrize(
    ("dtype", "change", "message"),
    [
        ("bf16:u4:f32", {"step": 16}, "takes 8 of K at a time"),
        ("bf16:u4:f32", {"pack": False}, "takes 8 of K at a time"),
        ("bf16:u4:f32", {"tile": {"m": 4, "n": 32}}, "needs full tiles"),
        ("bf16:u4:f32", {"tile": {"m": 2, "n": 8}}, "needs full tiles"),
        ("bf16:u4:f32", {"columns": 40}, "needs full tiles"),
        ("f32:u4:f32", {}, "does not add up products of matmul_fwd_d"),
        ("bf16:u8:f32", {}, "does not add up products of matmul_fwd_d"),
    ],
)
def test_configs_with_a_dot_product_that_are_refused(
    dtype: str, change: dict[str, Any], message: str
) -> None:
    op = tw.matmul(
        "6x64:64x64", dtype=dtype, epilogue=[tw.scale("weights", policy="per_ocic", group=32)]
    )
    config = FactoredConfig("n", {"m": 2, "n": 32}, 64, 8, instruction="vdpbf16ps_512")
    with pytest.raises(ScheduleError, match=message):
        tw.compile(op, DOT, config=replace(config, **change))


def test_the_record_of_a_dot_product_replays() -> None:
    op = product_of_pairs("2x64:64x32", "s4", "bf16")
    result = tw.compile(op, DOT, threads=1)
    steps = result.source("schedule")
    assert 'schedule.read_words("main", "' in steps and 'schedule.precompute("main", "' in steps
    again = tw.compile(op, DOT, threads=1, schedule=steps)
    assert again.source("llvm") == result.source("llvm")
