"""Keys of values that tell apart what Python takes for equal: 2, 2.0 and True, 0.0 and -0.0."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np


def exact(value: Any) -> Hashable:
    """A key of ``value``, and of the parts of a tuple; without a hash where ``value`` has none."""
    kind = value.__class__
    if kind is float:
        return kind, value, math.copysign(1.0, value)
    if kind is tuple:
        return kind, *map(exact, value)
    if isinstance(value, np.ndarray):
        return kind, value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    return kind, value
