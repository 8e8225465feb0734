"""Loop-invariant code motion: what moves where, what stays, and that nothing else changes."""

from __future__ import annotations

import random
import textwrap
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from random_ir import random_kernel
from sweeps import in_turns
from tilewright.conversions import convert
from tilewright.dtypes import f64
from tilewright.interpret import run
from tilewright.ir import Kernel, LoopKind, parse_kernel, to_text, verify
from tilewright.ir.stmt import For, Stmt
from tilewright.ir.visit import map_kernel, rewrite_stmts
from tilewright.passes import hoist

PARAMS = "in src: f32[8, 8], in scale: f32[1], in table: s64[8], inout dst: f32[8, 8, 8]"


def kernel(body: str) -> Kernel:
    text = f"kernel k({PARAMS}):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "  ")
    result = parse_kernel(text)
    verify(result)
    return result


def body_of(result: Kernel) -> str:
    return textwrap.dedent(to_text(result).split("):\n", 1)[1]).strip()


def check(before: str, after: str) -> None:
    source = kernel(before)
    result = hoist(source)
    verify(result)
    assert body_of(result) == textwrap.dedent(after).strip()
    assert hoist(result) is result
    same_results(source, result)


def stays(body: str) -> None:
    source = kernel(body)
    assert hoist(source) is source


def same_results(first: Kernel, second: Kernel, seed: int = 0) -> None:
    results = []
    for kernel in (first, second):
        rng = np.random.default_rng(seed)
        arrays: dict[str, Any] = {}
        for p in first.params:
            numbers = rng.integers(-4, 8, p.buffer.layout.extent).astype(np.float64)
            if p.name == "table":
                numbers = numbers % 8
            arrays[p.name] = np.array(convert(numbers, f64, p.dtype))
        run(kernel, arrays)
        results.append(arrays)
    for name, wanted in results[0].items():
        # bf16 has no NaN that numpy takes for equal.
        a, b = (np.asarray(x, np.float64) for x in (results[1][name], wanted))
        np.testing.assert_array_equal(a, b, err_msg=name)


def test_an_integer_goes_where_its_variables_are_known() -> None:
    check(
        """
        for i in 8:
          for j in 8:
            for k in 8:
              dst[i, j, k] = dst[(i + 1) // 2, min(j, 3), k]
        """,
        """
        for i in 8:
          t = (i + 1) // 2
          for j in 8:
            t2 = min(j, 3)
            for k in 8:
              dst[i, j, k] = dst[t, t2, k]
        """,
    )


def test_loops_next_to_each_other_share_a_name() -> None:
    check(
        """
        for i in 8:
          for j in min(7 - i, 3):
            dst[i, j, 0] = src[i, j + max(1 - i, 0)]
          for j in 2:
            dst[i, j, 1] = src[i, j + max(1 - i, 0)]
        """,
        """
        for i in 8:
          t = max(1 - i, 0)
          for j in min(7 - i, 3):
            dst[i, j, 0] = src[i, j + t]
          for j in 2:
            dst[i, j, 1] = src[i, j + t]
        """,
    )


def test_a_sum_is_no_work_but_what_is_in_it_is() -> None:
    stays("for i in 8:\n  for j in 4:\n    dst[i, j, 0] = src[i * 1, j * 2 - i + 7 - 7 + i]")
    check(
        """
        for i in 8:
          for j in 3:
            dst[i, j, 0] = src[i, j + i % 4 + 1]
        """,
        """
        for i in 8:
          t = i % 4
          for j in 3:
            dst[i, j, 0] = src[i, j + t + 1]
        """,
    )


def test_the_parts_of_a_name_go_further_out() -> None:
    check(
        """
        for i in 8:
          for j in 8:
            for k in 8:
              dst[i, j, k] = src[i, k] / f32((3 - max(1 - i, 0)) * (3 - max(1 - j, 0)))
        """,
        """
        for i in 8:
          t = max(1 - i, 0)
          for j in 8:
            t2: f32 = f32((3 - t) * (3 - max(1 - j, 0)))
            for k in 8:
              dst[i, j, k] = src[i, k] / t2
        """,
    )


def test_masks_are_named() -> None:
    check(
        """
        for i in 8:
          unrolled for j in 2:
            vector for k in 8:
              dst[i, j, k] = src[i - 1, k | 1 <= i and k < 7]
        """,
        """
        for i in 8:
          t: bool = 1 <= i
          unrolled for j in 2:
            vector for k in 8:
              dst[i, j, k] = src[i - 1, k | t and k < 7]
        """,
    )


def test_a_load_stays_in_front_of_the_loops_that_use_it() -> None:
    check(
        """
        for i in 8:
          for j in 8:
            dst[i, j, 0] = src[i, j]
          unrolled for j in 8:
            vector for k in 8:
              dst[i, j, k] = src[j, k] * scale[0]
        """,
        """
        for i in 8:
          for j in 8:
            dst[i, j, 0] = src[i, j]
          t: f32 = scale[0]
          unrolled for j in 8:
            vector for k in 8:
              dst[i, j, k] = src[j, k] * t
        """,
    )


