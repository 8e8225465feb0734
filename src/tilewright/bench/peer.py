"""The same work in PyTorch, which computes convolutions and matmuls with oneDNN.

Each side gets its best conditions: channels-last activations unless the case asks for plain ones,
prepacked weights, and a preallocated output if PyTorch's function takes one. If there are several
ways to do the same, all are given; the fastest counts. Work that no library does in one call is a
chain of calls, as users write it.

PyTorch is optional: without it, and for ops that it lacks, there is no peer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.bench.peer_chain import chained, steps_of
from tilewright.bench.peer_contraction import convolution_peers, matmul_peers
from tilewright.bench.peer_quantized import check_no_quantization
from tilewright.bench.torch_tensors import (
    Peers,
    image,
    put_places,
    random_tensor,
    require_torch,
    strided,
)
from tilewright.bench.torch_work import check_types
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.foundation import FoundationOp
from tilewright.ops.library import LibraryOp
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Argument, Op


def find_peers(op: Op, threads: int) -> Peers:
    """The calls to compare ``op`` (with decided layouts) with. Raises `UnsupportedError` with the
    reason if there are none."""
    torch = require_torch()
    torch.set_num_threads(threads)
    match op:
        case Convolution():
            return convolution_peers(torch, op)
        case Matmul():
            return matmul_peers(torch, op)
        case FoundationOp() | LibraryOp():
            return _problem_peers(torch, op)
    raise UnsupportedError(f"PyTorch's side has no {op.kind}")


def no_peers(op: Op, threads: int) -> Peers:
    """No peers."""
    return {}


def _problem_peers(torch: Any, op: FoundationOp | LibraryOp) -> Peers:
    """The problem's peer on random tensors, including results; see `find_peers`."""
    check_no_quantization(op)
    if op.attributes.post_ops and op.kind not in ("eltwise", "binary"):
        raise UnsupportedError(f"PyTorch's side has no {op.kind} with post-ops")
    if op.kind != "reorder":
        check_types(op)
    tensors = _tensors(torch, op)
    put_places(torch, op, tensors)
    call = op.problem.peer(torch, tensors, op.direction)
    return {"torch": [chained(call, steps_of(torch, op, tensors.get("dst")))]}


def _tensors(torch: Any, op: Op) -> Mapping[str, Any]:
    if op.kind == "pool":
        src = op.argument("src")
        return {"src": image(torch, src).view(src.shape)}
    if op.kind == "reorder":
        return _reordered(torch, op)
    tensors = {tensor.name: strided(torch, op.argument(tensor.name)) for tensor in op.tensors}
    if any(tensor is None for tensor in tensors.values()):
        raise UnsupportedError("PyTorch has no blocked layouts")
    return tensors


def _reordered(torch: Any, op: Op) -> Mapping[str, Any]:
    """A blocked array and a plain one, whose view has dims split into blocks."""
    for blocked, plain in (("dst", "src"), ("src", "dst")):
        flat = strided(torch, op.argument(plain))
        split = _split(torch, op.argument(blocked))
        if flat is not None and split is not None:
            return {blocked: split[0], plain: flat.view(split[1])}
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
