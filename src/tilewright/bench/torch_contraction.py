"""Convolutions and products of matrices in PyTorch, with their epilogues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.bench.torch_tensors import Call, channels_last, is_plain, window_of
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Op
from tilewright.problems import Direction, Unary

Tensors = Mapping[str, Any]


def contraction_of(torch: Any, op: Convolution | Matmul, tensors: Tensors) -> Call:
    """The call that computes ``op``. Raises `UnsupportedError`."""
    if isinstance(op, Matmul):
        src, weights, dst = (tensors[name] for name in ("src", "weights", "dst"))
        if op.attributes.post_ops or op.attributes.bias is not None:
            raise UnsupportedError("PyTorch's side has no matmul with an epilogue")
        return lambda: torch.matmul(src, weights, out=dst)
    return (_forward if op.direction.is_forward else _backward)(torch, op, tensors)


def _window(op: Convolution) -> tuple[list[int], list[int], list[int], int]:
    """Stride, padding, dilation, groups."""
    window = window_of(op.problem)
    if window is None or op.problem.ndims == 1:
        raise UnsupportedError("PyTorch's side has no such padding, or not in one dim")
    return window["stride"], window["padding"], window["dilation"], op.problem.g


def _weights(torch: Any, op: Convolution, tensors: Tensors) -> Any:
    """As PyTorch has them: groups in the first dim, and in memory as the images are."""
    p = op.problem
    weights = tensors["weights"].reshape(p.oc, p.ic // p.g, *p.kernel)
    if is_plain(op.argument("src")) or weights.dtype == torch.float64:
        return weights.contiguous()
    return weights.contiguous(memory_format=channels_last(torch, weights.dim()))


def _relu(op: Op) -> bool:
    post_ops: Sequence[Any] = op.attributes.post_ops
    if post_ops not in ((), (Unary("relu"),)):
        raise UnsupportedError("PyTorch's side has relu only")
    return bool(post_ops)


def _forward(torch: Any, op: Convolution, tensors: Tensors) -> Call:
    src, weights, bias = tensors["src"], _weights(torch, op, tensors), tensors.get("bias")
    stride, padding, dilation, groups = _window(op)
    relu, zeros = _relu(op), [0] * len(stride)

    def run() -> Any:
        result = torch.convolution(
            src, weights, bias, stride, padding, dilation, False, zeros, groups
        )
        return torch.relu_(result) if relu else result

    return run


def fused(torch: Any, op: Convolution, tensors: Tensors) -> list[Call]:
    """cuDNN's convolution with bias and relu in one call, which only GPUs have."""
    if not (_relu(op) and tensors["src"].is_cuda):
        return []
    src, weights, bias = tensors["src"], _weights(torch, op, tensors), tensors.get("bias")
    stride, padding, dilation, groups = _window(op)
    return [
        lambda: torch.cudnn_convolution_relu(src, weights, bias, stride, padding, dilation, groups)
    ]


def _backward(torch: Any, op: Convolution, tensors: Tensors) -> Call:
    """The gradient by data or by weights, and that of the bias if requested. (Only the shape of the
    other tensor matters.)"""
    src, dst, weights = tensors["src"], tensors["dst"], _weights(torch, op, tensors)
    stride, padding, dilation, groups = _window(op)
    by_data, zeros = op.direction is Direction.BWD_D, [0] * len(stride)
    if _relu(op) or op.attributes.bias is not None:
        raise UnsupportedError("PyTorch's side has no epilogue of a gradient")
    with_bias, sizes = op.direction is Direction.BWD_WB, [op.problem.oc]
    shape, requested = tensors["weights"].shape, [by_data, not by_data, with_bias]

    def run() -> Any:
        by_src, by_weights, by_bias = torch.ops.aten.convolution_backward(
            dst, src, weights, sizes, stride, padding, dilation, False, zeros, groups, requested
        )
        if by_data:
            return by_src
        by_weights = by_weights.reshape(shape)
        return (by_weights, by_bias) if with_bias else by_weights

    return run