@pytest.mark.parametrize(
    "body",
    [
        # depends on the lanes
        "for i in 8:\n  vector for k in 8:\n    dst[i, 0, k] = src[i, k // 2]",
        # only unrolled variables: a number
        "unrolled for i in 8:\n  for k in 8:\n    dst[i, 0, k] = src[i // 2, k]",
        # may be outside of the buffer where the loop does not run
        "for i in 8:\n  for j in 8:\n    for k in 8 - i:\n      dst[i, j, k] = src[i, k] "
        "* scale[i]".replace("scale[i]", "f32(table[j + i])"),
        # under a condition
        "for i in 8:\n  for j in 8:\n    if table[j] < 3:\n      dst[i, j, 0] = scale[0]",
        # memory that is written
        "for i in 8:\n  for j in 8:\n    dst[i, j, 1] = dst[i, 0, 0]",
        # nothing reaches the threads from outside
        "parallel for i in 8:\n  dst[i, 0, 0] = scale[0]",
    ],
)
def test_what_stays(body: str) -> None:
    stays(body)


def test_nothing_comes_between_loops_that_are_launched_together() -> None:
    check(
        """
        parallel for i in 8:
          parallel for j in 8:
            for k in 4:
              dst[i, j, k] = src[i // 2, (j + i) // 4 + k]
        """,
        """
        parallel for i in 8:
          parallel for j in 8:
            t = i // 2
            t2 = (j + i) // 4
            for k in 4:
              dst[i, j, k] = src[t, t2 + k]
        """,
    )


def test_indices_of_registers_stay_numbers() -> None:
    stays(
        """
        for i in 8:
          alloc acc: f32[8] private
          for j in 8:
            acc[i // 2] = 0.0
            dst[i, j, 0] = acc[i // 2]
        """
    )


def test_the_index_of_private_memory_stays_beside_the_same_index_of_another() -> None:
    check(
        """
        for i in 8:
          alloc own: f32[8] private
          for j in 4:
            own[i // 2] = 2.0
            dst[0, i, j] = src[i // 2, j] * own[i // 2]
        """,
        """
        for i in 8:
          t = i // 2
          alloc own: f32[8] private
          for j in 4:
            own[i // 2] = 2.0
            dst[0, i, j] = src[t, j] * own[i // 2]
        """,
    )


def test_there_is_a_budget() -> None:
    terms = " + ".join(f"min(i, {n})" for n in range(20))
    result = hoist(kernel(f"for i in 8:\n  for j in 8:\n    dst[i, j, ({terms}) % 8] = 0.0"))
    text = body_of(result)
    assert "t = " in text and text.count("\n") <= 4
    terms = " + ".join(f"src[{n}, min(j, {n % 7})]" for n in range(8))
    result = hoist(kernel(f"for j in 8:\n  for k in 8:\n    dst[0, j, k] = ({terms}) * src[j, k]"))
    verify(result)


@pytest.mark.parametrize("seed", in_turns(3, range(150)))
def test_random_kernels_compute_the_same(seed: int) -> None:
    kinds = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTOR)
    source = random_kernel(random.Random(seed), 30, kinds[: 2 + seed % 2])
    result = hoist(source)
    verify(result)
    same_results(in_order(source), in_order(result), seed)


def in_order(kernel: Kernel) -> Kernel:
    """``kernel`` with lanes one after another, so that those of a random one may race."""

    def serial(stmt: Stmt) -> Stmt:
        return replace(stmt, kind=LoopKind.SERIAL) if isinstance(stmt, For) else stmt

    return map_kernel(kernel, lambda body: rewrite_stmts(body, serial))


def test_what_a_unit_leaves_out_stays_a_mask() -> None:
    """Nothing computes its mask and indices: by them, the copy is known to be one of the unit."""
    copy = """
    grid for g in 4:
      alloc tile: f32[8, 8] workgroup
      alloc full: s64[1] workgroup
      subgroup for w in 1:
        mbarrier_init(&full[0], 1)
        for i in 4:
          mbarrier_expect(&full[0], 256)
          compute fill<tma_load>(m in 8, n in 8)SIGNALS:
            x = src[m + g // 2, n | m + g // 2 < 8 and g // 2 < 2]
            tile[m, n] = x
          mbarrier_wait(&full[0], i % 2)
    """
    moved = body_of(hoist(kernel(copy.replace("SIGNALS", ""))))
    kept = body_of(hoist(kernel(copy.replace("SIGNALS", " signals full[0]"))))
    assert "| m + t < 8 and t2]" in moved
    assert "x = src[m + g // 2, n | m + g // 2 < 8 and g // 2 < 2]" in kept
