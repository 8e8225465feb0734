"""Scans: what the elements up to each one come to, along a dim."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.problems.draws import shape_of, with_nonfinite
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import ListsRecord
from tilewright.problems.library.record import Slot, checked_flags
from tilewright.problems.problem import Answer, Array, Shape

_FLAGS = {"E": "exclusive", "R": "reversed"}


@dataclass(frozen=True)
class ScanProblem(ListsRecord):
    """Running sums, products, maxima or minima along ``axis``; ``E``: without the element itself,
    ``R``: from the end."""

    shape: Shape
    axis: int = -1
    algorithm: str = "cumsum"
    flags: str = ""
    name: str = ""

    driver: ClassVar[str] = "scan"
    example: ClassVar[str] = "32x1000"
    knobs: ClassVar[tuple[str, ...]] = ("alg", "axis", "flags")
    algorithms: ClassVar[tuple[str, ...]] = ("cumsum", "cumprod", "cummax", "cummin")

    def _complete(self) -> None:
        object.__setattr__(self, "flags", checked_flags(self.flags, _FLAGS))

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng)
        flags = rng.choice(("", "E", "R", "ER"))
        return cls(shape, rng.randrange(len(shape)), rng.choice(cls.algorithms), flags)

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        return Slot("src", self.shape, "in", "src"), Slot("dst", self.shape, "out", "dst")

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        run = {
            "cumsum": np.add,
            "cumprod": np.multiply,
            "cummax": np.maximum,
            "cummin": np.minimum,
        }[self.algorithm]
        x = arrays["src"]
        whole = x.dtype.kind in "iu"

        def scanned(array: Array) -> Array:
            flipped = np.flip(array, self.axis) if "R" in self.flags else array
            totals = run.accumulate(flipped, axis=self.axis)
            if "E" in self.flags:
                limits = np.iinfo(np.int32)
                low, high = (limits.min, limits.max) if whole else (-np.inf, np.inf)
                first = {"cumsum": 0, "cumprod": 1, "cummax": low, "cummin": high}
                shape = [1 if i == self.axis else n for i, n in enumerate(self.shape)]
                start = np.full(shape, first[self.algorithm], totals.dtype)
                rest = np.take(totals, range(self.shape[self.axis] - 1), self.axis)
                totals = np.concatenate((start, rest), self.axis)
            return np.flip(totals, self.axis) if "R" in self.flags else totals

        value = scanned(x)
        if whole or self.algorithm in ("cummax", "cummin"):
            return {"dst": Answer(value)}
        size = scanned(np.abs(x))
        return {"dst": Answer(value, size, 0 if _few(x) else self.shape[self.axis] + 2)}

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        if self.algorithm in ("cummax", "cummin") and dtype.is_float:
            return with_nonfinite(rng.integers(-4, 5, shape).astype(np.float64), rng)
        if self.algorithm != "cumprod":
            return None
        signs = 1 if dtype.kind == "uint" else rng.choice((-1, 1), shape)
        if not dtype.is_float:
            # A quarter is 2, and no more than stay in 32 bits when multiplied: integers wrap.
            turn = rng.random(shape).argsort(self.axis)
            return signs * np.where(turn < min((shape[self.axis] + 3) // 4, 16), 2, 1)
        return signs * rng.uniform(0.8, 1.2, shape)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        if self.flags:
            raise UnsupportedError("PyTorch's scans are inclusive and run forward")
        run, src, axis = getattr(torch, self.algorithm), arrays["src"], self.axis
        if self.algorithm in ("cummax", "cummin"):
            return lambda: run(src, axis)[0]
        return lambda: run(src, axis, out=arrays["dst"])


def _few(x: Array) -> bool:
    """Whether all are integers, whose sums are exact here."""
    return bool(np.all(x == np.rint(x)) and np.abs(x).max(initial=0) <= 32)
