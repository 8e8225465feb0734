"""Benchmarks: of what, against what, how, and their results.

In reading order: `catalog` (the shipped sets of problems, in ``sets/``), `places` (indices for
gathers and the like), `torch_tensors`, `peer_chain`, `peer_quantized`, `peer_contraction`,
`peer_problems` and `peer` (the same work in PyTorch), `floor` (the least time
that a kernel can take), `benchmark` (one case, to a row), `peer_compiled` (the same work by another
target), `report` (rows to a table or JSON), `roofline` (rows to a plot); `torch_contraction`,
`torch_work` (an op in PyTorch on arrays of any device), `torch_results` (its results, to compare
with) and `gpu` (checked and timed on a GPU). Timing itself is in `measure`.
"""
