"""Random sizes of small problems."""

from __future__ import annotations

import random

from tilewright.problems.problem import Shape

_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17)


def shape_of(rng: random.Random, least: int = 1, most: int = 4) -> Shape:
    """A shape of so many dims."""
    return tuple(rng.choice(_SIZES) for _ in range(rng.randint(least, most)))
