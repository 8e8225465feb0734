"""Pooling, reductions, elementwise functions and copies in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.bench.torch_tensors import Peers, image, random_tensor, strided, window_of
from tilewright.ops.elementwise import BinaryOp, Eltwise
from tilewright.ops.op import Argument
from tilewright.ops.pooling import Pooling
from tilewright.ops.reduction import Reduction
from tilewright.ops.reorder import Reorder
from tilewright.problems import PoolAlgorithm, Unary


def pooling_peers(torch: Any, op: Pooling) -> Peers:
    p = op.problem
    window = window_of(p)
    one_type = op.dtype_of("src") is op.dtype_of("dst") and op.dtype_of("src").is_float
    if window is None or not op.direction.is_forward or not one_type or op.attributes.post_ops:
        return {}
    kernel = list(p.kernel) if p.ndims > 1 else [1, *p.kernel]
    if any(2 * pad > size for pad, size in zip(window["padding"], kernel, strict=True)):
        return {}
    src = image(torch, op.argument("src"))
    functions = torch.nn.functional
    stride, padding = window["stride"], window["padding"]
    if op.algorithm is PoolAlgorithm.MAX:
        run = functions.max_pool3d if p.ndims == 3 else functions.max_pool2d
        return {"torch": [lambda: run(src, kernel, stride, padding, window["dilation"])]}
    if any(each != 1 for each in window["dilation"]):
        return {}
    run = functions.avg_pool3d if p.ndims == 3 else functions.avg_pool2d
    counted = op.algorithm is PoolAlgorithm.AVERAGE_WITH_PADDING
    return {"torch": [lambda: run(src, kernel, stride, padding, False, counted)]}


def reduction_peers(torch: Any, op: Reduction) -> Peers:
    src = strided(torch, op.argument("src"))
    name = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}.get(op.algorithm.value)
    one_type = op.dtype_of("src") is op.dtype_of("dst") and op.dtype_of("src").is_float
    if src is None or name is None or not one_type or op.attributes.post_ops:
        return {}
    run = getattr(torch, name)
    out = torch.empty(op.problem.dst_shape, dtype=src.dtype)
    dims = list(op.problem.reduced_dims)
    return {"torch": [lambda: run(src, dims, True, out=out)]}


_Step = Callable[[Any, Any], Any]


def elementwise_peers(torch: Any, op: Eltwise | BinaryOp) -> Peers:
    """A chain of calls, each into the same output."""
    types = {type_ for _, type_ in op.types}
    unary = [post_op for post_op in op.attributes.post_ops if isinstance(post_op, Unary)]
    tensors = [strided(torch, a) for a in op.arguments if a.access == "in"]
    out = strided(torch, op.argument("dst"))
    if len(types) != 1 or len(unary) != len(op.attributes.post_ops) or out is None:
        return {}
    if any(tensor is None for tensor in tensors):
        return {}
    chain = [op.function, *unary] if isinstance(op, Eltwise) else unary
    found = [_step(torch, each) for each in chain]
    steps = [step for step in found if step is not None]
    if len(steps) != len(found):
        return {}
    first = tensors[0]
    binary = getattr(torch, op.function, None) if isinstance(op, BinaryOp) else None
    if isinstance(op, BinaryOp) and (binary is None or op.function in ("max", "min")):
        return {}

    def run() -> Any:
        value = first
        if binary is not None:
            value = binary(first, tensors[1], out=out)
        for step in steps:
            value = step(value, out)
        return value

    return {"torch": [run]}


def _step(torch: Any, function: Unary) -> _Step | None:
    """A function that writes to its second argument; None where PyTorch has none such."""
    alpha, beta = function.alpha, function.beta
    if function.scale != 1:
        return None
    match function.function:
        case "relu" if alpha == 0:
            return lambda x, out: torch.clamp_min(x, 0, out=out)
        case "linear":
            return lambda x, out: torch.mul(x, alpha, out=out).add_(beta)
        case "clip" | "clip_v2":
            return lambda x, out: torch.clamp(x, alpha, beta, out=out)
        case "gelu_erf":
            return lambda x, out: torch._C._nn.gelu(x, out=out)
        case "gelu_tanh":
            return lambda x, out: torch._C._nn.gelu(x, approximate="tanh", out=out)
        case "logistic":
            return lambda x, out: torch.sigmoid(x, out=out)
        case "abs" | "exp" | "log" | "sqrt" | "square" | "tanh" | "round":
            run = getattr(torch, function.function)
            return lambda x, out: run(x, out=out)
    return None


def reorder_peers(torch: Any, op: Reorder) -> Peers:
    """A copy between two views of which one splits dims as the other's blocks do."""
    src, dst = op.argument("src"), op.argument("dst")
    if op.attributes.post_ops:
        return {}
    for blocked, plain in ((dst, src), (src, dst)):
        flat = strided(torch, plain)
        split = _split(torch, blocked)
        if flat is None or split is None:
            continue
        tensor, sizes = split
        view = flat.view(sizes)
        source, target = (view, tensor) if plain is src else (tensor, view)
        return {"torch": [partial(target.copy_, source)]}
    return {}


def _split(torch: Any, argument: Argument) -> tuple[Any, list[int]] | None:
    """A tensor with ``argument``'s blocks, those of a dim side by side; None where it is padded."""
    layout = argument.layout
    if layout.padded_shape(len(argument.shape)) != argument.shape:
        return None
    flat = random_tensor(torch, (layout.extent,), argument.dtype)
    blocks = layout.blocks
    whole = flat.as_strided([b.size for b in blocks], [b.stride for b in blocks])
    order = sorted(range(len(blocks)), key=lambda position: (blocks[position].dim, position))
    return whole.permute(order), [blocks[position].size for position in order]
