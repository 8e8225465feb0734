"""Transforms that overlap copies and products.

In reading order: `barriers`, `pipeline` (copies ahead of their use) with `products_ahead` (those of
fragments), `multicast` (copies by the workgroups of a cluster for each other), `rounds` and
`specialize_warps` (a subgroup of its own that copies).
"""
