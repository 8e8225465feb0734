"""The same work in PyTorch, which computes convolutions and matmuls with oneDNN.

Each side gets its best conditions: channels-last activations unless the case asks for plain ones,
prepacked weights, and a preallocated output if PyTorch's function takes one. If there are several
ways to do the same, all are given; the fastest counts. Work that no library does in one call is a
chain of calls, as users write it.

PyTorch is optional: without it, and for ops that it lacks, there is no peer.
"""

from __future__ import annotations

from tilewright.bench.peer_contraction import convolution_peers, matmul_peers
from tilewright.bench.peer_problems import problem_peers
from tilewright.bench.torch_tensors import Peers, load_torch
from tilewright.errors import UnsupportedError
from tilewright.ops.convolution import Convolution
from tilewright.ops.foundation import FoundationOp
from tilewright.ops.library import LibraryOp
from tilewright.ops.matmul import Matmul
from tilewright.ops.op import Op


def find_peers(op: Op, threads: int) -> Peers:
    """The calls to compare ``op`` (with decided layouts) with. Raises `UnsupportedError` with the
    reason if there are none."""
    torch = load_torch()
    if torch is None:
        raise UnsupportedError("PyTorch is not installed", cure="pip install torch")
    torch.set_num_threads(threads)
    match op:
        case Convolution():
            return convolution_peers(torch, op)
        case Matmul():
            return matmul_peers(torch, op)
        case FoundationOp() | LibraryOp():
            return problem_peers(torch, op)
    raise UnsupportedError(f"PyTorch's side has no {op.kind}")


def no_peers(op: Op, threads: int) -> Peers:
    """No peers."""
    return {}
