"""How PyTorch's tensors lie in memory, and the row-major arrays that stand for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from tilewright.dtypes import dtype
from tilewright.frontends.torch.complexes import Complex
from tilewright.frontends.torch.open_sizes import shape_of, size_of
from tilewright.frontends.torch.shapes import has_symbols
from tilewright.tensor.tensor import Builder, Tensor
from tilewright.tensor.views import broadcast_to, reshape, transpose


@dataclass(frozen=True)
class Form:
    """How a tensor lies in memory: its sizes and strides, and the array that is passed for it.

    That array is row-major. ``order`` are the dims of the tensor from the outermost in memory to
    the innermost, without ``repeated`` ones, whose stride is 0: of these, one element is passed.
    One of ``complex`` numbers is passed as their parts, which are its last dim.
    """

    type: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    order: tuple[int, ...]
    repeated: tuple[int, ...]
    complex: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Form:
        """That of a (fake) tensor; of one with gaps in memory, that of a copy without."""
        if tensor.dtype.is_complex:
            return replace(cls.of(torch.view_as_real(tensor.resolve_conj())), complex=True)
        sizes = shape_of(tensor)
        strides = tuple(map(size_of, tensor.stride()))
        if strides == row_major_strides(sizes) or (
            not has_symbols(tensor) and tensor.is_contiguous()
        ):
            return cls(tensor.dtype, sizes, strides, tuple(range(len(sizes))), ())
        repeated = tuple(n for n, s in enumerate(strides) if s == 0 and sizes[n] > 1)
        kept = [n for n in range(len(sizes)) if n not in repeated]
        order = tuple(sorted(kept, key=lambda n: (-strides[n], -sizes[n])))
        step = 1
        for n in reversed(order):
            if sizes[n] != 1 and strides[n] != step and 0 not in sizes:
                return cls.row_major(tensor.dtype, sizes)
            step *= sizes[n]
        return cls(tensor.dtype, sizes, strides, order, repeated)

    @classmethod
    def row_major(cls, type_: torch.dtype, sizes: tuple[int, ...]) -> Form:
        """That of a new tensor of these sizes."""
        return cls(type_, sizes, row_major_strides(sizes), tuple(range(len(sizes))), ())

    @property
    def passed(self) -> tuple[int, ...]:
        """The shape of the array that is passed."""
        return tuple(self.sizes[n] for n in self.order)

    @cached_property
    def is_plain(self) -> bool:
        """Whether the tensor itself is that array."""
        return self.order == tuple(range(len(self.sizes)))

    def array(self, tensor: torch.Tensor) -> torch.Tensor:
        """The array for a tensor: a view of it, or of a copy where it lies otherwise, or is of
        another type than its graph says, as a few results of PyTorch's are."""
        if self.complex:
            tensor = torch.view_as_real(tensor.resolve_conj())
        if tensor.is_neg():
            tensor = tensor.resolve_neg()
        if tensor.dtype != self.type:
            tensor = tensor.to(self.type)
        if tensor.stride() != self.strides and not self._lies_so(tensor):
            tensor = torch.empty_strided(
                [1 if n in self.repeated else s for n, s in enumerate(self.sizes)],
                self.strides,
                dtype=self.type,
            ).copy_(self._once(tensor))
        if self.is_plain:
            return tensor
        return self._once(tensor).permute(*self.order, *self.repeated).reshape(self.passed)

    def _once(self, tensor: torch.Tensor) -> torch.Tensor:
        for n in self.repeated:
            tensor = tensor.narrow(n, 0, 1)
        return tensor

    def _lies_so(self, tensor: torch.Tensor) -> bool:
        return tensor.numel() == 0 or all(
            size == 1 or a == b
            for size, a, b in zip(self.sizes, tensor.stride(), self.strides, strict=True)
        )

    def input(self, builder: Builder, name: str) -> Tensor | Complex:
        """The tensor of the graph that the array is passed for."""
        x = builder.input(name, dtype(self.type), self.passed)
        if not self.is_plain:
            kept = sorted(self.order)
            x = transpose(x, [self.order.index(n) for n in kept])
            x = reshape(x, [1 if n in self.repeated else s for n, s in enumerate(self.sizes)])
            x = broadcast_to(x, self.sizes)
        return Complex.of_pairs(x) if self.complex else x

    def empty(self, builder: Builder) -> Tensor | Complex:
        """The tensor of the graph, where it has no elements."""
        x = builder.splat(0, self.type, self.sizes)
        return Complex.of_pairs(x) if self.complex else x

    def output(self, builder: Builder, name: str, tensor: Tensor | Complex) -> None:
        """Makes ``tensor`` a result, which a row-major array takes."""
        x = tensor.pairs() if isinstance(tensor, Complex) else tensor
        builder.output(name, transpose(x, self.order))

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A new tensor, and the array that takes it."""
        tensor = torch.empty_strided(self.sizes, self.strides, dtype=self.type)
        array = tensor if self.is_plain else tensor.permute(self.order)
        return torch.view_as_complex(tensor) if self.complex else tensor, array


def row_major_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a new tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))
