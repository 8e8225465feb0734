"""Ops without a contraction: transposes, reductions along what is contiguous, and blocks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from schedule_cases import equal
from skips import lacking
from sweeps import in_turns
from tilewright.errors import ScheduleError
from tilewright.interpret import pack
from tilewright.ir import Kernel, parse_kernel, to_text
from tilewright.machines import x86
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.start import Start
from tilewright.schedule.reductions.rfactor import rfactor
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.registry import find_target

LEVELS = ("sse42", "avx2", "avx512", "avx512_bf16")


def scheduled(op: Op, level: str = "avx512") -> KernelSchedule:
    return choose.choose(Start.of(op), x86.machine(level, cores=2))[1]


def instructions(kernel: Kernel) -> set[str]:
    text = to_text(kernel)
    return {part.partition(">")[0] for part in text.split("<")[1:] if ">(" in part}


def check_reorder(op: Op, target: str) -> None:
    """Compiled code against numpy, bit for bit, the padding of blocks included."""
    if not find_target(target).runs_here:
        lacking(f"this processor does not run {target}")
    kernel = tw.compile(op, target=target, threads=1)
    source, result = (param.buffer for param in op.kernel().params)
    values = np.random.default_rng(0).integers(0, 100, source.shape).astype(np.float64)
    src, dst = (kernel.signature.forms[name].empty() for name in ("src", "dst"))
    _put(src, source, values)
    _put(dst, result, np.full(result.shape, 77))
    if dst.shape != result.shape:
        dst[...] = np.asarray(77, dst.dtype)
    kernel(src=src, dst=dst)
    wanted = kernel.signature.forms["dst"].empty()
    _put(wanted, result, values)
    np.testing.assert_array_equal(dst.astype(np.float64), wanted.astype(np.float64))


def _put(array: Any, buffer: Any, values: Any) -> None:
    values = values.astype(buffer.dtype.numpy)
    if array.shape == buffer.shape:
        array[...] = values
    else:
        array.reshape(-1)[...] = pack(buffer, values)


# Shapes, and the layouts from which and to which they are copied.
REORDERS = (
    ("2x33x3x7", "nchw", "nChw16c"),
    ("2x33x3x7", "nChw16c", "nchw"),
    ("1x3x5x17", "nchw", "nhwc"),
    ("2x40x3x17", "nhwc", "nchw"),
    ("67x130", "ab", "ba"),
    ("17x33x5", "abc", "cba"),
    ("33x17", "aB8b", "AB16b16a"),
    ("2x17x5x3", "aBcd8b", "aBcd16b"),
    ("18x5x7x3", "ABcd16b16a", "ABcd16a16b"),
)


@pytest.mark.parametrize(("problem", "level"), in_turns(2, REORDERS, LEVELS))
def test_reorders_are_exact(problem: tuple[str, str, str], level: str) -> None:
    shape, src, dst = problem
    for dtype in ("f32", "bf16", "s8", "f64", "f32:bf16"):
        check_reorder(tw.reorder(shape, src=src, dst=dst, dtype=dtype), f"x86:{level}")


@pytest.mark.parametrize(
    ("level", "name"),
    [("sse42", "transpose_f32x4"), ("avx2", "transpose_f32x8"), ("avx512", "transpose_f32x16")],
)
def test_the_widest_transpose_is_chosen(level: str, name: str) -> None:
    schedule = scheduled(tw.reorder("1x32x8x8", src="nchw", dst="nChw16c"), level)
    assert instructions(schedule.kernel) == {name}


def test_blocks_limit_the_transpose() -> None:
    schedule = scheduled(tw.reorder("1x32x8x8", src="nchw", dst="nChw8c"))
    assert instructions(schedule.kernel) == {"transpose_f32x8"}


@pytest.mark.parametrize(
    ("shape", "loops"),
    [
        # The first cache keeps fewer rows of the result, which are 2048 bytes apart, than of the
        # source: lines of the result are completed at once, in blocks of 2 squares.
        ("512x768", ["d1_o 48", "d0_o 32", "d1_o2 2", "d0_o2 2"]),
        ("768x512", ["d0_o 48", "d1_o 32", "d0_o2 2", "d1_o2 2"]),
        # It keeps enough of both: blocks of 4 squares.
        ("608x736", ["d0_o 19", "d1_o 23", "d0_o2 4", "d1_o2 4"]),
        # Past the caches, both squares of a line of the result follow one another.
        ("4096x4096", ["d0_o 16", "d1_o 16", "d0_o2 16", "d1_o2 16", "d1_o3 2", "d0_o3 2"]),
    ],
)
def test_squares_go_as_the_first_cache_keeps_rows(shape: str, loops: list[str]) -> None:
    text = to_text(scheduled(tw.reorder(shape, src="ab", dst="ba"), "avx2").kernel)
    result = re.findall(r"for (d\d_o\d*) in (\d+):", text)
    assert [" ".join(loop) for loop in result] == loops


def test_the_stages_of_a_reorder(golden: Any) -> None:
    stages = scheduled(tw.reorder("1x18x8x8", src="nchw", dst="nChw16c")).stages
    assert list(stages)[:4] == ["naive", "fused", "transposed epilogue", "vectors epilogue"]
    texts = (to_text(stages[name]) for name in ("transposed epilogue", "vectors epilogue"))
    golden("reorder_stages", "\n".join(texts))


def test_other_operands_stay_as_they_are() -> None:
    """A post-op's operand that lies as the result does is read directly."""
    op = tw.reorder("1x32x8x8", src="nchw", dst="nhwc", epilogue=[tw.relu()])
    text = to_text(scheduled(op).kernel)
    assert text.count("<transpose_f32x16>") == 1
    assert "max(src_packed[" in text


