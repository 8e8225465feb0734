"""Structured ops: everything a user can ask for, as naive kernels of one kind of statement.

In reading order: `domain` (dims, sliding windows as index expressions), `attributes` and
`elementwise_functions` (what modifies a result), `epilogue` (the compute that does it), `op` and
`attribute_arguments` (what all ops share), `contraction` (``C = epilogue(sum of A * B)``); then one
constructor each: `convolution` (three directions as three views), `matmul`, `pooling`, `reduction`,
`elementwise`, `reorder`; and `epilogue_elements` and `arguments`, what users write.
`library` makes ops of the records in `problems.library`; `softmax`, `normalization`, `statistics`,
`moves`, `places`, `images` and `attention` are what users write of these.
"""
