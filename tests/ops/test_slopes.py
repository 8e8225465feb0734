"""Gradients of activations: their formulas against differences, and far from 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import UnsupportedError
from tilewright.problems import UNARY_FUNCTIONS, EltwiseProblem
from tilewright.problems.slopes import SLOPES
from tilewright.testing.case import Case, Direction

# Alpha and beta, where a function has them.
NUMBERS = {
    "clip": (-1.1, 1.3),
    "clip_v2": (-1.1, 1.3),
    "elu": (0.7, 0),
    "hardsigmoid": (0.3, 0.4),
    "hardswish": (0.2, 0.5),
    "linear": (0.3, 2),
    "pow": (2, 1.5),
    "relu": (0.1, 0),
    "soft_relu": (2, 0),
    "swish": (1.5, 0),
}
POSITIVE = ("log", "pow", "sqrt")


def gradient(name: str, x: Any, back: Any, target: str) -> Any:
    numbers = ":".join(f"{number:g}" for number in NUMBERS.get(name, ()))
    algorithm = f"{name}:{numbers}".removesuffix(":").removesuffix(":0")
    problem = EltwiseProblem(x.shape, algorithm=algorithm)
    op = Case(problem, direction=Direction.BWD_D).op()
    return tw.compile(op, target)(src=x, diff_dst=back)


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_are_differences(name: str) -> None:
    numbers = NUMBERS.get(name, (0.0, 0.0))
    x = np.linspace(0.05 if name in POSITIVE else -3, 3, 61) + 1e-3
    function = UNARY_FUNCTIONS[name].reference
    steps = (function(x + 1e-6, *numbers) - function(x - 1e-6, *numbers)) / 2e-6
    np.testing.assert_allclose(SLOPES[name].reference(x, *numbers), steps, rtol=1e-6, atol=1e-8)
    back = np.linspace(-1, 2, 61).astype(np.float32)
    narrow = x.astype(np.float32)
    wanted = back * SLOPES[name].reference(narrow.astype(np.float64), *numbers)
    for target in ("interpreter", "x86"):
        result = gradient(name, narrow, back, target)
        np.testing.assert_allclose(result, wanted, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("name", [name for name in SLOPES if name not in (*POSITIVE, "exp")])
def test_slopes_far_from_0(name: str) -> None:
    x = np.array([-1e4, -200, -95, -20, 20, 95, 200, 1e4], np.float32)
    with np.errstate(all="ignore"):
        wanted = SLOPES[name].reference(x.astype(np.float64), *NUMBERS.get(name, (0.0, 0.0)))
    result = gradient(name, x, np.ones_like(x), "x86")
    np.testing.assert_allclose(result, wanted, rtol=3e-6, atol=1e-6)


def test_gradients_that_are_not_there() -> None:
    with pytest.raises(UnsupportedError, match="eltwise round has no gradient"):
        Case(EltwiseProblem((4,), algorithm="round"), direction=Direction.BWD_D).op()
