"""PReLU with weights that broadcast. Source: oneDNN's developer guide, "PReLU"."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.errors import ProblemError
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import ListsRecord, Numbers, Part
from tilewright.problems.library.record import Slot
from tilewright.problems.problem import Answer, Array, Shape


@dataclass(frozen=True)
class PreluProblem(ListsRecord):
    """``dst = src`` where that is above 0, else ``src * weights``."""

    shape: Shape
    weights_shape: Numbers = ()
    name: str = ""

    driver: ClassVar[str] = "prelu"
    example: ClassVar[str] = "8x64x56x56:1x64x1x1"
    roles: ClassVar[tuple[str, ...]] = ("src", "weights", "dst")
    parts: ClassVar[tuple[Part, ...]] = (Part("shape"), Part("weights_shape"))
    directions: ClassVar[tuple[Direction, ...]] = (
        Direction.FWD_D,
        Direction.BWD_D,
        Direction.BWD_W,
    )

    def _complete(self) -> None:
        self.same_length("shape", "weights_shape")
        if any(b not in (1, a) for a, b in zip(self.shape, self.weights_shape, strict=True)):
            raise ProblemError(
                f"{self.weights_shape} does not broadcast to {self.shape}",
                where="weights_shape",
                cure="make each dim equal, or 1",
            )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng)
        return cls(shape, tuple(rng.choice((1, n)) for n in shape))

    def smallest(self) -> Self:
        ones = (1,) * len(self.shape)
        return replace(self, shape=ones, weights_shape=ones)

    def with_mb(self, mb: int) -> Self:
        lead = 1 if self.weights_shape[0] == 1 else mb
        return self.changed(
            shape=(mb, *self.shape[1:]), weights_shape=(lead, *self.weights_shape[1:])
        )

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        src = Slot("src", self.shape, "in", "src")
        weights = Slot("weights", self.weights_shape, "in", "weights")
        if direction.is_forward:
            return src, weights, Slot("dst", self.shape, "out", "dst")
        back = Slot("diff_dst", self.shape, "in", "dst")
        if direction is Direction.BWD_D:
            return src, weights, back, Slot("diff_src", self.shape, "out", "src")
        return src, back, Slot("diff_weights", self.weights_shape, "out", "weights")

    @property
    def broadcast(self) -> tuple[int, ...]:
        """The dims that weights have once."""
        return tuple(i for i, n in enumerate(self.weights_shape) if n == 1)

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        x = arrays["src"].astype(np.float64)
        if direction.is_forward:
            value = np.where(x > 0, x, x * arrays["weights"])
            return {"dst": Answer(value, np.abs(value), 2)}
        g = arrays["diff_dst"]
        if direction is Direction.BWD_D:
            value = np.where(x > 0, g, g * arrays["weights"])
            return {"diff_src": Answer(value, np.abs(value), 2)}
        parts = np.where(x > 0, 0.0, x * g)
        axes = self.broadcast
        total, size = (part.sum(axis=axes, keepdims=True) for part in (parts, np.abs(parts)))
        terms = math.prod(self.shape[i] for i in axes) + 2
        return {"diff_weights": Answer(total, size, terms)}

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        src = arrays["src"]
        if direction.is_forward:
            return lambda: torch.where(src > 0, src, src * arrays["weights"])
        back = arrays["diff_dst"]
        if direction is Direction.BWD_D:
            return lambda: torch.where(src > 0, back, back * arrays["weights"])
        axes = list(self.broadcast)

        def work() -> Any:
            parts = torch.where(src > 0, torch.zeros_like(src), src * back)
            return parts.sum(axes, keepdim=True) if axes else parts

        return work
