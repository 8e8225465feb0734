"""Conditions that neighbours share, and the kernel computes the same."""

from __future__ import annotations

import random
import re

import pytest

from assembly import ptx
from random_ir import random_kernel
from test_passes_hoist import body_of, kernel, same_results
from tilewright.ir import parse_kernel, to_text, verify
from tilewright.passes import coarsen_conditions


def check(before: str, after: str) -> None:
    source = kernel(before)
    result = coarsen_conditions(source)
    verify(result)
    assert body_of(result) == body_of(kernel(after))
    assert coarsen_conditions(result) is result
    same_results(source, result)


def stays(body: str) -> None:
    source = kernel(body)
    assert coarsen_conditions(source) is source


LOOPS = "for i in 8:\n  for j in 8:\n    for k in 8:\n      if {}:\n        dst[i, j, k] = 1.0"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("i * 8 + j < 24", "i < 3"),
        ("i * 8 + j <= 23", "i < 3"),
        ("24 <= i * 8 + j", "3 <= i"),
        ("19 < i * 4 + j % 4", "5 <= i"),
        # The limit need not be a multiple, if nothing is in between.
        ("i * 16 + j < 40", "i < 3"),
        ("i * 64 + j * 8 + k < 200", "i * 8 + j < 25"),
        ("i * 64 + j * 8 + k < 256", "i < 4"),
        ("i * 8 + k < j * 8", "i < j"),
        ("i * 8 <= j * 8 + k", "i <= j"),
        ("i * 8 + j < 24 and k < 3", "i < 3 and k < 3"),
    ],
)
def test_what_is_less_than_a_step_decides_nothing(before: str, after: str) -> None:
    check(LOOPS.format(before), LOOPS.format(after))


@pytest.mark.parametrize(
    "condition",
    [
        "i * 8 + j < 20",  # cuts a step
        "i * 4 + j < 16",  # reaches over the next one
        "i < 3",
        "i + j < 4",
        "i * 8 < j * 8 + k",  # k may be 0
        "(i * 8 + j) % 3 == 0",
        "src[i, j] < 1.0",
    ],
)
def test_what_stays(condition: str) -> None:
    stays(LOOPS.format(condition))


def test_masks_and_the_names_of_lets() -> None:
    check(
        """
        for i in 8:
          n = i // 2
          for j in 8:
            dst[i, j, 0] = src[i, j | n * 8 + j < 16]
        """,
        """
        for i in 8:
          n = i // 2
          for j in 8:
            dst[i, j, 0] = src[i, j | n < 2]
        """,
    )


def test_what_is_known_around_counts() -> None:
    check(
        """
        for i in 8:
          for j in 8:
            if j < 4:
              if i * 4 + j < 16:
                dst[i, j, 0] = 1.0
            else:
              if i * 8 + j < 20:
                dst[i, j, 0] = 2.0
        """,
        """
        for i in 8:
          for j in 8:
            if j < 4:
              if i < 4:
                dst[i, j, 0] = 1.0
            else:
              if i < 2:
                dst[i, j, 0] = 2.0
        """,
    )


def test_what_an_instruction_was_matched_with_stays() -> None:
    stays(
        """
        for i in 8:
          compute f(j in 8):
            x = src[i, j | i * 8 + j < 16]
            dst[i, j, 0] = x
        """
    )


def test_random_kernels() -> None:
    for seed in range(60):
        source = random_kernel(random.Random(seed))
        result = coarsen_conditions(source)
        verify(result)
        same_results(source, result, seed)


def test_pairs_are_stored_as_one() -> None:
    """Where a limit is even, both lanes of a pair are inside, or none."""
    source = parse_kernel(
        "kernel k(in x: f32[8, 64], out y: bf16[1000]):\n"
        "  grid for g in 16:\n"
        "    lane for l in 32:\n"
        "      vector for i in 2:\n"
        "        if g * 64 + l * 2 + i < 1000:\n"
        "          y[g * 64 + l * 2 + i] = bf16(x[g % 8, l * 2 + i])\n"
    )
    result = coarsen_conditions(source)
    assert "if g * 32 + l < 500:" in to_text(result)
    stores = [re.findall(r"st\.global\S*", ptx(to_text(stage))) for stage in (source, result)]
    assert stores == [["st.global.b16"] * 2, ["st.global.b32"]]
