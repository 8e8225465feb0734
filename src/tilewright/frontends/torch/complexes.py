"""Complex tensors: a real and an imaginary one, which PyTorch has side by side in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tilewright.dtypes import DType
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import index_in_dim, stack

PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The types of the parts of complex numbers."""


@dataclass(frozen=True)
class Complex:
    """A complex tensor, whose parts have one shape and type."""

    real: Tensor
    imaginary: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dim."""
        return self.real.shape

    @property
    def dtype(self) -> DType:
        """The type of the parts."""
        return self.real.dtype

    @classmethod
    def of_pairs(cls, x: Tensor) -> Complex:
        """That whose parts lie along the last dim of ``x``."""
        real, imaginary = (index_in_dim(x, x.rank - 1, n) for n in range(2))
        return cls(real, imaginary)

    def pairs(self) -> Tensor:
        """Both parts along a new last dim."""
        return stack([self.real, self.imaginary], self.real.rank)
