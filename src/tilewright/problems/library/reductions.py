"""Reductions along a dim of more than one value at once: places of extremes, moments, logarithms of
sums of exponentials.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import ListsRecord
from tilewright.problems.library.record import Slot
from tilewright.problems.problem import Answer, Array, Shape

_UNITS = 32


@dataclass(frozen=True)
class _AlongAxis(ListsRecord):
    """The base: results have size 1 along ``axis``."""

    shape: Shape
    axis: int = -1
    name: str = ""

    knobs: ClassVar[tuple[str, ...]] = ("axis",)
    results: ClassVar[tuple[str, ...]] = ("dst",)

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng)
        return cls(shape, rng.randrange(len(shape)))

    @property
    def kept(self) -> Shape:
        """The shape of results."""
        return tuple(1 if i == self.axis else n for i, n in enumerate(self.shape))

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        generator = (Slot(name, self.kept, "out", "dst") for name in self.results)
        return (Slot("src", self.shape, "in", "src"), *generator)


@dataclass(frozen=True)
class ArgProblem(_AlongAxis):
    """The place of the greatest or the least element: the first of equals, and of NaN."""

    algorithm: str = "argmax"

    driver: ClassVar[str] = "arg"
    example: ClassVar[str] = "32x1000"
    indices: ClassVar[tuple[str, ...]] = ("dst",)
    knobs: ClassVar[tuple[str, ...]] = ("alg", "axis")
    algorithms: ClassVar[tuple[str, ...]] = ("argmax", "argmin")

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        return replace(super().drawn(rng), algorithm=rng.choice(cls.algorithms))

    @property
    def greatest_index(self) -> int:
        # What stands in for a place until there is one is beyond them all.
        return self.shape[self.axis]

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        find = np.argmax if self.algorithm == "argmax" else np.argmin
        return {"dst": Answer(np.expand_dims(find(arrays["src"], self.axis), self.axis))}

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        if not dtype.is_float:
            return rng.integers(0, 4, shape)
        # Ties, infinities and NaN.
        values = rng.integers(-2, 3, shape).astype(np.float64)
        if dtype.name != "f8_e4m3":
            values[rng.random(shape) < 0.1] = -np.inf
        values[rng.random(shape) < 0.02] = np.nan
        return values

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        run = getattr(torch, self.algorithm)
        return lambda: run(arrays["src"], self.axis, True)


@dataclass(frozen=True)
class MomentsProblem(_AlongAxis):
    """Mean and variance (the mean of squared differences) in one pass."""

    driver: ClassVar[str] = "moments"
    example: ClassVar[str] = "32x1000"
    results: ClassVar[tuple[str, ...]] = ("mean", "variance")
    work: ClassVar[int] = 4

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        x = arrays["src"]
        kept = {"axis": self.axis, "keepdims": True}
        terms = 4 * self.shape[self.axis] + _UNITS
        return {
            "mean": Answer(x.mean(**kept), np.abs(x).max(**kept), terms),
            "variance": Answer(x.var(**kept), (x**2).max(**kept), terms),
        }

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        src, axis = arrays["src"], self.axis

        def work() -> Any:
            variance, mean = torch.var_mean(src, axis, correction=0, keepdim=True)
            return mean, variance

        return work


@dataclass(frozen=True)
class LogSumExpProblem(_AlongAxis):
    """The logarithm of a sum of exponentials."""

    driver: ClassVar[str] = "logsumexp"
    example: ClassVar[str] = "32x1000"
    work: ClassVar[int] = 4

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        x = arrays["src"]
        peak = x.max(axis=self.axis, keepdims=True)
        shift = np.where(np.isfinite(peak), peak, 0.0)
        total = np.exp(x - shift).sum(axis=self.axis, keepdims=True)
        size = 1 + np.abs(shift) + np.abs(np.log(total))
        terms = 4 * self.shape[self.axis] + _UNITS
        finite = np.where(np.isfinite(size), size, 0.0)
        return {"dst": Answer(np.log(total) + shift, finite, terms)}

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        return lambda: torch.logsumexp(arrays["src"], self.axis, True)
