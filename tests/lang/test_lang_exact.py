"""Values that Python takes for equal, and kernels do not: 2 and 2.0, 0.0 and -0.0."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import KernelError


@tw.kernel
def whole(y: tw.array("s32", 1), number: tw.constant) -> None:
    y[tw.global_id(0)] = number


@tw.kernel
def inverse(y: tw.array("f32", 1), number: tw.f32) -> None:
    y[tw.global_id(0)] = 1.0 / number


@tw.kernel
def added(y: tw.array("f32", 1), number: tw.constant) -> None:
    y[tw.global_id(0)] = 1.0 / (y[tw.global_id(0)] + number)


def test_a_constant_of_another_type_is_another_kernel() -> None:
    y = np.zeros(4, np.int32)
    whole.launch(4, y, 2)
    assert y[0] == 2
    with pytest.raises(KernelError):
        whole.launch(4, y, 2.0)


def test_the_sign_of_a_constant_zero() -> None:
    for number, wanted in ((0.0, np.inf), (-0.0, -np.inf)):
        y = np.full(4, -0.0, np.float32)
        added.launch(4, y, number)
        assert y[0] == wanted


@pytest.mark.parametrize("kind", [float, np.float32])
def test_the_sign_of_a_zero_of_a_repeated_launch(kind: type) -> None:
    y = np.zeros(4, np.float32)
    for number, wanted in ((0.0, np.inf), (-0.0, -np.inf)):
        for _ in range(4):
            inverse.launch(4, y, kind(number))
            assert y[0] == wanted
