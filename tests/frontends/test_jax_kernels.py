"""Kernels in Python as functions of JAX's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ArgumentError

jax = pytest.importorskip("jax")

from tilewright.frontends.jax import callback  # noqa: E402  # JAX is needed first


@tw.kernel
def saxpy(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@tw.kernel
def halves(x: tw.array("T", 2), out: tw.array("T", 2), k: tw.constant) -> None:
    row, col = tw.global_id(0), tw.global_id(1)
    out[row, col] = x[row, col * k]


def drawn(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_updates_are_results() -> None:
    function = callback(saxpy, lambda n, a, x, y: n, updates=["y"])
    x, y = jax.numpy.asarray(drawn(20)), jax.numpy.ones(20)
    np.testing.assert_allclose(function(20, 2.0, x, y), 2 * x + 1, 1e-6)
    assert (y == 1).all()
    jitted = jax.jit(lambda x, y: function(10, 2.0, x * 3, y) + 1)
    expected = np.where(np.arange(20) < 10, 6 * x + 2, 2)
    np.testing.assert_allclose(jitted(x, y), expected, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_results_and_vmap(dtype: str) -> None:
    function = callback(
        halves,
        lambda x: (x.shape[0], x.shape[1] // 2),
        results={"out": lambda x: (x.shape[0], x.shape[1] // 2)},
        constants={"k": 2},
    )
    x = jax.numpy.asarray(drawn(3, 4, 6) * 9).astype(dtype)
    np.testing.assert_array_equal(jax.jit(function)(x[0]), x[0, :, ::2])
    np.testing.assert_array_equal(jax.vmap(function)(x), x[:, :, ::2])


def test_what_is_stored_has_to_be_said() -> None:
    with pytest.raises(ArgumentError, match="the constant k is open"):
        callback(halves, lambda x: x.shape)
