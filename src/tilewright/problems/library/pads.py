"""Padding: elements around a tensor's, or between them; below 0, elements less.

And what blocks of layouts pad, set to 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import ListsRecord, Numbers, Part
from tilewright.problems.library.record import Slot
from tilewright.problems.library.wording import Domain
from tilewright.problems.numbers import real_number
from tilewright.problems.problem import Answer, Array, Shape

_LEAST = -(2**60)


@dataclass(frozen=True)
class PadProblem(ListsRecord):
    """``low`` elements in front of each dim, ``high`` behind, ``interior`` between neighbours."""

    shape: Shape
    low: Numbers = ()
    high: Numbers = ()
    interior: Numbers = ()
    algorithm: str = "constant"
    value: float = 0.0
    name: str = ""

    driver: ClassVar[str] = "pad"
    example: ClassVar[str] = "4x5:1x-1:0x2"
    knobs: ClassVar[tuple[str, ...]] = ("alg", "value")
    algorithms: ClassVar[tuple[str, ...]] = ("constant", "edge", "reflect")
    work: ClassVar[int] = 0
    parts: ClassVar[tuple[Part, ...]] = (
        Part("shape"),
        Part("low", _LEAST),
        Part("high", _LEAST),
        Part("interior", 0, optional=True),
    )

    def _complete(self) -> None:
        if not self.interior:
            object.__setattr__(self, "interior", (0,) * len(self.shape))
        self.same_length("shape", "low", "high", "interior")
        value = real_number(self.value, "a value", "value", finite=True)
        object.__setattr__(self, "value", value)
        for dim, size in enumerate(self.made):
            if size < 1:
                raise ProblemError(
                    f"dim {dim} of the result has {size} elements",
                    where="low",
                    cure="take less away",
                )

    def check(self, types: Mapping[str, DType], direction: Direction) -> None:
        """What fits together is known with the algorithm, which an option may say."""
        super().check(types, direction)
        held = types["src"]
        fits = held.is_float or (
            self.value == int(self.value) and held.lowest <= self.value <= held.highest
        )
        if not fits:
            raise ProblemError(
                f"{held} does not hold {self.value}", where="value", cure="choose another value"
            )
        if self.algorithm != "constant" and any(self.interior):
            raise ProblemError(
                f"{self.algorithm} has nothing to put between elements",
                where="interior",
                cure="choose the algorithm constant, or no interior",
            )
        for dim, size in enumerate(self.shape):
            if self.algorithm == "reflect" and max(self.low[dim], self.high[dim]) >= size:
                raise ProblemError(
                    f"dim {dim} has {size} elements, too few to reflect",
                    where="low",
                    cure="pad by less than the size",
                )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng, 1, 3)
        algorithm = rng.choice(cls.algorithms)
        lows, highs, between = [], [], []
        for size in shape:
            most = min(3, size - 1) if algorithm == "reflect" else 3
            low, high = (rng.randint(max(-1, 1 - size), most) for _ in range(2))
            between.append(rng.choice((0, 0, 1, 2)) if algorithm == "constant" else 0)
            lows.append(low)
            highs.append(high if size + low + high > 0 else 0)
        value = rng.choice((0.0, 0.0, 3.0))
        return cls(shape, tuple(lows), tuple(highs), tuple(between), algorithm, value)

    def smallest(self) -> Self:
        ones, none = (1,) * len(self.shape), (0,) * len(self.shape)
        return replace(self, shape=ones, low=none, high=none, interior=none)

    @property
    def made(self) -> Shape:
        """The shape of the result."""
        dims = zip(self.shape, self.low, self.high, self.interior, strict=True)
        return tuple((n - 1) * (between + 1) + 1 + a + b for n, a, b, between in dims)

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        return Slot("src", self.shape, "in", "src"), Slot("dst", self.made, "out", "dst")

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        src = arrays["src"]
        wide = tuple((n - 1) * (k + 1) + 1 for n, k in zip(self.shape, self.interior, strict=True))
        spread = np.full(wide, self.value, src.dtype)
        spread[tuple(slice(None, None, k + 1) for k in self.interior)] = src
        around = [(max(a, 0), max(b, 0)) for a, b in zip(self.low, self.high, strict=True)]
        if self.algorithm == "constant":
            whole = np.pad(spread, around, constant_values=self.value)
        else:
            whole = np.pad(spread, around, mode="edge" if self.algorithm == "edge" else "reflect")
        starts = [max(-a, 0) for a in self.low]
        cut = tuple(slice(a, a + n) for a, n in zip(starts, self.made, strict=True))
        return {"dst": Answer(whole[cut])}

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        if self.algorithm != "constant" or any(self.interior):
            raise UnsupportedError("PyTorch pads constants around any dims, and nothing else")
        sizes = [n for pair in zip(self.low[::-1], self.high[::-1], strict=True) for n in pair]
        return lambda: torch.constant_pad_nd(arrays["src"], sizes, self.value)


@dataclass(frozen=True)
class ZeroPadProblem(ListsRecord):
    """What a blocked layout holds beside the tensor's elements, set to 0, in place."""

    shape: Shape
    name: str = ""

    driver: ClassVar[str] = "zeropad"
    example: ClassVar[str] = "2x13x5"
    roles: ClassVar[tuple[str, ...]] = ("dst",)
    work: ClassVar[int] = 0

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        return cls(shape_of(rng))

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        return (Slot("dst", self.shape, "inout", "dst"),)

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        # The fills follow, as behind every result. Its elements stay.
        d = Domain(self.shape)
        return f"""
compute keep({d.dims()}):
  x = dst[{d.at()}]
  dst[{d.at()}] = x
"""

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        return {"dst": Answer(arrays["dst"])}
