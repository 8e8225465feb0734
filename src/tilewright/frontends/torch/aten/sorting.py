"""Sorting, and the first of what is sorted."""

from __future__ import annotations

from tilewright.dtypes import s32, s64
from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.graph.library import library
from tilewright.problems.library import SortProblem, TopKProblem
from tilewright.tensor.elementwise import convert
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import part


def _sorted(at: Place, x: Tensor, problem: SortProblem | TopKProblem) -> tuple[Tensor, Tensor]:
    found = library(at.builder, problem, types={"indices": s32}, src=x)
    return found["dst"], convert(found["indices"], s64)


def _check(x: Tensor) -> None:
    if not x.dtype.is_float and x.dtype.bits > 16 and x.dtype is not s32:
        refuse(f"sorting of {x.dtype} is PyTorch's")
    if not x.rank or not x.elements:
        refuse("sorting of one element, or none, is PyTorch's")


@aten("sort.default")
def sort(at: Place, x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    _check(x)
    order = "sort_descending" if descending else "sort"
    return _sorted(at, x, SortProblem(x.shape, dim % x.rank, algorithm=order))


@aten("sort.stable")
def sort_stable(
    at: Place, x: Tensor, *, stable: bool = True, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    return sort(at, x, dim, descending)


@aten("topk.default")
def topk(
    at: Place, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    _check(x)
    if largest:
        return _sorted(at, x, TopKProblem(x.shape, dim % x.rank, amount=(k,)))
    values, places = sort(at, x, dim)
    return part(values, dim % x.rank, 0, k), part(places, dim % x.rank, 0, k)
