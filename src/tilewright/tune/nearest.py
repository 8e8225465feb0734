"""What rows of kernels that differ in their sizes alone are compared by."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.engine.rows import brief
from tilewright.ir.stmt import Kernel
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents


def form_of(kernel: Kernel, kind: str) -> tuple[str, tuple[int, ...]]:
    """What kernels have in common that differ in their sizes (a key of their ``kind``, the types of
    their arrays, and the dims of their computes), and these sizes."""
    said = [kind, *(array.buffer.dtype.name for array in kernel.arrays)]
    sizes: list[int] = []
    for compute in computes_in(kernel):
        sizes_of = extents(compute)
        said += [compute.name, *sizes_of]
        sizes += sizes_of.values()
    return brief(" ".join(said)), tuple(max(1, n) for n in sizes)


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """How far apart sizes are: along each dim, by how often it doubles."""
    if len(one) != len(other):
        return math.inf
    return math.hypot(*(math.log2(a / b) for a, b in zip(one, other, strict=True)))
