"""The work of an op in PyTorch, on the very arrays that our kernel gets, on whatever device.

Each is written once: as the peer in the op's types, and as the reference in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.bench.torch_tensors import Call, Peers, channels_last, is_plain, window_of
from tilewright.engine.signature import argument_form
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Op
from tilewright.problems import Direction, Unary

Tensors = Mapping[str, Any]


def make_tensors(torch: Any, op: Op, device: str, *, exact: bool, seed: int) -> dict[str, Any]:
    """A tensor for each argument of ``op``, whose layouts are decided and without padding.

    With ``exact`` they are small integers, so that all sums are exact, or else reals between -1
    and 1. (On zeros a GPU is faster than on any data: it saves power.)
    """
    random = torch.Generator(device=device).manual_seed(seed)
    found = {}
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
        found[argument.name] = flat.as_strided(form.shape, form.strides)
    return found


def result_of(op: Op) -> str:
    """The op's one result. Raises `UnsupportedError` if there are several."""
    results = [argument.name for argument in op.arguments if argument.access != "in"]
    if len(results) > 1:
        raise UnsupportedError("PyTorch's side has one result", cure="choose BWD_W, without bias")
    return results[0]


def reference(torch: Any, op: Op, tensors: Tensors) -> Any:
    """The result in float64, of a contraction and what follows it."""
    wide = {name: tensor.double().contiguous() for name, tensor in tensors.items()}
    return work_of(torch, op, wide)()


def peers(torch: Any, op: Op, tensors: Tensors) -> Peers:
    """The ways that PyTorch has, on these tensors."""
    name = "cuDNN" if isinstance(op, Convolution) else "cuBLAS"
    calls = [work_of(torch, op, tensors)]
    if isinstance(op, Convolution) and op.direction.is_forward:
        calls += _fused(torch, op, tensors)
    return {name: calls}


def work_of(torch: Any, op: Op, tensors: Tensors) -> Call:
    """The call that computes a contraction and what follows it. Raises `UnsupportedError`."""
    match op:
        case Convolution() if op.direction.is_forward:
            return _forward(torch, op, tensors)
        case Convolution():
            return _backward(torch, op, tensors)
        case Matmul():
            src, weights, dst = (tensors[name] for name in ("src", "weights", "dst"))
            if op.attributes.post_ops or op.attributes.bias is not None:
                raise UnsupportedError("PyTorch's side has no matmul with an epilogue")
            return lambda: torch.matmul(src, weights, out=dst)
    raise UnsupportedError(f"PyTorch's side has no {op.kind}")


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
        made = torch.convolution(
            src, weights, bias, stride, padding, dilation, False, zeros, groups
        )
        return torch.relu_(made) if relu else made

    return run


def _fused(torch: Any, op: Convolution, tensors: Tensors) -> list[Call]:
    """cuDNN's convolution with bias and relu in one, which only a GPU has."""
    if not (_relu(op) and tensors["src"].is_cuda):
        return []
    src, weights, bias = tensors["src"], _weights(torch, op, tensors), tensors.get("bias")
    stride, padding, dilation, groups = _window(op)
    return [
        lambda: torch.cudnn_convolution_relu(src, weights, bias, stride, padding, dilation, groups)
    ]


def _backward(torch: Any, op: Convolution, tensors: Tensors) -> Call:
    """The gradient by data or by weights. (Of the other tensor only the shape counts.)"""
    src, dst, weights = tensors["src"], tensors["dst"], _weights(torch, op, tensors)
    stride, padding, dilation, groups = _window(op)
    by_data, zeros = op.direction is Direction.BWD_D, [0] * len(stride)
    if _relu(op) or op.attributes.bias is not None:
        raise UnsupportedError("PyTorch's side has no epilogue of a gradient")
    shape, wanted = tensors["weights"].shape, [by_data, not by_data, False]

    def run() -> Any:
        by_src, by_weights, _ = torch.ops.aten.convolution_backward(
            dst, src, weights, None, stride, padding, dilation, False, zeros, groups, wanted
        )
        return by_src if by_data else by_weights.reshape(shape)

    return run
