"""Sorting, and the first of what is sorted."""

from __future__ import annotations

from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.graph.library import ordered
from tilewright.problems.library import SortProblem
from tilewright.tensor.tensor import Tensor


def _ordered(
    x: Tensor, dim: int, descending: bool, count: int | None = None
) -> tuple[Tensor, Tensor]:
    if x.dtype not in SortProblem.data_types:
        refuse(f"sorting of {x.dtype} is PyTorch's")
    if not x.rank or not x.elements:
        refuse("sorting of one element, or none, is PyTorch's")
    dim %= x.rank
    return ordered(x, dim, x.shape[dim] if count is None else count, descending=descending)


@aten("sort.default")
def sort(at: Place, x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return _ordered(x, dim, descending)


@aten("sort.stable")
def sort_stable(
    at: Place, x: Tensor, *, stable: bool = True, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    return _ordered(x, dim, descending)


@aten("topk.default")
def topk(
    at: Place, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    return _ordered(x, dim, largest, k)
