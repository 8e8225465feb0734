"""Weights of a matmul with scales and zero points for groups along K, dequantized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.ops.attributes import scale_name, zero_point_name
from tilewright.ops.matmul import Matmul
from tilewright.problems import Scale, ZeroPoint
from tilewright.testing import reference


def dequantized(op: Matmul, arrays: Mapping[str, Any]) -> tuple[Any, Any]:
    """The weights in float64, and bounds on the magnitudes of their parts: a zero point may be
    subtracted from the sum of a group."""
    stored, type = arrays["weights"], op.dtype_of("weights")
    if type.is_nibble:
        stored = reference.halves(stored, signed=type.kind == "int")
    values = stored.astype(np.float64)
    sizes = np.abs(values)
    point, scale = op.attributes.zero_point("weights"), op.attributes.scale("weights")
    if point is not None:
        shift = _per_element(point, arrays.get(zero_point_name("weights")), values.shape)
        values, sizes = values - shift, sizes + np.abs(shift)
    if scale is not None and scale.group is not None:
        factor = _per_element(scale, arrays.get(scale_name("weights")), values.shape)
        values, sizes = values * factor, sizes * np.abs(factor)
    return values, sizes


def _per_element(factor: Scale | ZeroPoint, values: Any, shape: tuple[int, ...]) -> Any:
    """A factor of the weights for each element, or one that is broadcast to them."""
    if factor.value is not None:
        return np.float64(factor.value)
    array = np.asarray(values).astype(np.float64)
    dims = factor.policy.dims(len(shape), tensor="weights", driver="matmul")
    if factor.group is None:
        return array.reshape([size if axis in dims else 1 for axis, size in enumerate(shape)])
    for axis in range(len(shape)):
        if axis not in dims:
            array = np.expand_dims(array, axis)
    return np.repeat(array, factor.group, axis=len(shape) - 2)
