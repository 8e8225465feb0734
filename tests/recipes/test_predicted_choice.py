"""Which of the configs that a recipe without a model of its own offers is taken: the one whose
schedule is predicted to take the least time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import check
from tilewright.predict.time import predicted
from tilewright.recipes.choose import RECIPES, candidates, schedule
from tilewright.recipes.config import ContractionConfig, PlainConfig, ReductionConfig
from tilewright.testing.launched import group_sums

TARGETS = ("x86:avx2", "x86:avx512")


def _offered(made: Any) -> list[tuple[Any, float]]:
    """The configs of the recipe that ``made`` is of, with the predicted times of their schedules:
    its own first."""
    machine = made.target.machine
    name = "reductions" if isinstance(made.config, ReductionConfig) else "plain"
    result = list(RECIPES[name].space(made.start, machine))
    times = {
        config: predicted(schedule(made.start, machine, config).kernel, machine).seconds
        for config in result
    }
    return sorted(times.items(), key=lambda item: item[0] != made.config)


def _sum(x: Any) -> Any:
    return x.sum(1, keepdims=True)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(0))
    return e / e.sum(0)


def _argmax(x: Any) -> Any:
    return x.argmax(1)


ROWS = {
    "sum avx2": ("x86:avx2", tw.reduce("700x7:700x1"), _sum),
    "sum": ("x86:avx512", tw.reduce("700x11:700x1"), _sum),
    "softmax": ("x86:avx512", tw.softmax("700x11", axis=0), _softmax),
    "argmax": ("x86:avx512", tw.argmax("700x11", axis=1), _argmax),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_shorter_than_a_vector(case: str) -> None:
    target, op, meant = ROWS[case]
    result = tw.compile(op, target)
    (own, least), *others = _offered(result)
    assert others and all(least < time for _, time in others)
    assert own.vector < max(config.vector for config, _ in others)
    # `show --stage config` has them all, with their times.
    ((_, shown),) = candidates(result.start, result.target.machine, result.config).values()
    assert {repr(config) for config, _ in others} < {repr(candidate.config) for candidate in shown}
    assert shown[0].config == own and all(candidate.prediction for candidate in shown)
    shape = next(array.buffer.shape for array in op.kernel().arrays if array.access == "in")
    x = np.random.default_rng(0).random(shape, np.float32)
    wanted = np.asarray(meant(x.astype(np.float64)))
    np.testing.assert_allclose(np.asarray(result(src=x)).reshape(wanted.shape), wanted, rtol=1e-5)


@pytest.mark.parametrize("shape", ["64x16:64x1", "64x100:64x1", "64x1000:1x1000"])
def test_rows_that_fill_vectors_leave_no_choice(shape: str) -> None:
    result = tw.compile(tw.reduce(shape), "x86:avx512")
    assert isinstance(result.config, ReductionConfig)
    assert len(_offered(result)) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_workgroup_that_hands_on_values_is_one_vector(target: str) -> None:
    result = tw.compile(group_sums.as_kernel(), target)
    assert result.config == PlainConfig(vector=64)
    (_, least), (other, time) = _offered(result)
    assert least < time and other.vector < 64
    x, sums = np.random.default_rng(0).random(640, np.float32), np.zeros(10, np.float32)
    group_sums.launch((640,), x, sums, target=target)
    np.testing.assert_allclose(sums, x.reshape(10, 64).astype(np.float64).sum(1), rtol=1e-6)


@tw.kernel(local=64)
def doubled(x: tw.array("f32", 1)) -> None:  # type: ignore[valid-type]
    x[tw.global_id(0)] *= 2.0


@pytest.mark.parametrize("target", TARGETS)
def test_workgroups_without_memory_of_their_own_leave_no_choice(target: str) -> None:
    assert len(_offered(tw.compile(doubled.as_kernel(), target))) == 1


def _product(rows: int, weights: str = "ba") -> Any:
    return tw.compile(tw.matmul(f"{rows}x200:200x70", weights=weights), "x86:avx2", threads=1)


def test_vectors_times_matrices_that_lie_along_the_sum_are_reductions() -> None:
    """A contraction would copy the matrix in each call, and use it once."""
    result = _product(1)
    assert isinstance(result.config, ReductionConfig)
    check(result)
    for other in (_product(20), _product(1, "ab"), _product(1, "any")):
        assert isinstance(other.config, ContractionConfig)
    ((_, chosen_from),) = candidates(result.start, result.target.machine, result.config).values()
    first, *others = chosen_from
    assert all(first.prediction.seconds <= other.prediction.seconds for other in others)
