"""Numbers with what their errors are relative to: of chains of ops, in which errors go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tilewright.problems.problem import Array


@dataclass(frozen=True, eq=False)
class Bounded:
    """``value`` in float64; the computed one is off by ``size`` times a few roundings at most, to
    first order."""

    value: Array
    size: Array

    @classmethod
    def exact(cls, value: Array) -> Self:
        """A number as it is given."""
        return cls(value, np.zeros_like(value))

    def __add__(self, other: Self) -> Self:
        value = self.value + other.value
        return type(self)(value, self.size + other.size + np.abs(self.value) + np.abs(other.value))

    def __mul__(self, other: Self) -> Self:
        value = self.value * other.value
        first, second = self.size * np.abs(other.value), other.size * np.abs(self.value)
        return type(self)(value, first + second + np.abs(value))

    def product(self, matrix: Array) -> Self:
        """The sums of products with an exact matrix, along the last dim and its first."""
        size = (self.size + np.abs(self.value)) @ np.abs(matrix)
        return type(self)(self.value @ matrix, size)

    def through(self, function: Callable[[Array], Array], slope: float) -> Self:
        """A function whose slope is at most ``slope``."""
        value = function(self.value)
        return type(self)(value, self.size * slope + np.abs(value))

    @classmethod
    def beside(cls, parts: Sequence[Self]) -> Self:
        """The parts along the last dim."""
        values = [part.value for part in parts]
        return cls(np.concatenate(values, -1), np.concatenate([part.size for part in parts], -1))
