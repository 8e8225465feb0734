"""Types of ONNX's, and arrays of its tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tilewright.dtypes import DType, dtype
from tilewright.errors import ArgumentError, UnsupportedError

_NAMES = {
    "FLOAT": "f32",
    "DOUBLE": "f64",
    "FLOAT16": "f16",
    "BFLOAT16": "bf16",
    "BOOL": "bool",
    **{f"INT{bits}": f"s{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"UINT{bits}": f"u{bits}" for bits in (4, 8, 16, 32, 64)},
    "FLOAT8E4M3FN": "f8_e4m3",
    "FLOAT8E5M2": "f8_e5m2",
}


def type_of(number: int) -> DType:
    """The type that ONNX gives this number. Raises `UnsupportedError`."""
    is_standard = number in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(number) if is_standard else str(number)
    if name not in _NAMES:
        raise UnsupportedError(f"elements are of ONNX's type {name}")
    return dtype(_NAMES[name])


def shape_of(info: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """The sizes of a value, None where the model does not say them all."""
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
        return None
    dims = info.type.tensor_type.shape.dim
    if any(not dim.HasField("dim_value") for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def array_of(tensor: TensorProto) -> np.ndarray[Any, Any]:
    """The contents of a tensor. Raises `ArgumentError` for one that is not what it says."""
    type_of(tensor.data_type)
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:  # of any kind, for a file that lies about its sizes
        raise ArgumentError(
            f"the tensor {tensor.name!r} cannot be read", why=str(error), cure="check the model"
        ) from error


def attribute_of(attribute: onnx.AttributeProto) -> Any:
    """The value of an attribute."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, TensorProto):
        return array_of(value)
    if isinstance(value, list | tuple) or hasattr(value, "extend"):
        return [text.decode() if isinstance(text, bytes) else text for text in value]
    return value
