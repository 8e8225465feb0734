"""Factors of a matmul with scales and zero points for groups along K, dequantized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.ops.attributes import scale_name, zero_point_name
from tilewright.ops.group_factors import along_k, has_groups
from tilewright.ops.matmul import Matmul
from tilewright.problems import Scale, ZeroPoint
from tilewright.testing import reference


def dequantized(op: Matmul, tensor: str, arrays: Mapping[str, Any]) -> tuple[Any, Any]:
    """``tensor`` in float64, and bounds on the magnitudes of its parts: a zero point may be
    subtracted from the sum of a group."""
    stored, type = arrays[tensor], op.dtype_of(tensor)
    if type.is_nibble and has_groups(op.attributes):
        stored = reference.halves(stored, signed=type.kind == "int")
    values = stored.astype(np.float64)
    sizes = np.abs(values)
    point, scale = op.attributes.zero_point(tensor), op.attributes.scale(tensor)
    if point is not None:
        shift = _per_element(point, arrays.get(zero_point_name(tensor)), values.shape)
        values, sizes = values - shift, sizes + np.abs(shift)
    if scale is not None and scale.group is not None:
        factor = _per_element(scale, arrays.get(scale_name(tensor)), values.shape)
        values, sizes = values * factor, sizes * np.abs(factor)
    return values, sizes


def _per_element(factor: Scale | ZeroPoint, values: Any, shape: tuple[int, ...]) -> Any:
    """A factor for each element, or one that is broadcast to them."""
    if factor.value is not None:
        return np.float64(factor.value)
    array = np.asarray(values).astype(np.float64)
    dims = factor.policy.dims(len(shape), tensor=factor.tensor, driver="matmul")
    if factor.group is None:
        return array.reshape([size if axis in dims else 1 for axis, size in enumerate(shape)])
    for axis in range(len(shape)):
        if axis not in dims:
            array = np.expand_dims(array, axis)
    return np.repeat(array, factor.group, axis=along_k(factor.tensor, len(shape)))