def _sums(rows: int, columns: int, combiner: str = "add", dtype: str = "f32") -> Kernel:
    start = {"add": "0", "mul": "1", "max": "-1000", "min": "1000"}[combiner]
    start = f"{dtype}({start})" if dtype.startswith("s") else f"{start}.0"
    return parse_kernel(
        f"""
        kernel f(in src: {dtype}[{rows}, {columns}], out dst: {dtype}[{rows}]):
          compute init(i in {rows}):
            dst[i] = {start}
          compute main(i in {rows}, k in {columns}):
            x = src[i, k]
            dst[i] {combiner}= x
        """
    )


@pytest.mark.parametrize("columns", [3, 16, 17, 64, 136, 139])
@pytest.mark.parametrize("combiner", ["add", "max", "min", "mul"])
def test_widened_reductions(columns: int, combiner: str) -> None:
    naive = _sums(3, columns, combiner, "s32")
    for masked in (False, True):
        equal(naive, rfactor(naive, "main", "k", 4, lanes=16, masked=masked))


def test_lanes_text(golden: Any) -> None:
    kernel = rfactor(_sums(2, 139), "main", "k", 4, lanes=16)
    golden("rfactor_lanes", to_text(kernel))


def test_lanes_refuse() -> None:
    with pytest.raises(ScheduleError, match="'i' is not reduced"):
        rfactor(_sums(2, 32), "main", "i", 1, lanes=16)
    with pytest.raises(ScheduleError, match="'init' does not accumulate"):
        rfactor(_sums(2, 32), "init", "i", 1, lanes=16)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("algorithm", ["sum", "max", "min", "mean"])
@pytest.mark.parametrize("columns", [5, 16, 67, 200])
def test_reductions_of_rows(level: str, algorithm: str, columns: int) -> None:
    target = f"x86:{level}"
    if not find_target(target).runs_here:
        lacking(f"this processor does not run {target}")
    other = "bf16:f32" if algorithm in ("sum", "mean") else "s32"
    for dtype in ("f32", other):
        op = tw.reduce(f"7x{columns}:7x1", algorithm=algorithm, dtype=dtype)
        kernel = tw.compile(op, target=target, threads=1)
        # Of one sign, so that a 0 from beyond the end would be the maximum (minimum).
        low, high = (1, 9) if algorithm == "min" else (-8, 0)
        values = np.random.default_rng(0).integers(low, high, (7, columns)).astype(np.float64)
        src = values.astype(op.argument("src").dtype.numpy)
        result = np.asarray(kernel(src=src)).astype(np.float64)
        function = {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean}[algorithm]
        np.testing.assert_allclose(result, function(values, axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("columns", [65, 67, 100, 1001])
def test_partial_results_of_a_rest_are_registers(columns: int) -> None:
    schedule = scheduled(tw.reduce(f"7x{columns}:7x1", algorithm="sum"), "avx2")
    assert "alloca" not in find_target("x86:avx2").lower(schedule.kernel).text


def test_rows_are_reduced_in_lanes() -> None:
    schedule = scheduled(tw.reduce("7x200:7x1", algorithm="sum"))
    assert instructions(schedule.kernel) == {"add_across_f32x16"}


def test_elementwise_on_blocks_runs_in_lanes() -> None:
    op = tw.elementwise("2x18x3x5", "relu", src="nChw16c", dst="nChw16c")
    assert "vector for d1 in 16" in to_text(scheduled(op).kernel)


def test_a_border_of_one_element_does_not_cost_the_lanes() -> None:
    text = to_text(scheduled(tw.elementwise("65", "relu")).kernel)
    assert "vector for" in text and "dst[64]" in text


@pytest.mark.parametrize(
    ("op", "lanes"),
    [
        (tw.elementwise("4x96", "exp"), 32),
        (tw.elementwise("4x96", "relu"), 32),
        (tw.softmax("4x96", axis=1), 32),
        (tw.softmax("4x80", axis=1), 16),
    ],
)
def test_what_combines_nothing_goes_on_several_registers_at_a_time(op: Op, lanes: int) -> None:
    text = to_text(scheduled(op, "avx2").kernel)
    assert max(int(n) for n in re.findall(r"vector for \w+ in (\d+)", text)) == lanes


def test_functions_of_odd_sizes() -> None:
    """A rest goes in single registers, with masks in the last one."""
    rng = np.random.default_rng(0)
    for size in (1, 7, 31, 33, 65, 100):
        x = rng.standard_normal((3, size), dtype=np.float32)
        result = tw.compile(tw.elementwise(f"3x{size}", "tanh"), threads=1)(src=x)
        np.testing.assert_allclose(result, np.tanh(x.astype(np.float64)), rtol=4e-7)
