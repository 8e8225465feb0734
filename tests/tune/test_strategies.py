"""Strategies on a space whose times are known: which find the fastest of many points soon."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ArgumentError
from tilewright.recipes.config import Config
from tilewright.tune.learning import Features, Model
from tilewright.tune.strategies import STRATEGIES, maker_of
from tilewright.tune.subject import Points
from tilewright.tune.subjects import subjects_of

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Tiled(Config):
    """A point of the space."""

    rows: int
    columns: int
    order: str
    packed: bool = False


ORDERS = ("ij", "ji", "blocked")


@dataclass(frozen=True)
class TiledPoints(Points):
    """Tiles, orders, and whether something is packed; ``model``: whether times are predicted, by
    what is right about rows and columns, and wrong about the rest."""

    model: bool = True

    def count(self) -> int:
        return len(SIZES) ** 2 * len(ORDERS) * 2

    def points(self) -> Iterator[Config]:
        for rows, columns, order, packed in itertools.product(SIZES, SIZES, ORDERS, (False, True)):
            yield Tiled(rows=rows, columns=columns, order=order, packed=packed)

    def drawn(self, rng: Random) -> Config:
        return Tiled(
            rows=rng.choice(SIZES),
            columns=rng.choice(SIZES),
            order=rng.choice(ORDERS),
            packed=rng.choice((False, True)),
        )

    def picked(self, pick: Callable[[str, Sequence[Any]], Any]) -> Config:
        values = {"rows": SIZES, "columns": SIZES, "order": ORDERS, "packed": (False, True)}
        return Tiled(**{name: pick(name, values[name]) for name in Tiled.names()})

    def by_prediction(self, rng: Random, most: int) -> list[Config]:
        points = list(dict.fromkeys(self.drawn(rng) for _ in range(most)))
        return sorted(points, key=lambda point: self.predicted(point) or 0.0)

    def neighbours(self, config: Config) -> Iterator[Config]:
        assert isinstance(config, Tiled)
        return (
            point
            for point in self.points()
            if sum(getattr(point, n) != getattr(config, n) for n in Tiled.names()) == 1
        )

    def mutated(self, config: Config, rng: Random) -> Config:
        assert isinstance(config, Tiled)
        other = self.drawn(rng)
        name = rng.choice(Tiled.names())
        return replace(config, **{name: getattr(other, name)})

    def crossed(self, one: Config, other: Config, rng: Random) -> Config:
        return Tiled(**{n: getattr(rng.choice((one, other)), n) for n in Tiled.names()})

    def values(self, config: Config) -> dict[str, Any]:
        return {name: getattr(config, name) for name in Tiled.names()}

    def quick(self, config: Config) -> bool:
        return True

    def predicted(self, config: Config) -> float | None:
        assert isinstance(config, Tiled)
        return time_of(config, 0.0) if self.model else None


def time_of(point: Config, wrong: float = 1.0) -> float:
    """The seconds that a point takes: the least for 8x32, blocked and packed."""
    assert isinstance(point, Tiled)
    off = (math.log2(point.rows) - 3) ** 2 + (math.log2(point.columns) - 5) ** 2
    order = {"ij": 0.6, "ji": 0.9, "blocked": 0.0}[point.order]
    return 1e-3 * (1 + 0.15 * off + wrong * (order + 0.5 * (not point.packed)))


BEST = Tiled(rows=8, columns=32, order="blocked", packed=True)


def best_after(strategy: str, trials: int, seed: int, model: bool) -> float:
    """How many times the least time the best of so many trials takes."""
    points = TiledPoints(model)
    default = Tiled(rows=1, columns=1, order="ij")
    chosen = maker_of(strategy)(points, default, Random(seed))
    chosen.tell(default, time_of(default))
    least = time_of(default)
    tried: set[Config] = {default}
    while len(tried) < trials:
        point = chosen.ask()
        assert point is not None
        chosen.tell(point, time_of(point))
        tried.add(point)
        least = min(least, time_of(point))
    return least / time_of(BEST)


@pytest.mark.parametrize("model", [True, False], ids=["predicted", "unpredicted"])
@pytest.mark.parametrize(("strategy", "trials"), [("learned", 40), ("evolution", 80)])
def test_what_is_fastest_is_there_soon(strategy: str, trials: int, model: bool) -> None:
    result = [best_after(strategy, trials, seed, model) for seed in range(5)]
    by_chance = [best_after("random", trials, seed, model) for seed in range(5)]
    assert sorted(result)[2] < 1.1
    assert np.mean(result) < np.mean(by_chance)


@pytest.mark.parametrize("strategy", ["learned", "evolution", "random"])
def test_the_same_seed_asks_the_same(strategy: str) -> None:
    def asked() -> Sequence[Config | None]:
        chosen = maker_of(strategy)(TiledPoints(), BEST, Random(7))
        points = []
        for _ in range(20):
            point = chosen.ask()
            assert point is not None
            chosen.tell(point, time_of(point))
            points.append(point)
        return points

    assert asked() == asked()


def test_strategies_that_end_have_asked_all() -> None:
    for strategy in ("exhaustive", "predicted"):
        chosen = maker_of(strategy)(TiledPoints(), BEST, Random(7))
        points = list(iter(chosen.ask, None))
        assert len(points) == len(set(points)) > 200
        if strategy == "exhaustive":
            assert points == list(TiledPoints().points())
        else:
            times = [time_of(point, 0.0) for point in points if point is not None]
            assert times == sorted(times)


def test_what_is_wrong_teaches_nothing_and_is_not_asked_again() -> None:
    chosen = maker_of("learned")(TiledPoints(), BEST, Random(7))
    asked = []
    for _ in range(30):
        point = chosen.ask()
        assert point is not None
        chosen.tell(point, None)
        asked.append(point)
    assert len(set(asked)) == len(asked)


def test_the_model_knows_what_it_was_taught() -> None:
    rng = Random(3)
    points = [TiledPoints().drawn(rng) for _ in range(60)]
    features = Features()
    numbers = features.of([TiledPoints().values(point) for point in points])
    times = np.log([time_of(point) for point in points])
    model = Model(numbers, times)
    expected, deviation = model.expected(numbers)
    assert np.abs(expected - times).max() < 0.2
    others = [TiledPoints().drawn(rng) for _ in range(200)]
    rows = features.of([TiledPoints().values(point) for point in others])
    expected, unsure = model.expected(rows)
    assert np.corrcoef(expected, np.log([time_of(point) for point in others]))[0, 1] > 0.9
    assert unsure.mean() > deviation.mean()
    # What no point had before makes it as unsure as can be.
    strange = features.of([{"rows": 1, "order": word} for word in ("new", "newer")])
    assert model.expected(strange)[1].min() > unsure.mean()


def test_there_is_a_list_of_strategies() -> None:
    assert maker_of(STRATEGIES["random"]) is STRATEGIES["random"]
    with pytest.raises(ArgumentError, match="did you mean random"):
        maker_of("randon")


def test_random_points_go_on_where_they_stopped() -> None:
    """With the same seed, the points are those that were tried, one after the other."""
    points, default = TiledPoints(), next(TiledPoints().points())
    first = maker_of("random")(points, default, Random(3))
    tried = [first.ask() for _ in range(250)]
    again = maker_of("random")(points, default, Random(3))
    for point in tried:
        assert point is not None
        again.tell(point, 1.0)
    assert again.ask() not in (None, *tried)


class Slow(TiledPoints):
    """Predictions that take long, and are counted."""

    predictions = 0

    def quick(self, config: Config) -> bool:
        return False

    def predicted(self, config: Config) -> float | None:
        Slow.predictions += 1
        return super().predicted(config)


@pytest.mark.parametrize("strategy", ["learned", "evolution"])
def test_predictions_that_take_long_are_few(strategy: str) -> None:
    Slow.predictions = 0
    points, default = Slow(), next(TiledPoints().points())
    search = maker_of(strategy)(points, default, Random(1))
    for _ in range(30):
        point = search.ask()
        assert isinstance(point, Tiled)
        search.tell(point, 1e-6 * (1 + point.rows))
    assert Slow.predictions <= 16


def test_contractions_alone_are_predicted_without_schedules() -> None:
    for op, quick in ((tw.matmul("4x8:8x16"), True), (tw.softmax("8x16"), False)):
        subject = subjects_of(op, threads=1)[0].subject
        assert subject.points().quick(subject.default()) is quick
