"""Pooling, reductions, elementwise functions and copies in PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.bench.peer_chain import chained, steps_of, unary_function
from tilewright.bench.torch_tensors import Peers, image, random_tensor, strided, window_of
from tilewright.errors import UnsupportedError
from tilewright.ops.elementwise import BinaryOp, Eltwise
from tilewright.ops.op import Argument, Op
from tilewright.ops.pooling import Pooling
from tilewright.ops.reduction import Reduction
from tilewright.ops.reorder import Reorder
from tilewright.problems import BINARY_RECORDS

_BLOCKED = "PyTorch has no blocked layouts"


def pooling_peers(torch: Any, op: Pooling) -> Peers:
    """PyTorch's pooling; see `peer.find_peers`."""
    p = op.problem
    window = window_of(p)
    if window is None:
        raise UnsupportedError("PyTorch pads both sides of a dim alike")
    if not op.direction.is_forward:
        raise UnsupportedError("PyTorch's side has no gradient of pooling")
    _check_plain(op)
    kernel = list(p.kernel) if p.ndims > 1 else [1, *p.kernel]
    if any(2 * pad > size for pad, size in zip(window["padding"], kernel, strict=True)):
        raise UnsupportedError("PyTorch pads pooling by half a window at most")
    src = image(torch, op.argument("src"))
    functions = torch.nn.functional
    stride, padding = window["stride"], window["padding"]
    if p.algorithm == "max":
        run = functions.max_pool3d if p.ndims == 3 else functions.max_pool2d
        return {"torch": [lambda: run(src, kernel, stride, padding, window["dilation"])]}
    if any(dilation != 1 for dilation in window["dilation"]):
        raise UnsupportedError("PyTorch's average pooling has no dilation")
    run = functions.avg_pool3d if p.ndims == 3 else functions.avg_pool2d
    counted = p.algorithm == "avg_p"
    return {"torch": [lambda: run(src, kernel, stride, padding, False, counted)]}


def _check_plain(op: Op) -> None:
    """Raises `UnsupportedError` for integers, results of another type, and post-ops."""
    types = {type_ for _, type_ in op.types}
    if len(types) != 1 or not all(type_.is_float for type_ in types):
        raise UnsupportedError(f"PyTorch's {op.kind} has floats of one type")
    if op.attributes.post_ops:
        raise UnsupportedError(f"PyTorch's side has no {op.kind} with post-ops")


def reduction_peers(torch: Any, op: Reduction) -> Peers:
    """PyTorch's reduction; see `peer.find_peers`."""
    src = strided(torch, op.argument("src"))
    name = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin"}.get(op.problem.algorithm)
    if name is None:
        raise UnsupportedError(f"PyTorch's side has no reduction {op.problem.algorithm}")
    if src is None:
        raise UnsupportedError(_BLOCKED)
    _check_plain(op)
    run = getattr(torch, name)
    out = torch.empty(op.problem.dst_shape, dtype=src.dtype)
    dims = list(op.problem.reduced_dims)
    return {"torch": [lambda: run(src, dims, True, out=out)]}


def elementwise_peers(torch: Any, op: Eltwise | BinaryOp) -> Peers:
    """A chain of calls, each into the same output."""
    tensors = [strided(torch, op.argument(tensor.name)) for tensor in op.tensors]
    if any(tensor is None for tensor in tensors):
        raise UnsupportedError(_BLOCKED)
    if len({type_ for _, type_ in op.types}) != 1:
        raise UnsupportedError("PyTorch's functions of an element have results of its type")
    first, out = tensors[0], tensors[-1]
    steps = steps_of(torch, op, out)
    if isinstance(op, Eltwise):
        function = unary_function(torch, op.problem.function)
        if function is None:
            raise UnsupportedError(f"PyTorch has no {op.problem.algorithm}")
        return {"torch": [chained(lambda: function(first, out), steps)]}
    binary = getattr(torch, BINARY_RECORDS[op.problem.algorithm].peer)
    return {"torch": [chained(lambda: binary(first, tensors[1], out=out), steps)]}


def reorder_peers(torch: Any, op: Reorder) -> Peers:
    """A copy between a blocked array and a plain one, whose view has dims split into blocks."""
    src, dst = op.argument("src"), op.argument("dst")
    if op.attributes.post_ops:
        raise UnsupportedError("PyTorch's side has no copy with post-ops")
    for blocked, plain in ((dst, src), (src, dst)):
        flat = strided(torch, plain)
        split = _split(torch, blocked)
        if flat is None or split is None:
            continue
        tensor, sizes = split
        view = flat.view(sizes)
        source, target = (view, tensor) if plain is src else (tensor, view)
        return {"torch": [partial(target.copy_, source)]}
    raise UnsupportedError("PyTorch has no blocks that are padded")


def _split(torch: Any, argument: Argument) -> tuple[Any, list[int]] | None:
    """A tensor with ``argument``'s blocks, those of a dim side by side; None if it is padded."""
    layout = argument.layout
    if layout.padded_shape(len(argument.shape)) != argument.shape:
        return None
    flat = random_tensor(torch, (layout.extent,), argument.dtype)
    blocks = layout.blocks
    whole = flat.as_strided([b.size for b in blocks], [b.stride for b in blocks])
    order = sorted(range(len(blocks)), key=lambda position: (blocks[position].dim, position))
    return whole.permute(order), [blocks[position].size for position in order]
