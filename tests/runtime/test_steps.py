"""The tree of what runs when on the host: walked, mapped, run, in words and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tilewright.dtypes import boolean, f32
from tilewright.errors import TilewrightError
from tilewright.ir.expr import var
from tilewright.runtime.steps import (
    ForStep,
    HostStep,
    IfStep,
    LetStep,
    ReadStep,
    WhileStep,
    launches,
    map_steps,
    run_steps,
    steps_as_json,
    steps_from_json,
    steps_in_words,
)

STEPS: tuple[HostStep[int, str], ...] = (
    0,
    LetStep(var("scale", f32), "alpha * 2.0"),
    ForStep(var("t"), "n", (1, IfStep("t < 2", (2,), ()))),
    WhileStep((ReadStep(var("go", boolean), 3),), "go", (IfStep("n < 2", (4,), (5,)),)),
)
WORDS = """\
run 0
scale: f32 = alpha * 2.0
for t in n:
  run 1
  if t < 2:
    run 2
repeat:
  run 3
  go: bool = result of 3
  leave unless go
  if n < 2:
    run 4
  else:
    run 5"""


def words(steps: tuple[HostStep[int, str], ...]) -> str:
    return "\n".join(steps_in_words(steps, "run {}".format, str, "result of {}".format))


def test_walked_and_in_words() -> None:
    assert list(launches(STEPS)) == [0, 1, 2, 3, 4, 5]
    assert words(STEPS) == WORDS


def test_launches_and_values_are_mapped_in_the_order_of_the_text() -> None:
    seen: list[int] = []

    def launch(number: int) -> int:
        seen.append(number)
        return number + 10

    mapped = map_steps(STEPS, launch, str.upper)
    assert seen == [0, 1, 2, 3, 4, 5]
    assert list(launches(mapped)) == [10, 11, 12, 13, 14, 15]
    assert "leave unless GO" in words(mapped) and map_steps(STEPS, lambda n: n, str) == STEPS


def test_control_is_run() -> None:
    steps: tuple[HostStep[str, str], ...] = (
        WhileStep(("ask",), "again", ("body", IfStep("odd", ("then",), ("else",)))),
    )
    ran: list[str] = []
    answers = {"again": iter((True, True, False)), "odd": iter((True, False))}
    run_steps(steps, ran.append, lambda flag: next(answers[flag]))
    assert ran == ["ask", "body", "then", "ask", "body", "else", "ask"]


@pytest.mark.parametrize("step", STEPS[1:3])
def test_what_names_values_is_not_run(step: HostStep[int, str]) -> None:
    with pytest.raises(TypeError, match="a step that names"):
        run_steps((step,), lambda _: None, bool)


def test_json() -> None:
    data = json.loads(json.dumps(steps_as_json(STEPS, int, str)))
    assert steps_from_json(data, int, str) == STEPS
    wrong: tuple[Any, ...] = (
        *({"step": "if"}, [{"step": "loop"}], [{"step": "if", "condition": "x"}]),
        *([{"step": "let", "var": [3, "f32"], "value": "x"}], ["no launch"]),
        *([{"step": "let", "var": ["x"], "value": "x"}],),
        [{"step": "let", "var": ["x", "f33"], "value": "x"}],
        [{"step": "while", "before": 1, "condition": "x", "body": []}],
    )
    for refused in wrong:
        with pytest.raises((LookupError, TypeError, ValueError, TilewrightError)):
            steps_from_json(refused, int, str)
