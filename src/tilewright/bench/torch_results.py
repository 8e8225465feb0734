"""PyTorch's results of an op, on the same arrays as our kernel: a second opinion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.bench.torch_tensors import load_torch
from tilewright.bench.torch_work import check_types, work_of
from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.ops.op import Op


def torch_results(op: Op, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The results of ``op`` by name, as numpy's f64 or integers, on arrays of logical shape.

    Raises `UnsupportedError` if PyTorch is not installed, or has no equivalent.
    """
    torch = load_torch()
    if torch is None:
        raise UnsupportedError("PyTorch is not installed", cure="pip install torch")
    check_types(op)
    tensors = {
        name: _tensor(torch, array, op.argument(name).dtype) for name, array in arrays.items()
    }
    results = [argument for argument in op.arguments if argument.access != "in"]
    for result in results:
        memory = torch.zeros(result.shape, dtype=_type(torch, result.dtype))
        tensors.setdefault(result.name, memory)
    try:
        made = work_of(torch, op, tensors)()
    except (RuntimeError, NotImplementedError, TypeError) as error:
        # PyTorch's errors for work that it has no kernel for.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UnsupportedError(f"PyTorch says: {reason}") from None
    outputs = made if isinstance(made, tuple | list) else (made,)
    return {
        argument.name: _array(torch, tensor, argument.shape)
        for argument, tensor in zip(results, outputs, strict=False)
    }


def _type(torch: Any, dtype: DType) -> Any:
    type_ = getattr(torch, dtype.numpy_name, None)
    if type_ is None or dtype.name in ("tf32", "f8_e4m3", "f8_e5m2"):
        raise UnsupportedError(f"PyTorch does not compute on {dtype}")
    return type_


def _tensor(torch: Any, array: Any, dtype: DType) -> Any:
    """The array as a tensor, by way of f64, as numpy lacks some types."""
    kind = _type(torch, dtype)
    plain = array.astype(np.float64) if dtype.is_float else array.astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(plain)).to(kind)


def _array(torch: Any, tensor: Any, shape: tuple[int, ...]) -> Any:
    """A result as f64 or s64."""
    wide = torch.float64 if tensor.is_floating_point() else torch.int64
    return tensor.to(wide).contiguous().numpy().reshape(shape)
