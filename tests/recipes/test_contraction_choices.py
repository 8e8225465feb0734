"""What may be chosen for contractions on CPUs: the model's choices, and what is near them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import tilewright as tw
from tilewright.engine.request import request_of
from tilewright.errors import ScheduleError, UnsupportedError
from tilewright.recipes.choose import RECIPES, choose, schedule, space_of
from tilewright.recipes.config import ContractionConfig
from tilewright.recipes.space import Branch
from tilewright.recipes.start import Start
from tilewright.targets.registry import find_target

OPS = {
    "conv": tw.convolution("mb1ic16ih14oc48kh3ph1"),
    "strided": tw.convolution("mb1ic3ih28oc16kh7sh2ph3"),
    "depthwise": tw.convolution("mb1g32ic32ih7oc32kh3ph1"),
    "matmul": tw.matmul("30x100:100x40"),
    "bf16": tw.matmul("64x128:128x64", dtype="bf16"),
    "int8": tw.matmul("64x128:128x64", dtype=("u8", "s8", "s32")),
}
TARGETS = ("x86:avx2", "x86:amx")


def branch_of(name: str, target: str) -> tuple[Branch, Start]:
    start = request_of(OPS[name]).start()
    return Branch(RECIPES["contraction"], start, find_target(target).machine), start


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OPS)
def test_what_the_model_chooses_is_among_them(name: str, target: str) -> None:
    branch, start = branch_of(name, target)
    machine = branch.machine
    for candidate in branch.recipe.candidates(start, machine):
        chosen = branch.chosen(candidate.config)
        for choice in branch.choices:
            values = choice.values({earlier: chosen[earlier] for earlier in choice.after})
            assert chosen[choice.name] in list(values), choice.name
        assert branch.completed(chosen, None) == candidate.config
        predicted = branch.recipe.predict(start, machine, candidate.config)
        assert predicted == candidate.prediction
    assert branch.count() > 100


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OPS)
def test_points_are_legal_or_refused_with_a_reason(name: str, target: str) -> None:
    branch, start = branch_of(name, target)
    rng = Random(f"{name} {target}")
    legal = 0
    for _ in range(8):
        point = branch.drawn(rng)
        try:
            schedule(start, branch.machine, point)
            legal += 1
        except (ScheduleError, UnsupportedError) as error:
            assert error.why or error.cure, error
    assert legal >= 4


def test_points_are_predicted_as_the_model_does() -> None:
    branch, start = branch_of("conv", "x86:avx2")
    default, _ = choose(start, branch.machine)
    assert isinstance(default, ContractionConfig)

    def seconds(**changes: Any) -> float:
        point = branch.completed({**branch.chosen(default), **changes}, None)
        predicted = branch.recipe.predict(start, branch.machine, point)
        assert predicted is not None
        return float(getattr(predicted, "seconds", predicted))

    lanes = default.tile[default.lanes]
    rows = next(dim for dim in default.tile if dim != default.lanes)
    # One row reads B for each multiply-add.
    assert seconds(tile={rows: 1, default.lanes: lanes}) > 1.5 * seconds()


def test_a_space_of_it_is_walked_through() -> None:
    start = request_of(OPS["conv"]).start()
    space = space_of(start, find_target("x86:avx2").machine)
    default, _ = choose(start, find_target("x86:avx2").machine)
    rng = Random(1)
    near = list(space.neighbours(default))
    assert len(near) > 20
    assert default not in near
    for point in (space.mutated(default, rng), space.crossed(default, near[0], rng)):
        assert isinstance(point, ContractionConfig)
