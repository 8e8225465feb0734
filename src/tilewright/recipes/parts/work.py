"""What a contraction has to do, whatever its config: what a model counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.recipes.roles import Roles


@dataclass(frozen=True)
class Operand:
    """A or B: its name in the op's body, the bytes of an element, those of the tensor, the dims
    that it depends on by their roles, and whether it lies contiguous along one of them."""

    name: str
    bytes: int
    tensor: int
    dims: tuple[str, ...]
    runs: bool


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
