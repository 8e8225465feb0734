"""The library's ops in PyTorch, by their records."""

from __future__ import annotations

from typing import Any

from tilewright.bench.torch_tensors import Peers, put_places, strided
from tilewright.bench.torch_work import check_types
from tilewright.errors import UnsupportedError
from tilewright.ops.library import LibraryOp


def library_peers(torch: Any, op: LibraryOp) -> Peers:
    """The record's peer on random tensors, including results; see `peer.find_peers`."""
    check_types(op)
    tensors = {argument.name: strided(torch, argument) for argument in op.arguments}
    if any(tensor is None for tensor in tensors.values()):
        raise UnsupportedError("PyTorch has no blocked layouts")
    put_places(torch, op, tensors)
    return {"torch": [op.problem.peer(torch, tensors, op.direction)]}
