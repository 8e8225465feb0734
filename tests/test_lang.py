"""Kernels in Python: what they compute, on every target that runs here."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from needs import needs_opencl

TARGETS = ["interpreter", pytest.param("spirv", marks=needs_opencl)]


@tw.kernel
def saxpy(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("local", [None, 1, 16, 64])
def test_saxpy(target: str, local: int | None) -> None:
    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    saxpy.launch((128,), 100, 2.0, x, y, local=local, target=target)
    np.testing.assert_array_equal(y, 2 * x + 1)
    assert saxpy.launch(0, 0, 2.0, x, y, target=target) is None
