"""Transforms that overlap copies and products.

In reading order: `barriers`, `pipeline` (copies ahead of their use), `load_ahead` (fragments for
the next product), `multicast` (copies by the workgroups
of a cluster for each other), `rounds` and `specialize_warps` (a subgroup of its own that copies).
"""
