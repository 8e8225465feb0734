"""Passes over graphs: each takes a kernel and gives one that computes the same, or the same object.

In reading order: `values` (which buffers hold one value, and who makes and reads it), `loaded`
(computes as expressions of what they load), then the passes, `tidy` (canonical form),
`quantized_factors`, `masked_sums` and `integer_products` (products of quantized values),
`fold_constants`, `forward_views`, `rewrite_values` (simple algebra), `share_values` (common
subexpressions), `drop_dead`, `fold_scales` (batch norm into weights), `side_by_side` and
`join_products` (of one factor, as one), `packed_nibbles` (constants of 4 bits), `channels_last`
(where images lie); `pipeline` (their order); and `keep_precision` (roundings that front ends may
leave out).
"""
