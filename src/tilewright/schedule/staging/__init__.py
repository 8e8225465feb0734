"""Transforms of where values lie.

In reading order: `copiers` (what copies: threads, or a copy unit), `stage` (operands in another
memory) with `staging` and `work_items`, `stage_result` (results) with `accumulation`, `finished`,
`results`, `results_by_threads` and `results_by_unit`, `hoist` (packing as a kernel of its own),
`fill_once` (packing ahead of loops that repeat it), `lay_out` (order, space, type or size of a
buffer), `read_words` (several small elements as one), `prefetch` (what later iterations read),
`store_non_temporally` (past the caches).
"""
