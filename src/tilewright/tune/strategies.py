"""Strategies: which point of a space is tried next.

A strategy is asked for a point, and told how long one took: it may be asked for several before it
is told of the first, and it is told of points that it did not ask for (those of an earlier run, the
default). Whatever has these two methods is a strategy, and whatever makes one of the points of a
subject, the default and a random number generator can be named where one of `STRATEGIES` can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Protocol

from tilewright.errors import ArgumentError, one_of, short
from tilewright.recipes.config import Config
from tilewright.tune.evolution import Evolution
from tilewright.tune.learning import Learned
from tilewright.tune.subject import Points


class Strategy(Protocol):
    """Which point is tried next."""

    def ask(self) -> Config | None:
        """A point; None where there is none that it would try. One that was tried before is not
        tried again: it is told of it at once."""

    def tell(self, point: Config, seconds: float | None) -> None:
        """``point`` took so many ``seconds``; None: it is not legal, or wrong, or was not worth a
        trial."""


Maker = Callable[[Points, Config, Random], Strategy]


class _Listed:
    """Points in some order, whatever comes of them."""

    def __init__(self, points: Iterator[Config]) -> None:
        self._points = points

    def ask(self) -> Config | None:
        return next(self._points, None)

    def tell(self, point: Config, seconds: float | None) -> None:
        """Changes nothing."""


def exhaustive(points: Points, default: Config, rng: Random) -> Strategy:
    """All points, in the order of the space."""
    return _Listed(points.points())


# Points whose times are predicted where there are more.
_MOST_PREDICTED = 2000


def predicted(points: Points, default: Config, rng: Random) -> Strategy:
    """Those first that are predicted to take the least time; of a large space, of a part of it that
    is drawn."""
    return _Listed(iter(points.by_prediction(rng, _MOST_PREDICTED)))


# In a row, of which none was new, besides those that an earlier run may have drawn in this order:
# then few are left, or none.
_MOST_REPEATED = 200


class RandomPoints:
    """Points that are drawn, all as likely, each once."""

    def __init__(self, points: Points, default: Config, rng: Random) -> None:
        self._points, self._rng = points, rng
        self._tried: set[Config] = set()

    def ask(self) -> Config | None:
        for _ in range(_MOST_REPEATED + len(self._tried)):
            point = self._points.drawn(self._rng)
            if point not in self._tried:
                self._tried.add(point)
                return point
        return None

    def tell(self, point: Config, seconds: float | None) -> None:
        self._tried.add(point)


STRATEGIES: dict[str, Maker] = {
    "learned": Learned,
    "evolution": Evolution,
    "random": RandomPoints,
    "exhaustive": exhaustive,
    "predicted": predicted,
}


def maker_of(strategy: str | Maker) -> Maker:
    """The strategy of that name, or the one that is given. Raises `ArgumentError`."""
    if callable(strategy):
        return strategy
    if strategy not in STRATEGIES:
        raise ArgumentError(
            f"there is no strategy {short(strategy)}",
            where="strategy",
            cure=one_of(strategy, STRATEGIES),
        )
    return STRATEGIES[strategy]
