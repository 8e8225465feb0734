"""Structured ops with several results, combiners, ordered dims and loaded places: the text, what
the verifier refuses, and what the interpreter gives, as they are and lowered to loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compute_cases import CASES, Case
from tilewright import interpret
from tilewright.interpret import computes
from tilewright.ir import difference, parse_kernel, to_text, verify
from tilewright.ir.stmt import Kernel

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def run(kernel: Kernel, arrays: dict[str, Any]) -> dict[str, Any]:
    """What the interpreter makes of ``arrays``."""
    flat = {name: array.ravel().copy() for name, array in arrays.items()}
    interpret.run(kernel, flat)
    return {name: flat[name].reshape(array.shape) for name, array in arrays.items()}


def check(kernel: Kernel, case: Case, seed: int = 0) -> None:
    arrays = case.arrays(np.random.default_rng(seed))
    given = run(kernel, arrays)
    for name, wanted in case.wanted(arrays).items():
        np.testing.assert_allclose(
            given[name], wanted, case.tolerance, case.tolerance, err_msg=name
        )


@every_case
def test_the_text_comes_back(case: Case) -> None:
    kernel = parse_kernel(case.text)
    verify(kernel)
    again = parse_kernel(to_text(kernel))
    assert difference(kernel, again) is None
    assert to_text(again) == to_text(kernel)


@every_case
def test_the_interpreter_agrees_with_numpy(case: Case) -> None:
    for seed in range(3):
        check(parse_kernel(case.text), case, seed)


@every_case
def test_points_in_many_boxes_give_the_same(case: Case, monkeypatch) -> None:
    monkeypatch.setattr(computes, "POINT_LIMIT", 16)
    check(parse_kernel(case.text), case)
