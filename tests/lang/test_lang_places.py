"""Arrays of launches that are one, have strides, run backwards, or lie between others' elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from needs import DEVICES
from tilewright.errors import ArgumentError, InterpreterFault, VerificationError

TARGETS = ("x86", "interpreter", *DEVICES)


@tw.kernel
def axpy(n: tw.s32, a: tw.f32, x: tw.array("f32", 1), y: tw.array("f32", 1)) -> None:
    i = tw.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@tw.kernel
def turned(x: tw.array("T", ("n", None)), y: tw.array("T", (None, "m"))) -> None:
    i, j = tw.global_id(0), tw.global_id(1)
    if i < x.shape[0] and j < y.shape[1]:
        y[i, j] = x[i, j] + x[i, j]


@tw.kernel
def stirred(x: tw.array("s32", 1), y: tw.array("s32", 1)) -> None:
    """Each load comes behind the store in front of it, if both are one array."""
    i = tw.global_id(0)
    y[i] = x[i] + 1
    y[i] = x[i] * 10
    for k in range(3):
        y[i] = x[i] + k


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("target", TARGETS)
def test_one_array_for_two_parameters(target: str) -> None:
    x = numbers(100)
    for _ in range(3):  # the second and third one are bound to the arrays
        axpy.launch(128, 100, 2.0, x, x, target=target)
    np.testing.assert_array_equal(x, 27 * numbers(100))
    axpy.launch(128, 100, 1.0, x, x[:], target=target)
    np.testing.assert_array_equal(x, 54 * numbers(100))
    whole = np.arange(70, dtype=np.int32)
    stirred.launch(70, whole, whole, target=target)
    np.testing.assert_array_equal(whole, (np.arange(70) + 1) * 10 + 3)
    apart = np.zeros(70, np.int32)
    stirred.launch(70, np.arange(70, dtype=np.int32), apart, target=target)
    np.testing.assert_array_equal(apart, np.arange(70) + 2)
    square = numbers(9, 16)
    turned.launch((9, 16), square, square, target=target)
    np.testing.assert_array_equal(square, 2 * numbers(9, 16))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("type_", [np.float32, np.int8])
def test_strides(type_: Any, target: str) -> None:
    """Columns, transposed, every other, one row for all, a dim of one: reads and writes."""
    x = (numbers(9, 16) % 60).astype(type_)
    memory = np.full((40, 40), 3, type_)
    places = (
        memory[:9, :16],
        memory[:16, :9].T,
        memory[1:40:4, 2:40:2][:9, :16],
        memory.reshape(-1)[: 9 * 16 * 3].reshape(16, 9, 3)[:, :, 1].T,
        memory[:16, 3:4].T,
    )
    for view in places:
        before = memory.copy()
        values = x[: view.shape[0]]
        turned.launch(values.shape, values, view, target=target)
        np.testing.assert_array_equal(view, 2 * values)
        view[...] = 3
        before[...] = 3
        np.testing.assert_array_equal(memory, before)  # nothing beside it
        memory[:] = np.arange(1600).reshape(40, 40) % 60
        result = np.zeros(view.shape, type_)
        turned.launch(view.shape, view, result, target=target)
        np.testing.assert_array_equal(result, 2 * view)
        memory[:] = 3
    rows, result = np.broadcast_to(x[2], (9, 16)), np.zeros((9, 16), type_)
    turned.launch((9, 16), rows, result, target=target)
    np.testing.assert_array_equal(result, 2 * rows)


@pytest.mark.parametrize("target", TARGETS)
def test_copies(target: str) -> None:
    """Backwards, between each other's elements, and windows that overlap."""
    x, y = numbers(64), np.zeros(64, np.float32)
    axpy.launch(64, 64, 1.0, x[::-1], y, target=target)
    axpy.launch(64, 64, 1.0, x, y[::-1], target=target)
    np.testing.assert_array_equal(y, 2 * x[::-1])
    z = np.zeros(64, np.complex64)
    z.real = x
    for _ in range(3):
        axpy.launch(64, 64, 1.0, z.real, z.imag, target=target)
    np.testing.assert_array_equal(z, x + 3j * x)
    windows, result = np.lib.stride_tricks.sliding_window_view(x, 8), np.zeros((57, 8), np.float32)
    turned.launch((57, 8), windows, result, target=target)
    np.testing.assert_array_equal(result, 2 * windows)


@pytest.mark.parametrize("target", TARGETS)
def test_tensors(target: str) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.arange(48.0).reshape(6, 8), torch.zeros(8, 6, dtype=torch.float32)
    turned.launch((6, 8), x, y.t(), target=target)
    assert (y.t() == 2 * x).all()
    turned.launch((6, 8), x[:1].expand(6, 8), y.t(), target=target)
    assert (y.t() == 2 * x[:1]).all()


def test_what_no_code_is_right_for() -> None:
    x = numbers(64)
    with pytest.raises(ArgumentError, match="y shares memory with x"):
        axpy.launch(63, 63, 1.0, x[1:], x[:-1])
    np.testing.assert_array_equal(x, numbers(64))
    windows = np.lib.stride_tricks.sliding_window_view(x, 8, writeable=True)
    with pytest.raises(ArgumentError, match="y has strides"):
        turned.launch((57, 8), np.zeros((57, 8), np.float32), windows)
    row = np.lib.stride_tricks.as_strided(x, (8, 8), (0, 4))
    with pytest.raises(VerificationError, match="several elements at one place"):
        turned.launch((8, 8), np.zeros((8, 8), np.float32), row)
    backwards = x[::-1]
    backwards.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only memory"):
        axpy.launch(64, 64, 1.0, numbers(64), backwards)


def test_places_outside_of_views_are_out_of_bounds() -> None:
    with pytest.raises(InterpreterFault, match="out of bounds"):
        axpy.launch(
            32, 32, 1.0, numbers(31, 2)[:, 0], np.zeros(32, np.float32), target="interpreter"
        )
