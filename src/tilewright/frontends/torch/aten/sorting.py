"""Sorting, what stands at a place of what is sorted, and places in it."""

from __future__ import annotations

from typing import Any

from tilewright.dtypes import boolean, s64
from tilewright.frontends.torch.aten.promotion import Number
from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.graph.library import ordered
from tilewright.ir.expr import Expr, binary, cast, const, maximum, select
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.indexing import place_in, places_along, taken
from tilewright.tensor.nn.ordering import extreme, running
from tilewright.tensor.places import axes
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import iota, part, reshape


def _sorted(x: Tensor, count: int, dim: int, *, descending: bool = False) -> tuple[Tensor, ...]:
    """The first ``count`` of each row, and their places."""
    if not x.elements:
        refuse("sorting of nothing is PyTorch's")
    return ordered(x, dim % x.rank, count, descending=descending)


def _row(x: Tensor) -> Tensor:
    """A single element is a row of one."""
    return x if x.rank else reshape(x, (1,))


@aten("topk.default")
def topk(
    at: Place, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, ...]:
    first = _sorted(_row(x), k, dim, descending=largest)
    return tuple(reshape(part_of, at.shape) for part_of in first)


@aten("sort.default", "sort.stable")
def sort(
    at: Place, x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = True
) -> tuple[Tensor, ...]:
    return topk(at, x, _row(x).shape[dim], dim, descending)


@aten("kthvalue.default")
def kthvalue(
    at: Place, x: Tensor, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Tensor, ...]:
    x = _row(x)
    least = _sorted(x, k, dim)
    return tuple(reshape(part(ranks, dim % x.rank, k - 1, k), at.shape) for ranks in least)


@aten("median.dim", "nanmedian.dim")
def median(at: Place, x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, ...]:
    """The lower one of two in the middle; a NaN, if there is one, unless those are left out."""
    x = _row(x)
    size, dim = x.shape[dim], dim % x.rank
    if not x.dtype.is_float:
        return kthvalue(at, x, (size + 1) // 2, dim)
    results = _sorted(x, size, dim)
    nans = elementwise(lambda s: cast(s64, binary("ne", s, s)), x, dtype=s64, name="nans")

    def place(count: Expr) -> Expr:
        if at.op.startswith("nan"):
            return maximum(size - 1 - count, const(0, s64)) // 2
        return select(count > 0, size - count, const((size - 1) // 2, s64))

    count = combined(nans, [dim], "add")
    return _at(at, results, elementwise(place, count, dtype=s64, name="middle"), dim)


@aten("median.default", "nanmedian.default")
def median_of_all(at: Place, x: Tensor) -> Tensor:
    return median(at, reshape(x, (x.elements,)), 0)[0]


@aten("mode.default")
def mode(at: Place, x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, ...]:
    """The element that is there most often, the least of several."""
    x = _row(x)
    dim %= x.rank
    values, places = _sorted(x, x.shape[dim], dim)
    numbers = iota(x.builder, s64, x.shape, dim)
    before: list[Expr] = [*axes(x.rank)]
    before[dim] = maximum(before[dim] - 1, const(0, s64))
    starts = elementwise(
        lambda s, t, n: select(binary("eq", s, t), const(0, s64), n),
        *(values, taken(values, x.shape, before), numbers),
        dtype=s64,
        name="starts",
    )
    length = elementwise(
        lambda n, start: n - start, numbers, running(starts, dim, "max"), dtype=s64, name="length"
    )
    return _at(at, (values, places), extreme(length, dim)[1], dim)


def _at(at: Place, tensors: tuple[Tensor, ...], place: Tensor, dim: int) -> tuple[Tensor, ...]:
    """What stands at a place of each row along ``dim``."""
    shape = tensors[0].shape
    one = tuple(1 if n == dim else size for n, size in enumerate(shape))
    index = places_along(reshape(place, one), shape, dim)
    return tuple(reshape(taken(tensor, one, index), at.shape) for tensor in tensors)


@aten("searchsorted.Tensor")
def searchsorted(
    at: Place,
    rows: Tensor,
    x: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many elements of the row are less than x (or not greater: ``right``), by halves."""
    if sorter is not None:
        refuse("rows in an order that is given aside are PyTorch's")
    if rows.dtype is boolean or not rows.elements:
        refuse("rows of booleans, or of nothing, are PyTorch's")
    size, right = rows.shape[-1], right or side == "right"
    row = axes(x.rank)[: rows.rank - 1]
    count = x.builder.splat(0, s64, x.shape)
    for step in (1 << bit for bit in reversed(range(size.bit_length()))):

        def moved(n: Expr, element: Expr, value: Expr, step: int = step) -> Expr:
            after = element > value if right else element >= value
            return select((n + step <= size) & ~after, n + step, n)

        elements = taken(rows, x.shape, [*row, place_in(count.value + (step - 1), size)])
        count = elementwise(moved, count, elements, x, dtype=s64, name="count")
    return convert(count, at.dtype)


@aten("bucketize.Tensor")
def bucketize(
    at: Place, x: Tensor, rows: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    return searchsorted(at, rows, x, right=right)


@aten("searchsorted.Scalar")
def searchsorted_number(at: Place, rows: Tensor, x: Number, **options: Any) -> Tensor:
    return searchsorted(at, rows, rows.builder.splat(x, rows.dtype), **options)
