"""Graphs: kernels whose computes are over whole tensors; how front ends make them.

`functions` has scalar functions that the IR has no operator for.
"""
