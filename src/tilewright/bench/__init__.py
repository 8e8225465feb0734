"""Benchmarks: of what, against what, how, and their results.

In reading order: `catalog` (the shipped sets of problems, in ``sets/``), `torch_tensors` (PyTorch's
tensors, and indices for gathers and the like), `peer_chain`, `peer_quantized`, `peer_contraction`
and `peer` (the same work in PyTorch), `floor` (the least time that a kernel can take), `benchmark`
(one case, to a row, beside PyTorch or another target), `report` (rows to a table or JSON),
`roofline` (rows to a plot); `torch_work` (an op in PyTorch on arrays of any device, and its results
to compare with) and `gpu` (checked and timed on a GPU). Timing itself is in `measure`.

What rates of a machine are fitted to: `timed_records` (times of scheduled kernels, in a file),
`fitting` (random kernels, by several configs, to such records), `accuracy` (how well predicted
times fit them) and `rates` (costs that do).
"""
