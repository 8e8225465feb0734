"""The library's ops in PyTorch: what their records say."""

from __future__ import annotations

from typing import Any

from tilewright.bench.torch_tensors import Peers, strided
from tilewright.errors import UnsupportedError
from tilewright.ops.library import LibraryOp


def library_peers(torch: Any, op: LibraryOp) -> Peers:
    """The record's peer on random tensors, results included; see `peer.find_peers`."""
    found = {argument.name: strided(torch, argument) for argument in op.arguments}
    if any(tensor is None for tensor in found.values()):
        raise UnsupportedError("PyTorch has no blocked layouts")
    types = {op.dtype_of(role) for role in op.problem.roles if role not in op.problem.indices}
    if len(types) > 1:
        raise UnsupportedError(f"PyTorch's {op.kind} has tensors of one type")
    return {"torch": [op.problem.peer(torch, found, op.direction)]}
