"""Spaces: all that recipes may choose for a kernel, counted, drawn from, walked through.

A point is a config. The space of a kernel that is cut into groups is the product of theirs, and its
points are `GroupsConfig`s. Not every point is legal: what a schedule refuses, it refuses with a
reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Any

from tilewright.machines.machine import Machine
from tilewright.recipes.choice import Choice
from tilewright.recipes.config import Config, GroupsConfig
from tilewright.recipes.recipe import Recipe
from tilewright.recipes.start import Start

# How often two choices of a point are changed.
_TWO = 0.3
# Chooses one of the values of what has this name.
Pick = Callable[[str, Sequence[Any]], Any]


@dataclass(frozen=True)
class Branch:
    """What one recipe may choose for one group."""

    recipe: Recipe[Any]
    start: Start
    machine: Machine
    _counts: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _values: dict[tuple[Any, ...], Sequence[Any]] = field(default_factory=dict)
    _weights: dict[tuple[Any, ...], tuple[Sequence[Any], Sequence[int]]] = field(
        default_factory=dict
    )

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """The choices, each beside those before it."""
        return self.recipe.choices(self.start, self.machine)

    @cached_property
    def _asked(self) -> list[list[str]]:
        """Of each place, the choices before it that what may be chosen from there on depends on."""
        names = [choice.name for choice in self.choices]
        return [
            [
                name
                for name in names[:place]
                if any(name in choice.after for choice in self.choices[place:])
            ]
            for place in range(len(names))
        ]

    def count(self, chosen: Mapping[str, Any] | None = None, place: int = 0) -> int:
        """How many points there are: all, or those whose choices before ``place`` are
        ``chosen``."""
        if place == len(self.choices):
            return 1
        chosen = {} if chosen is None else chosen
        key = self._key(place, chosen)
        if key not in self._counts:
            name = self.choices[place].name
            self._counts[key] = sum(
                self.count({**chosen, name: value}, place + 1)
                for value in self.values(place, chosen)
            )
        return self._counts[key]

    def values(self, place: int, chosen: Mapping[str, Any]) -> Sequence[Any]:
        """What the choice at ``place`` may be, beside those that it depends on."""
        choice = self.choices[place]
        key = (place, *(repr(chosen[name]) for name in choice.after))
        if key not in self._values:
            self._values[key] = tuple(choice.values({name: chosen[name] for name in choice.after}))
        return self._values[key]

    def points(self, chosen: Mapping[str, Any] | None = None, place: int = 0) -> Iterator[Config]:
        """All points, in the order of the values."""
        chosen = {} if chosen is None else chosen
        if place == len(self.choices):
            yield self.config(chosen)
            return
        for value in self.values(place, chosen):
            yield from self.points({**chosen, self.choices[place].name: value}, place + 1)

    def config(self, chosen: Mapping[str, Any]) -> Config:
        """The point of these values."""
        config: Config = self.recipe.config(**chosen)
        return config

    def drawn(self, rng: Random) -> Config:
        """A point; all are as likely."""
        chosen: dict[str, Any] = {}
        for place, choice in enumerate(self.choices):
            values, weights = self._weighted(place, chosen)
            (chosen[choice.name],) = rng.choices(values, cum_weights=weights)
        return self.config(chosen)

    def _weighted(
        self, place: int, chosen: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Sequence[int]]:
        """The values of a choice, and of how many points there are with it or those before."""
        key = self._key(place, chosen)
        if key not in self._weights:
            values, name = self.values(place, chosen), self.choices[place].name
            counts = (self.count({**chosen, name: value}, place + 1) for value in values)
            self._weights[key] = values, tuple(accumulate(counts))
        return self._weights[key]

    def _key(self, place: int, chosen: Mapping[str, Any]) -> tuple[Any, ...]:
        """What all that may be chosen from ``place`` on depends on."""
        return (place, *(repr(chosen[name]) for name in self._asked[place]))

    def picked(self, pick: Pick) -> Config:
        """The point whose values ``pick`` chooses, choice by choice."""
        chosen: dict[str, Any] = {}
        for place, choice in enumerate(self.choices):
            chosen[choice.name] = pick(choice.name, self.values(place, chosen))
        return self.config(chosen)

    def completed(self, wanted: Mapping[str, Any], rng: Random | None) -> Config | None:
        """The point with the values that are ``wanted``, as far as there are such beside those
        before; others are drawn, or the first ones. None where there is none."""
        chosen: dict[str, Any] = {}
        for place, choice in enumerate(self.choices):
            values = self.values(place, chosen)
            if not values:
                return None
            if choice.name in wanted and wanted[choice.name] in values:
                chosen[choice.name] = wanted[choice.name]
            else:
                chosen[choice.name] = values[0] if rng is None else rng.choice(values)
        return self.config(chosen)

    def chosen(self, config: Config) -> dict[str, Any]:
        """The values of a config's choices."""
        return {choice.name: getattr(config, choice.name) for choice in self.choices}

    def neighbours(self, config: Config) -> Iterator[Config]:
        """Points that differ from ``config`` in one choice, and in what depends on it."""
        wanted = self.chosen(config)
        for place, choice in enumerate(self.choices):
            for value in self.values(place, wanted):
                if value != wanted[choice.name]:
                    point = self.completed({**wanted, choice.name: value}, None)
                    if point is not None and point != config:
                        yield point

    def mutated(self, config: Config, rng: Random) -> Config:
        """``config`` with another value of a choice or a few."""
        wanted = self.chosen(config)
        free = [n for n in range(len(self.choices)) if len(self.values(n, wanted)) > 1]
        for _ in range(1 + (rng.random() < _TWO)):
            if free:
                place = rng.choice(free)
                name = self.choices[place].name
                others = [other for other in self.values(place, wanted) if other != wanted[name]]
                wanted[name] = rng.choice(others or [wanted[name]])
        return self.completed(wanted, rng) or config


