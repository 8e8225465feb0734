"""The launches of a kernel in Python that its tunables allow, as points of a search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

from tilewright.lang.tuned import LaunchConfig
from tilewright.recipes.config import Config


@dataclass(frozen=True)
class LaunchPoints:
    """All combinations of ``values``, which tunables have by their names, the first guesses first.
    Nothing predicts their times."""

    declared: Mapping[str, tuple[Any, ...]]

    def count(self) -> int:
        """How many there are."""
        return math.prod(map(len, self.declared.values()))

    def points(self) -> Iterator[Config]:
        """All of them, those of the last tunable one after the other."""
        for values in product(*self.declared.values()):
            yield LaunchConfig(tunables=dict(zip(self.declared, values, strict=True)))

    def drawn(self, rng: Random) -> Config:
        """One of them; all are as likely."""
        chosen = {name: rng.choice(values) for name, values in self.declared.items()}
        return LaunchConfig(tunables=chosen)

    def picked(self, pick: Callable[[str, Sequence[Any]], Any]) -> Config:
        """The one whose values ``pick`` chooses, tunable by tunable."""
        chosen = {name: pick(name, values) for name, values in self.declared.items()}
        return LaunchConfig(tunables=chosen)

    def by_prediction(self, rng: Random, most: int) -> list[Config]:
        """All, or ``most`` of them, drawn."""
        if self.count() <= most:
            return list(self.points())
        return list(dict.fromkeys(self.drawn(rng) for _ in range(most)))

    def neighbours(self, config: Config) -> Iterator[Config]:
        """Those that differ from ``config`` in one value."""
        chosen = _chosen(config)
        for name, values in self.declared.items():
            for value in values:
                if value != chosen[name]:
                    yield LaunchConfig(tunables={**chosen, name: value})

    def mutated(self, config: Config, rng: Random) -> Config:
        """``config`` with another value of one tunable."""
        near = list(self.neighbours(config))
        return rng.choice(near) if near else config

    def crossed(self, one: Config, other: Config, rng: Random) -> Config:
        """One with values of both."""
        pair = _chosen(one), _chosen(other)
        mixed = {name: rng.choice(pair)[name] for name in self.declared}
        return LaunchConfig(tunables=mixed)

    def values(self, config: Config) -> dict[str, Any]:
        """The values by the names of the tunables."""
        return _chosen(config)

    def quick(self, config: Config) -> bool:
        """Nothing is predicted."""
        return True

    def predicted(self, config: Config) -> None:
        """Nothing says how long it takes."""
        return


def _chosen(config: Config) -> dict[str, Any]:
    assert isinstance(config, LaunchConfig)
    return dict(config.tunables)
