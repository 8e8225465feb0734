"""Transforms of a compute's dims: `fuse_dims`, `split_dim` (the inverse; by `phases` of strides,
whose points take the same taps), `pad` (longer dims), `unit_dims` (dims of extent 1).
"""
