"""Points of all recipes' spaces: compiled, or refused with a reason; in the interpreter right.
`tests/sample_spaces.py` draws thousands."""

from __future__ import annotations

from typing import Any

import pytest

import sample_spaces
from sample_spaces import DRIVERS, TARGETS, drawn
from sweeps import in_turns
from tilewright.recipes.config import ReductionConfig


@pytest.mark.parametrize(("target", "driver", "seed"), in_turns(4, TARGETS, DRIVERS, range(2)))
def test_points_are_right_or_refused(target: str, driver: str, seed: int) -> None:
    point = drawn(target, driver, 100 * seed + 7)
    assert point.outcome in ("right", "refused"), str(point)


def test_what_is_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    target, driver = "x86:avx2", "softmax"
    monkeypatch.setattr(
        "tilewright.testing.interpreted.InterpretedKernel.on_memory", lambda self, memory: None
    )
    assert drawn(target, driver, 7).outcome == "wrong"

    def refused(*arguments: Any, **options: Any) -> None:
        raise sample_spaces.ScheduleError("no")

    monkeypatch.setattr(sample_spaces, "InterpretedKernel", refused)
    point = drawn(target, driver, 7)
    assert point.outcome == "no reason"
    assert isinstance(point.point, ReductionConfig)
    assert f"--target {target} --config" in str(point)
