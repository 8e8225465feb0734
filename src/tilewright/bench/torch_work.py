"""The work of an op in PyTorch, on the same arrays as our kernel, on any device.

It is used as the peer and as a second opinion, in the op's types, and as the reference, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.bench.torch_tensors import (
    Call,
    Peers,
    channels_last,
    is_plain,
    put_places,
    require_torch,
    window_of,
)
from tilewright.dtypes import DType
from tilewright.engine.signature import argument_form
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.library import LibraryOp
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Op
from tilewright.problems import Direction, Unary

Tensors = Mapping[str, Any]
# PyTorch's libraries for these on a GPU.
_LIBRARIES: dict[type[Op], str] = {Convolution: "cuDNN", Matmul: "cuBLAS"}


def make_tensors(torch: Any, op: Op, device: str, *, exact: bool, seed: int) -> dict[str, Any]:
    """A tensor for each argument of ``op``, which has decided layouts without padding.

    With ``exact`` they are small integers, so that all sums are exact, else reals between -1 and 1.
    (A GPU is faster on zeros than on other data, as it saves power.)
    """
    random = torch.Generator(device=device).manual_seed(seed)
    tensors = {}
    for argument in op.arguments:
        form = argument_form(argument)
        if form.shape != argument.shape:
            raise UnsupportedError(
                f"{argument.name} has blocks", cure="give it a plain tag, such as axb"
            )
        count = form.extent
        if exact:
            flat = torch.randint(-2, 3, (count,), generator=random, device=device)
        else:
            flat = 2 * torch.rand((count,), generator=random, device=device) - 1
        flat = flat.to(getattr(torch, argument.dtype.numpy_name))
        tensors[argument.name] = flat.as_strided(form.shape, form.strides)
    put_places(torch, op, tensors)
    return tensors


def results_of(op: Op) -> tuple[str, ...]:
    """The names of the op's results."""
    return tuple(argument.name for argument in op.arguments if argument.access != "in")


def check_types(op: Op) -> None:
    """Raises `UnsupportedError` for an op on tensors of several types, which PyTorch supports only
    for copies of floats. (Statistics of norms and the like have their own types.)"""
    roles = [role for role, _ in op.types]
    if isinstance(op, LibraryOp):
        roles = [role for role in op.problem.roles if role not in op.problem.indices]
    types = {op.dtype_of(role) for role in roles}
    if len(types) > 1 and not (op.kind == "reorder" and all(type_.is_float for type_ in types)):
        raise UnsupportedError(f"PyTorch's {op.kind} has tensors of one type")


def reference(torch: Any, op: Op, tensors: Tensors) -> dict[str, Any]:
    """The results by name, in float64; integers stay integers, except in products. Raises
    `UnsupportedError`."""
    multiplied = isinstance(op, Convolution | Matmul)
    wide = {
        name: tensor.to(
            torch.float64 if multiplied or tensor.is_floating_point() else tensor.dtype,
            copy=True,
            memory_format=torch.contiguous_format,
        )
        for name, tensor in tensors.items()
    }
    results, names = _results(work_of(torch, op, wide)), results_of(op)
    if len(results) < len(names):
        raise UnsupportedError(f"PyTorch has {len(results)} of the {len(names)} results")
    return dict(zip(names, results, strict=False))


def _results(call: Call) -> Sequence[Any]:
    """The results of a call, one or several."""
    results = call()
    return results if isinstance(results, tuple | list) else (results,)


def peers(torch: Any, op: Op, tensors: Tensors) -> Peers:
    """PyTorch's calls on these tensors. Raises `UnsupportedError` if it has none."""
    check_types(op)
    calls = [work_of(torch, op, tensors)]
    if isinstance(op, Convolution) and op.direction.is_forward:
        calls += fused(torch, op, tensors)
    return {_LIBRARIES.get(type(op), "torch"): calls}


def work_of(torch: Any, op: Op, tensors: Tensors) -> Call:
    """The call that computes ``op``, with a tensor or a tuple of tensors as its result. Raises
    `UnsupportedError`."""
    if isinstance(op, LibraryOp):
        return op.problem.peer(torch, tensors, op.direction)
    attributes = op.attributes
    if attributes.scales or attributes.zero_points or attributes.fpmath is not None:
        raise UnsupportedError("PyTorch's side has no scales, zero points or fpmath")
    if isinstance(op, Convolution | Matmul):
        return contraction_of(torch, op, tensors)
    if attributes.post_ops:
        raise UnsupportedError(f"PyTorch's side has no {op.kind} with post-ops")
    first, dst = next(iter(tensors.values())), tensors["dst"]
    if op.kind == "reorder" or first.dtype is dst.dtype:
        return op.problem.peer(torch, tensors, op.direction)
    arrays = {**tensors, "dst": torch.empty_like(dst, dtype=first.dtype)}
    call = op.problem.peer(torch, arrays, op.direction)
    return lambda: call().to(dst.dtype)


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


def torch_results(op: Op, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """PyTorch's results of ``op`` by name, as numpy's f64 or integers, on arrays of logical shape:
    a second opinion.

    Raises `UnsupportedError` if PyTorch is not installed, or has no equivalent.
    """
    torch = require_torch()
    check_types(op)
    tensors = {
        name: _tensor(torch, array, op.argument(name).dtype) for name, array in arrays.items()
    }
    arguments = [op.argument(name) for name in results_of(op)]
    for argument in arguments:
        memory = torch.zeros(argument.shape, dtype=_type(torch, argument.dtype))
        tensors.setdefault(argument.name, memory)
    try:
        results = _results(work_of(torch, op, tensors))
    except (RuntimeError, NotImplementedError, TypeError) as error:
        # PyTorch's errors for work that it has no kernel for.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UnsupportedError(f"PyTorch says: {reason}") from None
    return {
        argument.name: _array(torch, tensor, argument.shape)
        for argument, tensor in zip(arguments, results, strict=False)
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
