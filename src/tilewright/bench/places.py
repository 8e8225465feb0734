"""Indices for ops that read or write places, such as the rows of a gather: drawn from the whole
range, because a few would always be in a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.ops.library import LibraryOp

_SEED = 5


def places_for(what: object, name: str) -> NDArray[Any] | None:
    """The contents of the argument ``name`` of ``what``, always the same, in its logical shape;
    None if it holds no places."""
    if not isinstance(what, LibraryOp):
        return None
    argument = what.argument(name)
    slot = next(s for s in what.problem.slots(what.direction) if s.name == name)
    if argument.access != "in" or slot.role not in what.problem.indices:
        return None
    rng = np.random.default_rng(_SEED)
    return rng.integers(what.problem.places, size=argument.shape, dtype=argument.dtype.numpy)
