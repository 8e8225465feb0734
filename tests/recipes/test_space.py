"""Spaces of recipes: counted, drawn from, walked through."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

import tilewright as tw
from tilewright.engine.request import request_of
from tilewright.recipes.choice import Choice, around, listed, one_of, sizes_around
from tilewright.recipes.choose import choose, recipes_for, space_of
from tilewright.recipes.config import GroupsConfig, ReductionConfig
from tilewright.recipes.plain import Plain
from tilewright.recipes.space import Branch, Space
from tilewright.recipes.start import Start
from tilewright.targets.registry import find_target

MACHINE = find_target("x86:avx2").machine


class Chooses(Plain):
    """A recipe whose second choice depends on its first."""

    name, config = "chooses", ReductionConfig  # type: ignore[assignment]

    def choices(self, start: object, machine: object) -> tuple[Choice, ...]:
        return (
            one_of("vector", 1, 4, 8),
            one_of("rows", 1, 2),
            Choice("copies", lambda chosen: range(1, 1 + chosen["vector"]), ("vector",)),
        )


class Empty(Chooses):
    """A recipe that takes a kernel, and has nothing for it."""

    def choices(self, start: object, machine: object) -> tuple[Choice, ...]:
        return listed([])


def start_of(what: object) -> Start:
    return request_of(what).start()


@pytest.fixture(scope="module")
def branch() -> Branch:
    return Branch(Chooses(), start_of(tw.softmax("4x9")), MACHINE)


def test_points_are_counted_and_listed(branch: Branch) -> None:
    points = list(branch.points())
    assert branch.count() == len(points) == len(set(points)) == (1 + 4 + 8) * 2
    assert points[0] == ReductionConfig(vector=1, rows=1, copies=1)
    assert points[-1] == ReductionConfig(vector=8, rows=2, copies=8)


def test_all_points_are_as_likely(branch: Branch) -> None:
    rng = Random(1)
    drawn = [branch.drawn(rng) for _ in range(2600)]
    counts = {point: drawn.count(point) for point in branch.points()}
    assert set(drawn) == set(counts)
    assert min(counts.values()) > 60
    assert max(counts.values()) < 150


def test_neighbours_keep_what_still_fits(branch: Branch) -> None:
    near = list(branch.neighbours(ReductionConfig(vector=8, rows=1, copies=6)))
    assert ReductionConfig(vector=8, rows=2, copies=6) in near
    assert ReductionConfig(vector=8, rows=1, copies=1) in near
    # There are no 6 of 4: the first is taken.
    assert ReductionConfig(vector=4, rows=1, copies=1) in near
    assert set(near) < set(branch.points())
    rng = Random(1)
    for point in branch.points():
        assert branch.mutated(point, rng) in list(branch.points())


def test_a_list_spans_itself() -> None:
    configs = [ReductionConfig(vector=v, rows=r) for v, r in ((8, 1), (8, 4), (4, 4))]

    class Lists(Chooses):
        def choices(self, start: object, machine: object) -> tuple[Choice, ...]:
            return listed(configs)

    branch = Branch(Lists(), start_of(tw.softmax("4x9")), MACHINE)
    assert [choice.name for choice in branch.choices] == ReductionConfig.names()
    assert list(branch.points()) == configs
    assert Branch(Empty(), branch.start, MACHINE).count() == 0


def test_values_around_a_default() -> None:
    choices = {
        choice.name: choice for choice in around(ReductionConfig(vector=4), vector=(8, 4, 2))
    }
    assert list(choices["vector"].values({})) == [4, 8, 2]
    assert list(choices["rows"].values({})) == [ReductionConfig(vector=4).rows]
    assert sizes_around(1) == [1, 2]


@pytest.mark.parametrize(
    "op",
    [tw.convolution("mb1ic8ih6oc8kh3ph1"), tw.matmul("16x16:16x16"), tw.softmax("16x64")],
    ids=["conv", "matmul", "softmax"],
)
def test_the_default_is_a_point(op: object) -> None:
    start = start_of(op)
    space = space_of(start, MACHINE)
    default, _ = choose(start, MACHINE)
    branch = space.groups[0].branch_of(default)
    assert branch is not None
    assert branch.completed(branch.chosen(default), None) == default
    assert space.values(default)["recipe"] in {recipe.name for recipe in recipes_for(MACHINE)}


def test_of_a_kernel_of_groups_it_is_the_product() -> None:
    text = """
kernel two(in a: f32[8, 8], in b: f32[8, 8], in c: f32[8, 8], out y: f32[8, 8]):
  alloc hidden: f32[8, 8]
  compute zero(i in 8, j in 8):
    hidden[i, j] = 0.0
  compute first(i in 8, j in 8, k in 8):
    hidden[i, j] add= a[i, k] * b[k, j]
  compute clear(i in 8, j in 8):
    y[i, j] = 0.0
  compute second(i in 8, j in 8, k in 8):
    y[i, j] add= hidden[i, k] * c[k, j]
"""
    space = space_of(start_of(tw.parse_kernel(text)), MACHINE)
    assert len(space.groups) == 2
    counts = [sum(branch.count() for branch in group.branches) for group in space.groups]
    assert space.count() == counts[0] * counts[1]
    rng = Random(1)
    one, other = space.drawn(rng), space.drawn(rng)
    for point in (one, space.mutated(one, rng), space.crossed(one, other, rng)):
        assert isinstance(point, GroupsConfig)
        assert len(point.groups) == 2
    assert {"0.recipe", "1.recipe"} <= set(space.values(one))
    names: list[str] = []

    def last(name: str, values: Sequence[Any]) -> Any:
        names.append(name)
        return values[-1] if name.endswith("recipe") else values[0]

    picked = space.picked(last)
    assert names[:2] == ["0.recipe", f"0.{space.groups[0].branches[-1].recipe.name}.vector"]
    assert names.count("1.recipe") == 1
    assert isinstance(picked, GroupsConfig)
    assert {type(group) for group in picked.groups} == {
        group.branches[-1].recipe.config for group in space.groups
    }


def test_points_in_order_of_their_predicted_time() -> None:
    space = space_of(start_of(tw.matmul("64x64:64x64")), MACHINE)
    points = space.by_prediction(Random(1), 200)
    assert isinstance(space, Space)
    assert 150 < len(points) == len(set(points)) <= 200
    times = [time for point in points if (time := space.predicted(point)) is not None]
    assert times == sorted(times)
    whole = space_of(start_of(tw.softmax("4x9")), MACHINE)
    assert len(whole.by_prediction(Random(1), 100_000)) == whole.count()
