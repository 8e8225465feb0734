"""What PyTorch gives for an op, on the very arrays that our kernel gets: a second opinion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.bench.peer_chain import unary_function
from tilewright.bench.torch_tensors import load_torch, window_of
from tilewright.bench.torch_work import work_of
from tilewright.dtypes import DType
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.elementwise import BinaryOp, Eltwise
from tilewright.ops.library import LibraryOp
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Op
from tilewright.ops.pooling import Pooling
from tilewright.ops.reduction import Reduction
from tilewright.ops.reorder import Reorder
from tilewright.problems import BINARY_RECORDS, PoolAlgorithm, ReduceAlgorithm

# What these are called there.
_REDUCTIONS = {
    ReduceAlgorithm.SUM: "sum",
    ReduceAlgorithm.MEAN: "mean",
    ReduceAlgorithm.MAX: "amax",
    ReduceAlgorithm.MIN: "amin",
}


def torch_results(op: Op, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The results of ``op`` by name, as numpy's f64 or integers, on arrays of logical shape.

    Raises `UnsupportedError` where PyTorch is not installed, or has nothing that does the same.
    """
    torch = load_torch()
    if torch is None:
        raise UnsupportedError("PyTorch is not installed", cure="pip install torch")
    given = {name: _tensor(torch, array, op.argument(name).dtype) for name, array in arrays.items()}
    results = [argument for argument in op.arguments if argument.access != "in"]
    for each in results:
        made = torch.zeros(each.shape, dtype=_type(torch, each.dtype))
        given.setdefault(each.name, made)
    try:
        made = _made(torch, op, given)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        # PyTorch's errors for what it has no kernel for.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UnsupportedError(f"PyTorch says: {reason}") from None
    tensors = made if isinstance(made, tuple | list) else (made,)
    return {
        argument.name: _array(torch, tensor, argument.shape)
        for argument, tensor in zip(results, tensors, strict=False)
    }


def _made(torch: Any, op: Op, given: Mapping[str, Any]) -> Any:
    if isinstance(op, LibraryOp):
        kinds = {op.dtype_of(role) for role in op.problem.roles if role not in op.problem.indices}
        if len(kinds) > 1:
            raise UnsupportedError(f"PyTorch's {op.kind} has tensors of one type")
        return op.problem.peer(torch, given, op.direction)()
    attributes = op.attributes
    if attributes.scales or attributes.zero_points or attributes.fpmath is not None:
        raise UnsupportedError("PyTorch's side has no scales, zero points or fpmath")
    types = {dtype for _, dtype in op.types}
    if len(types) > 1 and not (isinstance(op, Reorder) and all(each.is_float for each in types)):
        raise UnsupportedError(f"PyTorch's {op.kind} has tensors of one type")
    if isinstance(op, Convolution | Matmul):
        return work_of(torch, op, given)()
    if attributes.post_ops:
        raise UnsupportedError(f"PyTorch's side has no {op.kind} with post-ops")
    return _small(torch, op, given).to(given["dst"].dtype)


def _small(torch: Any, op: Op, given: Mapping[str, Any]) -> Any:
    """Ops without products."""
    match op:
        case Reduction() if op.dtype_of("src").is_integer:
            raise UnsupportedError("PyTorch sums integers in another type")
        case Reduction():
            name = _REDUCTIONS.get(op.algorithm)
            if name is None:
                raise UnsupportedError(f"PyTorch has no reduction {op.algorithm.value}")
            return getattr(torch, name)(given["src"], list(op.problem.reduced_dims), keepdim=True)
        case Eltwise():
            function = unary_function(torch, op.function)
            if function is None:
                raise UnsupportedError(f"PyTorch has no {op.function.describe()}")
            return function(given["src"], torch.empty_like(given["src"]))
        case BinaryOp():
            run = getattr(torch, BINARY_RECORDS[op.function].peer)
            return run(given["src0"], given["src1"])
        case Reorder():
            return given["src"]
        case Pooling():
            return _pooled(torch, op, given["src"])
    raise UnsupportedError(f"PyTorch's side has no {op.kind}")


def _pooled(torch: Any, op: Pooling, src: Any) -> Any:
    p = op.problem
    window = window_of(p)
    if window is None or p.ndims == 1 or not op.direction.is_forward:
        raise UnsupportedError("PyTorch has no pooling like this")
    functions = torch.nn.functional
    if op.algorithm is PoolAlgorithm.MAX:
        run = functions.max_pool3d if p.ndims == 3 else functions.max_pool2d
        return run(src, p.kernel, window["stride"], window["padding"], window["dilation"])
    if any(each != 1 for each in window["dilation"]):
        raise UnsupportedError("PyTorch's average pooling has no dilation")
    run = functions.avg_pool3d if p.ndims == 3 else functions.avg_pool2d
    counted = op.algorithm is PoolAlgorithm.AVERAGE_WITH_PADDING
    return run(src, p.kernel, window["stride"], window["padding"], False, counted)


def _type(torch: Any, dtype: DType) -> Any:
    found = getattr(torch, dtype.numpy_name, None)
    if found is None or dtype.name in ("tf32", "f8_e4m3", "f8_e5m2"):
        raise UnsupportedError(f"PyTorch does not compute on {dtype}")
    return found


def _tensor(torch: Any, array: Any, dtype: DType) -> Any:
    """The array as PyTorch has it: by way of f64 where numpy does not know its type."""
    kind = _type(torch, dtype)
    plain = array.astype(np.float64) if dtype.is_float else array.astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(plain)).to(kind)


def _array(torch: Any, tensor: Any, shape: tuple[int, ...]) -> Any:
    """A result as f64, or as integers."""
    wide = torch.float64 if tensor.is_floating_point() else torch.int64
    return tensor.to(wide).contiguous().numpy().reshape(shape)
