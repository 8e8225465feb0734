"""Indices of 32 bits where they are known to fit, of 64 elsewhere: as text, and as results."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import tilewright as tw
from needs import needs_opencl
from tilewright.dtypes import s64
from tilewright.engine.program import Code
from tilewright.facts import Facts
from tilewright.interpret import run
from tilewright.ir import (
    Expr,
    binary,
    const,
    intervals,
    parse_kernel,
    select,
    to_text,
    unary,
    var,
    verify,
    walk,
)
from tilewright.machines import nvidia
from tilewright.targets.llvm.module import Module
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.targets.program import abi_of
from tilewright.targets.registry import find_target
from tilewright.targets.x86.target import x86_target

LIMIT = 2**31


def lowered(text: str) -> Module:
    kernel = parse_kernel(text)
    verify(kernel)
    return lower_launches(kernel, nvidia.machine("sm_80"))


def body(*lines: str, params: str = "inout x: s32[64]") -> str:
    return "\n".join([f"kernel k({params}):", *("  " + line for line in lines), ""])


def arithmetic(text: str) -> list[str]:
    """The instructions on integers, without names: operation, flags and type."""
    result = []
    for line in lowered(text).text.splitlines():
        words = line.replace(",", "").split()
        if len(words) > 3 and words[1] == "=":
            kept = [w for w in words[2:] if not w.startswith("%") and not w.lstrip("-").isdigit()]
            if kept[0] in ("add", "sub", "mul", "udiv", "urem", "sdiv", "srem", "and", "lshr"):
                result.append(" ".join(kept))
            elif kept[0] in ("phi", "icmp", "zext", "sext", "trunc"):
                result.append(" ".join(kept[: 3 if kept[0] == "icmp" else 2]))
    return result


def test_work_items_and_loops_have_32_bits() -> None:
    text = body(
        "grid for g in 4:",
        "  lane for l in 32:",
        "    for i in 7:",
        "      if i + l < 30:",
        "        x[(g * 7 + i + l) // 3 % 5] = s32(1)",
    )
    result = arithmetic(text)
    assert result.count("udiv i32") == 1
    assert result.count("urem i32") == 1
    assert result.count("phi i32") == 1
    assert result.count("icmp slt i32") == 2
    assert "add nuw nsw i32" in result
    # Only the distance in bytes is of 64 bits.
    assert [instruction for instruction in result if "64" in instruction] == ["mul i64"]
    assert result.count("zext i32") == 1


@pytest.mark.parametrize(("extent", "type_"), [(LIMIT - 1, "i32"), (LIMIT, "i64"), (2**40, "i64")])
def test_the_least_loop_that_needs_64_bits(extent: int, type_: str) -> None:
    result = arithmetic(body(f"for i in {extent}:", "  x[i % 64] = s32(i % 7)"))
    assert f"phi {type_}" in result
    assert f"icmp slt {type_}" in result


def test_a_large_tensor() -> None:
    """2^34 elements: each index fits, their distance does not."""
    result = arithmetic(
        body(
            "grid for g in 65536:",
            "  lane for l in 256:",
            "    for i in 1024:",
            "      x[g, l * 1024 + i] = 1.0",
            params="out x: f32[65536, 262144]",
        )
    )
    distances = ["zext i32", "mul i64"] * 2
    assert result == [*distances, "phi i32", "phi ptr", "add nsw i32", "icmp slt i32"]


def test_what_is_computed_of_indices_may_not_fit() -> None:
    result = arithmetic(
        body(
            "grid for g in 65536:",
            "  lane for l in 256:",
            "    x[(g * 65536 + l * 3) // 100 % 64] = s32(1)",
        )
    )
    # g * 65536 reaches 2^32; its remainder fits again.
    assert "mul i64" in result
    assert "add i64" in result
    assert "udiv i64" in result
    assert "trunc i64" in result
    assert {instruction for instruction in result if "32" in instruction} == {
        "mul nuw nsw i32",
        "and i32",
        "zext i32",
    }


def test_what_may_be_negative_is_divided_with_a_correction() -> None:
    lines = "lane for l in 16:", "  x[l] = s32((l - 1) // 3 + (l - 1) % 3)"
    signed = arithmetic(body(*lines))
    assert {"sdiv i32", "srem i32", "sub nsw i32"} <= set(signed)
    plain = arithmetic(body(*lines).replace("l - 1", "l + 1"))
    assert {"udiv i32", "urem i32", "add nuw nsw i32"} <= set(plain)
    assert not {"sdiv i32", "srem i32"} & set(plain)


def test_indices_from_memory_have_64_bits() -> None:
    result = arithmetic(
        body(
            "lane for l in 16:",
            "  x[(at[l] + 1) % 64] = s32(1)",
            params="inout x: s32[64], in at: s64[16]",
        )
    )
    assert "add i64" in result
    small = arithmetic(
        body(
            "lane for l in 16:",
            "  x[(s64(at[l]) + 1) % 64] = s32(1)",
            params="inout x: s32[64], in at: u8[16]",
        )
    )
    assert "add nuw nsw i32" in small


def test_a_processor_keeps_64_bits() -> None:
    kernel = parse_kernel(body("for i in 7:", "  x[i * 3 // 2] = s32(i * 3 // 7)"))
    text = x86_target("").lower(kernel).text
    assert "i64" in text
    assert "phi i32" not in text
    assert "udiv i64" in text and "sdiv" not in text


# Results.


def _expression(r: random.Random, depth: int) -> Expr:
    """Of g and l, with numbers around the limits of 32 bits."""
    if depth == 0 or r.random() < 0.1:
        near = [0, 1, 2, 7, 31, 100, 46341, LIMIT // 2, LIMIT - 1, LIMIT, 2**33 + 5]
        number = const(r.choice(near) * r.choice([1, 1, -1]) + r.choice([0, 0, 1, -1]))
        return r.choice([var("g"), var("l"), var("l"), number])
    a, b = _expression(r, depth - 1), _expression(r, depth - 1)
    match r.choice(["op", "op", "op", "divide", "divide", "select", "unary"]):
        case "op":
            return binary(r.choice(["add", "sub", "mul", "min", "max"]), a, b)
        case "divide":
            by = const(r.choice([1, 2, 3, 8, 56, 1000, LIMIT - 1, LIMIT, -7]))
            return binary(r.choice(["floordiv", "mod"]), a, r.choice([by, by, b]))
        case "select":
            return select(binary(r.choice(["lt", "le", "eq"]), a, b), b, a + 1)
        case _:
            return unary(r.choice(["neg", "abs"]), a)


def _expressions(r: random.Random, count: int) -> list[str]:
    """Those that stay far from the limits of 64 bits, which is what indices do."""
    facts = Facts.empty().loop(var("g"), const(3)).loop(var("l"), const(32))
    result: list[str] = []
    while len(result) < count:
        expr = _expression(r, r.choice([1, 2, 3]))
        ranges = [facts.bounds(part) for part in walk(expr) if part.type is s64]
        if all(intervals.is_within(range_, (-(2**62), 2**62)) for range_ in ranges):
            result.append(to_text(expr))
    return result


@pytest.mark.parametrize("loop", ["lane for l in 32", "for l in 32", "vector for l in 16"])
@pytest.mark.parametrize(
    "target",
    [
        "x86",
        pytest.param("spirv", marks=needs_opencl),
    ],
)
def test_results_around_the_limits(target: str, loop: str) -> None:
    r = random.Random(loop)
    lanes = int(loop.split()[-1])
    texts = _expressions(r, 60)
    outer = "grid" if target == "spirv" else "parallel"
    lines = [f"{outer} for g in 3:", f"  {loop}:"]
    lines += [f"    x[{i}, g, l] = {text}" for i, text in enumerate(texts)]
    text = body(*lines, params=f"out x: s64[{len(texts)}, 3, {lanes}]")
    if target == "x86":
        text = text.replace("lane for", "for")
    kernel = parse_kernel(text)
    verify(kernel)
    wanted = {"x": np.zeros(len(texts) * 3 * lanes, np.int64)}
    run(kernel, wanted)
    result = np.zeros_like(wanted["x"])
    where = find_target(target)
    module = where.lower(kernel)
    Code(where, where.assemble(module), abi_of(kernel, module)).run([result.ctypes.data], 1)
    for number, (got, right) in enumerate(
        zip(result.reshape(len(texts), -1), wanted["x"].reshape(len(texts), -1), strict=True)
    ):
        np.testing.assert_array_equal(got, right, err_msg=texts[number])


@pytest.mark.parametrize("loop", ["for", "vector for"])
def test_loaded_indices_whose_own_index_is_simplified(loop: str) -> None:
    """The address of `table` loads at `i`, where the statement loads at `i % 8`."""
    kernel = parse_kernel(
        f"""
