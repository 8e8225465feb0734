"""Elementwise ops, reductions, pooling and copies in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.bench.peer_chain import unary_function
from tilewright.bench.torch_tensors import Call, window_of
from tilewright.errors import UnsupportedError
from tilewright.ops.elementwise import BinaryOp, Eltwise
from tilewright.ops.op import Op
from tilewright.ops.pooling import Pooling
from tilewright.ops.reduction import Reduction
from tilewright.ops.reorder import Reorder
from tilewright.problems import BINARY_RECORDS

# PyTorch's names of reductions.
_REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}


def streaming_of(torch: Any, op: Op, tensors: Mapping[str, Any]) -> Call:
    """The call that computes ``op``. Raises `UnsupportedError`."""
    if op.attributes.post_ops:
        raise UnsupportedError(f"PyTorch's side has no {op.kind} with post-ops")
    return lambda: _result(torch, op, tensors).to(tensors["dst"].dtype)


def _result(torch: Any, op: Op, tensors: Mapping[str, Any]) -> Any:
    match op:
        case Reduction() if op.dtype_of("src").is_integer:
            raise UnsupportedError("PyTorch sums integers in another type")
        case Reduction():
            name = _REDUCTIONS.get(op.problem.algorithm)
            if name is None:
                raise UnsupportedError(f"PyTorch has no reduction {op.problem.algorithm}")
            return getattr(torch, name)(tensors["src"], list(op.problem.reduced_dims), keepdim=True)
        case Eltwise():
            function = unary_function(torch, op.problem.function)
            if function is None:
                raise UnsupportedError(f"PyTorch has no {op.problem.algorithm}")
            return function(tensors["src"], torch.empty_like(tensors["src"]))
        case BinaryOp():
            run = getattr(torch, BINARY_RECORDS[op.problem.algorithm].peer)
            return run(tensors["src0"], tensors["src1"])
        case Reorder():
            return tensors["src"]
        case Pooling():
            return _pooled(torch, op, tensors["src"])
    raise UnsupportedError(f"PyTorch's side has no {op.kind}")


def _pooled(torch: Any, op: Pooling, src: Any) -> Any:
    p = op.problem
    window = window_of(p)
    if window is None or p.ndims == 1 or not op.direction.is_forward:
        raise UnsupportedError("PyTorch has no pooling like this")
    functions = torch.nn.functional
    if p.algorithm == "max":
        run = functions.max_pool3d if p.ndims == 3 else functions.max_pool2d
        return run(src, p.kernel, window["stride"], window["padding"], window["dilation"])
    if any(dilation != 1 for dilation in window["dilation"]):
        raise UnsupportedError("PyTorch's average pooling has no dilation")
    run = functions.avg_pool3d if p.ndims == 3 else functions.avg_pool2d
    counted = p.algorithm == "avg_p"
    return run(src, p.kernel, window["stride"], window["padding"], False, counted)
