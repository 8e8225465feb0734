"""Another target as the peer: the same op, compiled for it, on its own arrays."""

from __future__ import annotations

from tilewright.bench.benchmark import FindPeers, make_arrays
from tilewright.bench.torch_tensors import Peers
from tilewright.engine import compile_kernel
from tilewright.ops.op import Op


def compiled_peers(target: str) -> FindPeers:
    """Peers for `benchmark`: our kernel for ``target``, which may refuse it."""

    def find(op: Op, threads: int) -> Peers:
        kernel = compile_kernel(op, target, threads)
        return {kernel.target.name: [kernel.bind(**make_arrays(kernel))]}

    return find