kernel gather(in index: s32[8], in table: f32[16], inout dst: f32[8]):
  {loop} i in 8:
    dst[s64(index[i % 8])] = table[s64(index[i % 8]) + s64(index[s64(index[i % 8]) % 8])]
"""
    )
    verify(kernel)
    arrays = {
        "index": np.array([3, 1, 7, 0, 2, 6, 5, 4], np.int32),
        "table": np.arange(16, dtype=np.float32),
        "dst": np.zeros(8, np.float32),
    }
    result = {name: array.copy() for name, array in arrays.items()}
    run(kernel, arrays)
    where = find_target("x86")
    module = where.lower(kernel)
    code = Code(where, where.assemble(module), abi_of(kernel, module))
    code.run([array.ctypes.data for array in result.values()], 1)
    np.testing.assert_array_equal(result["dst"], arrays["dst"])


def test_vectors_of_indices_are_compared_in_32_bits_where_they_fit() -> None:
    """Half as many registers as in 64, and flags as wide as the elements that they mask."""
    text = """
kernel rows(n: s64 in 0..MOST, in x: f32[n], out y: f32[n]):
  for i_o in (n + 7) // 8:
    vector for i in 8:
      if i_o*8 + i < n:
        y[i_o*8 + i] = x[i_o*8 + i | i_o*8 + i < n] + 1.0
"""
    for most, fits in ((4096, True), (2**40, False)):
        result = tw.compile(parse_kernel(text.replace("MOST", str(most))), "x86:avx2", threads=1)
        compared = re.findall(r"icmp slt <8 x i(\d+)>", result.source("llvm"))
        assert compared and ("64" not in compared) == fits
        x = np.arange(13, dtype=np.float32)
        np.testing.assert_array_equal(result(x=x), x + 1)
