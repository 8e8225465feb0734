"""A model of times, learned from those that were measured, and the search that it guides.

The model is a Gaussian process (Rasmussen and Williams, "Gaussian Processes for Machine Learning",
chapter 2) over what points choose: numbers by their logarithms, anything else by whether it is the
same. It learns by how much the predicted time is off, where there is one, and else the logarithm of
the time; and it says how sure it is. What is tried next is what may be fastest: the lowest bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.recipes.config import Config
from tilewright.tune.subject import Points

Vector = NDArray[np.float64]

_DRAWN, _FIRST = 256, 8
# Where each prediction is a schedule, of no more than these.
_DRAWN_SLOWLY = 16
# Of the points that were measured, so many teach: the fastest, and the latest.
_MOST = 400
# Candidates of a question: changed from the fastest ones, and drawn.
_BEST, _CHANGED, _FRESH = 8, 8, 32
# How far apart points tell nothing of each other; how much of a time is noise, relative to how much
# times differ; how many deviations the bound is below what is expected.
_LENGTHS, _NOISE, _DEVIATIONS = (1.0, 2.0, 4.0, 8.0), 0.05, 1.0


class Learned:
    """A strategy (see `strategies`). It never ends."""

    def __init__(self, points: Points, default: Config, rng: Random) -> None:
        self._points, self._rng = points, rng
        self._first = iter(first_points(points, default, rng)[:_FIRST])
        self._seconds: dict[Config, float] = {}
        self._known: set[Config] = set()
        self._predicted: dict[Config, float | None] = {}
        self._rows: dict[Config, Mapping[str, float]] = {}
        self._features = Features()
        self._model: Model | None = None

    def ask(self) -> Config | None:
        point = next(self._first, None)
        if point is None:
            candidates = self._candidates()
            point = self._best(candidates) if candidates else self._points.drawn(self._rng)
        self._known.add(point)
        return point

    def tell(self, point: Config, seconds: float | None) -> None:
        self._known.add(point)
        if seconds is not None:
            self._seconds[point] = seconds
            self._model = None

    def _candidates(self) -> list[Config]:
        """Points that were not asked for."""
        points, rng = self._points, self._rng
        best = sorted(self._seconds, key=lambda config: self._seconds[config])[:_BEST]
        configs = [points.mutated(config, rng) for config in best for _ in range(_CHANGED)]
        configs += [points.crossed(rng.choice(best), config, rng) for config in best]
        configs += [points.drawn(rng) for _ in range(_FRESH)]
        return [config for config in dict.fromkeys(configs) if config not in self._known]

    def _best(self, candidates: Sequence[Config]) -> Config:
        if len(self._seconds) < 2:
            return candidates[0]
        if self._model is None:
            self._model = self._learned()
        expected, deviation = self._model.expected(self._numbers(candidates))
        expected = expected + self._offsets(candidates)
        return candidates[int(np.argmin(expected - _DEVIATIONS * deviation))]

    def _learned(self) -> Model:
        """The model of what was measured so far."""
        fastest = sorted(self._seconds, key=lambda config: self._seconds[config])[: _MOST // 2]
        taught = list(dict.fromkeys([*fastest, *list(self._seconds)[-_MOST // 2 :]]))
        times = np.log([self._seconds[point] for point in taught])
        return Model(self._numbers(taught), times - self._offsets(taught))

    def _numbers(self, points: Sequence[Config]) -> Vector:
        for point in points:
            if point not in self._rows:
                self._rows[point] = numbers_of(self._points.values(point))
        return self._features.table([self._rows[point] for point in points])

    def _offsets(self, points: Sequence[Config]) -> Vector:
        """The logarithms of the predicted times; where one has none, or it would take a schedule,
        of nobody's."""
        for point in points:
            if point not in self._predicted:
                quick = self._points.quick(point)
                self._predicted[point] = self._points.predicted(point) if quick else None
        times = [self._predicted[point] for point in points]
        measured = [time for time in times if time is not None]
        typical = float(np.median(measured)) if measured else 1.0
        return np.log([typical if time is None else max(time, 1e-12) for time in times])


def first_points(points: Points, default: Config, rng: Random) -> list[Config]:
    """Some that are drawn, those first that are predicted to take the least time."""
    return points.by_prediction(rng, _DRAWN if points.quick(default) else _DRAWN_SLOWLY)


class Features:
    """What points choose, as numbers. New names and words get columns of their own."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}

    def of(self, chosen: Sequence[Mapping[str, Any]]) -> Vector:
        """A row for each of what is chosen; other rows may have fewer columns, whose rest is 0."""
        return self.table([numbers_of(values) for values in chosen])

    def table(self, rows: Sequence[Mapping[str, float]]) -> Vector:
        """The same of what `numbers_of` gives."""
        for row in rows:
            for name in row:
                self._columns.setdefault(name, len(self._columns))
        numbers = np.zeros((len(rows), len(self._columns)))
        for number, row in enumerate(rows):
            for name, value in row.items():
                numbers[number, self._columns[name]] = value
        return numbers


def numbers_of(values: Mapping[str, Any]) -> Mapping[str, float]:
    """What a point chooses, as numbers by name."""
    return dict(_flat("", values))


def _flat(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, bool):
        yield name, float(value)
    elif isinstance(value, int | float):
        yield name, float(np.log2(1 + abs(value)))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif hasattr(value, "names"):
        for key in value.names():
            yield from _flat(f"{name}.{key}", getattr(value, key))
    else:
        # A word: it is this one or it is not.
        yield f"{name}={value!r}", 1.0


class Model:
    """A Gaussian process of the ``times`` of points with these features, a row each."""

    def __init__(self, numbers: Vector, times: Vector) -> None:
        self._numbers = numbers
        self._mean = float(np.median(times))
        off = times - self._mean
        self._scale = max(float(np.std(off)), 1e-3)
        # How far points tell something of each other is what makes the times likeliest.
        fits = [_fit(numbers, off / self._scale, length) for length in _LENGTHS]
        self._length, self._inverse, self._weights, _ = max(fits, key=lambda fit: fit[3])

    def expected(self, numbers: Vector) -> tuple[Vector, Vector]:
        """The times that are expected of points, and how far they may be off."""
        columns = self._numbers.shape[1]
        near = _kernel(numbers[:, :columns], self._numbers, self._length)
        # What has something that no point had is as unsure as can be.
        far = np.exp(-np.square(numbers[:, columns:]).sum(axis=1) / (2 * self._length**2))
        near = near * far[:, None]
        expected = self._mean + self._scale * (near @ self._weights)
        variance = 1 - np.einsum("ij,jk,ik->i", near, self._inverse, near)
        return expected, self._scale * np.sqrt(np.maximum(variance, 0.0))


def _fit(numbers: Vector, times: Vector, length: float) -> tuple[float, Vector, Vector, float]:
    """The length, the inverse of the kernel's matrix, the weights of points, and the logarithm of
    how likely the times are."""
    matrix = _kernel(numbers, numbers, length) + _NOISE * np.eye(len(numbers))
    inverse = np.asarray(np.linalg.inv(matrix), np.float64)
    weights = np.asarray(inverse @ times, np.float64)
    _, determinant = np.linalg.slogdet(matrix)
    return length, inverse, weights, float(-0.5 * (times @ weights + determinant))


def _kernel(one: Vector, other: Vector, length: float) -> Vector:
    squares = (
        np.square(one).sum(axis=1)[:, None]
        + np.square(other).sum(axis=1)[None, :]
        - 2 * one @ other.T
    )
    near: Vector = np.exp(-np.maximum(squares, 0.0) / (2 * length**2))
    return near
