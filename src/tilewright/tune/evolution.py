"""Evolution: the fastest points so far are changed in a choice or two, or mixed with each other."""

from __future__ import annotations

from random import Random

from tilewright.recipes.config import Config
from tilewright.tune.learning import first_points
from tilewright.tune.subject import Points

# So many of those that are predicted to take the least time come first.
_FIRST = 12
# The fastest so far, of which parents are the best of a few that are drawn.
_ALIVE, _RIVALS = 16, 3
# How often a point is drawn from all, and how often two parents are mixed.
_FRESH, _MIXED = 0.15, 0.3


class Evolution:
    """A strategy (see `strategies`). It never ends."""

    def __init__(self, points: Points, default: Config, rng: Random) -> None:
        self._points, self._rng = points, rng
        self._first = iter(first_points(points, default, rng)[:_FIRST])
        self._seconds: dict[Config, float] = {}

    def ask(self) -> Config | None:
        point = next(self._first, None)
        if point is not None:
            return point
        rng = self._rng
        alive = sorted(self._seconds, key=lambda config: self._seconds[config])[:_ALIVE]
        if not alive or rng.random() < _FRESH:
            return self._points.drawn(rng)
        one, other = self._parent(alive), self._parent(alive)
        if one != other and rng.random() < _MIXED:
            return self._points.crossed(one, other, rng)
        return self._points.mutated(one, rng)

    def tell(self, point: Config, seconds: float | None) -> None:
        if seconds is not None:
            self._seconds[point] = seconds

    def _parent(self, alive: list[Config]) -> Config:
        """The fastest of a few, which are in order."""
        return alive[min(self._rng.randrange(len(alive)) for _ in range(_RIVALS))]
