"""Transforms of what a compute reads and does: `inline` (a producer in its reader), `precompute`
(the inverse), `name_operands` (loads as operands), `tensorize` (an instruction for a compute),
`fragments` (matrices that the lanes of a subgroup hold together).
"""
