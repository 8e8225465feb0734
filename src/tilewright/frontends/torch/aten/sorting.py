"""Sorting, and the first of what is sorted."""

from __future__ import annotations

from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.graph.library import ordered
from tilewright.tensor.tensor import Tensor


@aten("topk.default")
def topk(
    at: Place, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    if not x.rank or not x.elements:
        refuse("sorting of one element, or none, is PyTorch's")
    return ordered(x, dim % x.rank, k, descending=largest)


@aten("sort.default", "sort.stable")
def sort(
    at: Place, x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True
) -> tuple[Tensor, Tensor]:
    return topk(at, x, x.shape[dim] if x.rank else 1, dim, descending)
