"""Softmax and its logarithm. Source: oneDNN's developer guide, "Softmax"."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.dtypes import DType
from tilewright.problems.draws import shape_of
from tilewright.problems.knobs import Direction
from tilewright.problems.library.lists import ListsRecord
from tilewright.problems.library.record import Slot
from tilewright.problems.problem import Answer, Array, Shape

# What functions of the library are off, in roundings.
_UNITS = 32


@dataclass(frozen=True)
class SoftmaxProblem(ListsRecord):
    """``dst = exp(src - peak) / total`` along ``axis``, or its logarithm."""

    shape: Shape
    axis: int = 1
    algorithm: str = "SOFTMAX"
    name: str = ""

    driver: ClassVar[str] = "softmax"
    example: ClassVar[str] = "32x1000"
    directions: ClassVar[tuple[Direction, ...]] = (Direction.FWD_D, Direction.BWD_D)
    knobs: ClassVar[tuple[str, ...]] = ("alg", "axis")
    algorithms: ClassVar[tuple[str, ...]] = ("SOFTMAX", "LOGSOFTMAX")
    finished: ClassVar[bool] = True
    usual_axis: ClassVar[int] = 1
    work: ClassVar[int] = 4

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        shape = shape_of(rng)
        return cls(shape, rng.randrange(len(shape)), rng.choice(cls.algorithms))

    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        if direction.is_forward:
            return Slot("src", self.shape, "in", "src"), Slot("dst", self.shape, "out", "dst")
        return (
            Slot("dst", self.shape, "in", "dst"),
            Slot("diff_dst", self.shape, "in", "dst"),
            Slot("diff_src", self.shape, "out", "src"),
        )

    def answers(self, arrays: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        axis, terms = self.axis, self.shape[self.axis]
        logarithm = self.algorithm == "LOGSOFTMAX"
        if direction.is_forward:
            x = arrays["src"]
            shifted = x - x.max(axis=axis, keepdims=True)
            total = np.exp(shifted).sum(axis=axis, keepdims=True)
            if logarithm:
                value = shifted - np.log(total)
                size = np.abs(x) + np.abs(shifted) + np.abs(value) + 1
            else:
                value = np.exp(shifted) / total
                size = value * (1 + np.abs(shifted))
            return {"dst": Answer(value, size, terms + _UNITS)}
        y, g = arrays["dst"], arrays["diff_dst"]
        weights = np.exp(y) if logarithm else y
        parts = g if logarithm else g * y
        total = parts.sum(axis=axis, keepdims=True)
        sizes = np.abs(parts).sum(axis=axis, keepdims=True)
        if logarithm:
            size = np.abs(g) + weights * (1 + np.abs(y)) * sizes
            return {"diff_src": Answer(g - weights * total, size, terms + _UNITS)}
        return {
            "diff_src": Answer(y * (g - total), np.abs(y) * (np.abs(g) + sizes), terms + _UNITS)
        }

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        if not dtype.is_float:
            return None
        low = -4.0 if direction.is_forward or name != "dst" else 0.0
        return rng.uniform(low, 4.0 if direction.is_forward else 1.0, shape)

    def peer(
        self, torch: Any, arrays: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        aten, logarithm = torch.ops.aten, self.algorithm == "LOGSOFTMAX"
        if direction.is_forward:
            run = aten._log_softmax.out if logarithm else aten._softmax.out
            return lambda: run(arrays["src"], self.axis, False, out=arrays["dst"])
        back = aten._log_softmax_backward_data.out if logarithm else aten._softmax_backward_data
        if logarithm:
            return lambda: back(
                arrays["diff_dst"],
                arrays["dst"],
                self.axis,
                arrays["dst"].dtype,
                out=arrays["diff_src"],
            )
        return lambda: back.out(
            arrays["diff_dst"],
            arrays["dst"],
            self.axis,
            arrays["dst"].dtype,
            grad_input=arrays["diff_src"],
        )
