"""Names that are not needed go, and the kernel computes the same."""

from __future__ import annotations

import random

import pytest

from random_ir import random_kernel
from sweeps import in_turns
from test_passes_hoist import body_of, kernel, same_results
from tilewright.ir import verify
from tilewright.passes import reduce_lets


def check(before: str, after: str) -> None:
    source = kernel(before)
    result = reduce_lets(source)
    verify(result)
    assert body_of(result) == body_of(kernel(after))
    assert reduce_lets(result) is result
    same_results(source, result)


def test_unused() -> None:
    check(
        """
        for i in 8:
          a = i // 2
          b = a + 1
          dst[i, 0, 0] = src[i, 0]
        """,
        "for i in 8:\n  dst[i, 0, 0] = src[i, 0]",
    )


def test_another_name_a_constant_and_an_affine_index() -> None:
    check(
        """
        for i in 8:
          low = max(1 - i, 0)
          same = low
          three = 3
          row = i - low * 2 + 2
          for j in three:
            dst[i, j, 0] = src[row // 2, j + same]
        """,
        """
        for i in 8:
          low = max(1 - i, 0)
          for j in 3:
            dst[i, j, 0] = src[(i - low * 2 + 2) // 2, j + low]
        """,
    )


def test_a_single_use_outside_of_a_loop() -> None:
    check(
        """
        for i in 8:
          a = min(i, 5)
          b = max(i, 2)
          for j in a:
            dst[i, j, 0] = src[b, j]
        """,
        """
        for i in 8:
          b = max(i, 2)
          for j in min(i, 5):
            dst[i, j, 0] = src[b, j]
        """,
    )


def test_a_load_keeps_its_place() -> None:
    source = kernel(
        """
        for i in 8:
          old: f32 = dst[i, 0, 0]
          dst[i, 0, 0] = 1.0
          dst[i, 1, 0] = old
        """
    )
    assert reduce_lets(source) is source


@pytest.mark.parametrize("seed", in_turns(3, range(99)))
def test_random_kernels_compute_the_same(seed: int) -> None:
    source = random_kernel(random.Random(seed), 30)
    result = reduce_lets(source)
    verify(result)
    same_results(source, result, seed)
