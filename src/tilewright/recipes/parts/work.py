"""What a contraction has to do, whatever its config, and what kernels attain of a machine's peak
figures (`machines.rates`): what a model counts.

The latter are fitted to 1,200 kernels on an H100 (matrix products and convolutions, 2026-11-26), as
are the constants of `workgroup_cost` and of the parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.recipes.roles import Roles

# Of the peak of each: products, shared memory, L2, memory.
PRODUCTS, SHARED, NEAR, MEMORY = 0.92, 1.0, 0.94, 0.92
# Part of L2 in which data waits to be read again.
KEPT = 0.5


@dataclass(frozen=True)
class Operand:
    """A or B: its name in the op's body, the bytes of an element, those of the tensor, the dims
    that it depends on by their roles, and how many elements one access may copy."""

    name: str
    bytes: int
    tensor: int
    dims: tuple[str, ...]
    run: int


@dataclass(frozen=True)
class Work:
    """What has to be done, whatever the config: the dims' sizes and roles, the operands, bytes of
    an element of the sum (``total``) and of the result, the products per core and cycle at best
    (``peak``), and how many tensors the epilogue reads (``read``). Of the products and of a
    workgroup's steps, those that count are the part ``taken``."""

    sizes: dict[str, int]
    parts: Roles
    operands: tuple[Operand, Operand]
    total: int
    result: int
    peak: int
    read: int
    taken: float = 1.0

    @property
    def products(self) -> float:
        return math.prod(self.sizes.values()) * self.taken

    @property
    def results(self) -> int:
        return math.prod(self.sizes[d] for d in self.parts.kept)
