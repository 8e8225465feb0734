"""Random sizes of small problems, and contents that are hard on them."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from tilewright.dtypes import DType
from tilewright.problems.problem import Shape

# Numbers of channels, beside and at those of vectors and matrices.
CHANNELS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 40)
_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17)
# More than vectors have lanes, and enough for several threads: of one dim in some shapes.
_LONG = (31, 64, 100, 257, 1000, 1025, 4096)
_LONG_PART = 0.2
# With a long dim: the interpreter is slow.
_MOST_ELEMENTS = 8192
# The part of indices that are far out of range.
_FAR = 0.05
# The part of numbers that are NaN or infinite.
_NONFINITE = 0.03


def shape_of(
    rng: random.Random, least: int = 1, most: int = 4, longest: int = _MOST_ELEMENTS
) -> Shape:
    """A shape of so many dims; of some, a dim is long."""
    shape = [rng.choice(_SIZES) for _ in range(rng.randint(least, most))]
    if rng.random() < _LONG_PART:
        place = rng.randrange(len(shape))
        room = min(longest, _MOST_ELEMENTS * shape[place] // math.prod(shape))
        shape[place] = rng.choice([size for size in _LONG if size <= room] or shape)
    return tuple(shape)


def places_in(size: int, shape: Shape, dtype: DType, rng: Any) -> Any:
    """Places in a dim of ``size``, of which some are out of range: by little, by what 32 bits would
    cut off, and as far as the type goes. ``rng`` is numpy's."""
    near = rng.integers(-1 - size // 8, size + 1 + size // 8, shape)
    ends = int(dtype.lowest), int(dtype.highest)
    far = rng.choice(np.clip((*ends, 1 - 2**32, 2**32 + 1, 2**31), *ends), shape)
    return np.where(rng.random(shape) < _FAR, far, near)


def with_nonfinite(values: Any, rng: Any) -> Any:
    """``values`` of a type of floats, with infinities and NaN at few places, at one at least; NaN
    alone where the type has no infinities. ``rng`` is numpy's."""
    places = rng.random(values.shape) < _NONFINITE
    places.reshape(-1)[rng.integers(places.size)] = True
    odd = rng.choice((np.nan, np.inf, -np.inf), values.shape).astype(values.dtype)
    return np.where(places, odd, values)