class Group:
    """The points of one group: those of all recipes that match it."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        self.branches = [branch for branch in branches if branch.count()]

    def branch_of(self, config: Config) -> Branch | None:
        """What ``config`` is a point of, or may have been changed from."""
        return next((b for b in self.branches if isinstance(config, b.recipe.config)), None)

    def drawn(self, rng: Random) -> Config:
        (branch,) = rng.choices(self.branches, [branch.count() for branch in self.branches])
        return branch.drawn(rng)

    def mutated(self, config: Config, rng: Random) -> Config:
        branch = self.branch_of(config)
        return self.drawn(rng) if branch is None else branch.mutated(config, rng)

    def crossed(self, one: Config, other: Config, rng: Random) -> Config:
        branch = self.branch_of(one)
        if branch is None or branch is not self.branch_of(other):
            return rng.choice((one, other))
        first, second = branch.chosen(one), branch.chosen(other)
        mixed = {name: rng.choice((first, second))[name] for name in first}
        return branch.completed(mixed, rng) or one


@dataclass(frozen=True)
class Space:
    """All points of a kernel."""

    groups: tuple[Group, ...]

    def count(self) -> int:
        """How many points there are, legal or not."""
        return math.prod(sum(b.count() for b in group.branches) for group in self.groups)

    def drawn(self, rng: Random) -> Config:
        """A point; all are as likely."""
        return self._joined([group.drawn(rng) for group in self.groups])

    def picked(self, pick: Pick) -> Config:
        """The point that ``pick`` chooses: of each group the recipe, by its name, and its choices;
        names of groups begin with their number, if there are several."""
        parts = []
        for place, group in enumerate(self.groups):
            start = f"{place}." if len(self.groups) > 1 else ""
            recipes = {branch.recipe.name: branch for branch in group.branches}
            branch = recipes[pick(f"{start}recipe", list(recipes))]
            begun = f"{start}{branch.recipe.name}."
            parts.append(branch.picked(_renamed(pick, begun)))
        return self._joined(parts)

    def points(self) -> Iterator[Config]:
        """All points, recipe by recipe, in the order of the choices' values."""
        yield from self._products([])

    def neighbours(self, config: Config) -> Iterator[Config]:
        """Points that differ from ``config`` in one choice, and in what depends on it."""
        parts = self._parts(config)
        for place, (group, part) in enumerate(zip(self.groups, parts, strict=True)):
            branch = group.branch_of(part)
            for changed in branch.neighbours(part) if branch is not None else ():
                yield self._joined([*parts[:place], changed, *parts[place + 1 :]])

    def mutated(self, config: Config, rng: Random) -> Config:
        """A point near ``config``."""
        parts = self._parts(config)
        place = rng.randrange(len(parts))
        parts[place] = self.groups[place].mutated(parts[place], rng)
        return self._joined(parts)

    def crossed(self, one: Config, other: Config, rng: Random) -> Config:
        """A point with values of both, choice by choice."""
        pairs = zip(self.groups, self._parts(one), self._parts(other), strict=True)
        return self._joined([group.crossed(a, b, rng) for group, a, b in pairs])

    def quick(self, config: Config) -> bool:
        """Whether recipes predict the time of ``config`` in a way of their own, without its
        schedule."""
        branches = (
            g.branch_of(part) for g, part in zip(self.groups, self._parts(config), strict=True)
        )
        return all(branch is None or branch.recipe.has_model for branch in branches)

    def predicted(self, config: Config) -> float | None:
        """The seconds that recipes predict for ``config``, the sum over groups; None where one
        predicts nothing."""
        total = 0.0
        for group, part in zip(self.groups, self._parts(config), strict=True):
            branch = group.branch_of(part)
            if branch is None:
                return None
            time: Any = branch.recipe.predict(branch.start, branch.machine, part)
            time = getattr(time, "seconds", time)
            if time is None:
                return None
            total += time
        return total

    def by_prediction(self, rng: Random, most: int) -> list[Config]:
        """Points in order of their predicted time: all, or ``most`` of them, drawn. Those without
        one come last."""
        if self.count() <= most:
            points = list(self.points())
        else:
            points = _once(self.drawn(rng) for _ in range(most))
        times = [self.predicted(point) for point in points]
        order = sorted(range(len(points)), key=lambda n: (times[n] is None, times[n] or 0.0, n))
        return [points[n] for n in order]

    def values(self, config: Config) -> dict[str, Any]:
        """The values of the choices by name, of a group with its number; with the recipe's name."""
        result: dict[str, Any] = {}
        parts = self._parts(config)
        for place, (group, part) in enumerate(zip(self.groups, parts, strict=True)):
            start = f"{place}." if len(parts) > 1 else ""
            branch = group.branch_of(part)
            result[f"{start}recipe"] = branch.recipe.name if branch is not None else ""
            if branch is not None:
                result.update({f"{start}{n}": v for n, v in branch.chosen(part).items()})
        return result

    def _products(self, parts: list[Config]) -> Iterator[Config]:
        if len(parts) == len(self.groups):
            yield self._joined(parts)
            return
        for branch in self.groups[len(parts)].branches:
            for point in branch.points():
                yield from self._products([*parts, point])

    def _joined(self, parts: Sequence[Config]) -> Config:
        return parts[0] if len(self.groups) == 1 else GroupsConfig(tuple(parts))

    def _parts(self, config: Config) -> list[Config]:
        return list(config.groups) if isinstance(config, GroupsConfig) else [config]


def _renamed(pick: Pick, start: str) -> Pick:
    return lambda name, values: pick(f"{start}{name}", values)


def _once(points: Iterable[Config]) -> list[Config]:
    """``points`` without those that came before."""
    return list(dict.fromkeys(points))
