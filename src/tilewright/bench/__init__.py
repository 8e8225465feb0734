"""Benchmarks: what to measure.

- `catalog`: the sets of problems that ship (``sets/``).
"""
