"""Elements at places that are loaded: gathers, and updates of a copy.

PyTorch refuses places outside of a tensor, which is checked by a compute beside (`checks`). One in
front of the tensor or after it counts as the nearest that there is, so that no other memory is
touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilewright.dtypes import boolean, s64
from tilewright.frontends.torch.aten.arithmetic import multiply
from tilewright.frontends.torch.aten.promotion import Given, Number
from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.ir.expr import Expr, binary, cast, const, maximum, select
from tilewright.ir.operators import identity
from tilewright.problems.functions import clamped, floored_division
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.indexing import place_in, places_along, take, taken, updated
from tilewright.tensor.places import Shape, axes, axis
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to, common_shape, reshape


def _loaded(index: Tensor) -> Tensor:
    """Places as something that lies in memory, or is cheap to compute."""
    if index.dtype is boolean:
        refuse("how many elements a mask selects depends on data")
    if not index.dtype.is_integer:
        refuse(f"places are {index.dtype}")
    return index


@aten("embedding.default")
def embedding(
    at: Place,
    weight: Tensor,
    index: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    at.check_places(index, 0, weight.shape[0])
    return take(weight, _loaded(index), 0)


@aten("index_select.default")
def index_select(at: Place, x: Tensor, dim: int, index: Tensor) -> Tensor:
    dim %= max(1, x.rank)
    if not x.rank:
        return x
    flat = reshape(_loaded(index), (index.elements,))
    at.check_places(flat, dim, x.shape[dim])
    return take(x, flat, dim)


@aten("gather.default")
def gather(at: Place, x: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Tensor:
    if not x.rank:
        return broadcast_to(x, at.shape)
    return taken(x, at.shape, _along(at, x.shape, dim % x.rank, _loaded(index)))


def _along(at: Place, shape: Shape, dim: int, index: Tensor) -> list[Expr]:
    """The place of each element of ``index``, but for ``dim``, where it says it."""
    at.check_places(index, dim, shape[dim])
    return places_along(index, shape, dim)


def _indexed(at: Place, x: Shape, indices: Sequence[Tensor | None]) -> tuple[list[Expr], Shape]:
    """PyTorch's indexing by tensors: the places in ``x``, and the shape of what is there.

    Tensors are broadcast to one shape, whose dims stand where the first of them does, if all are
    side by side, and else in front.
    """
    all_dims = [*indices, *(None for _ in x[len(indices) :])]
    dims = [n for n, dim in enumerate(all_dims) if dim is not None]
    tensors = [_loaded(dim) for dim in all_dims if dim is not None]
    shape = common_shape(*(tensor.shape for tensor in tensors))
    rank = len(shape)
    first = dims[0] if dims == [*range(dims[0], dims[-1] + 1)] else 0
    others = [n for n in range(len(x)) if n not in dims]
    before = [n for n in others if n < first]
    result = (*(x[n] for n in before), *shape, *(x[n] for n in others[len(before) :]))
    places: list[Expr] = [const(0)] * len(x)
    for number, n in enumerate(others):
        places[n] = axis(number if number < len(before) else number + rank)
    here = [axis(len(before) + n) for n in range(rank)]
    for n, tensor in zip(dims, tensors, strict=True):
        if "unsafe" not in at.op:
            at.check_places(tensor, n, x[n], wraps=True)
        places[n] = place_in(broadcast_to(tensor, shape).at(*here), x[n])
    return places, result


@aten("index.Tensor", "_unsafe_index.Tensor")
def index_op(at: Place, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    if all(index is None for index in indices):
        return x
    places, _ = _indexed(at, x.shape, indices)
    return taken(x, at.shape, places)


@aten("index_put.default", "_unsafe_index_put.default")
def index_put(
    at: Place,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    masks = [index for index in indices if index is not None and index.dtype is boolean]
    if len(masks) == len(indices) == 1 and values.elements == 1 and not accumulate:
        return _filled(x, masks[0], reshape(values, ()))
    places, shape = _indexed(at, x.shape, indices)
    source = broadcast_to(convert(values, x.dtype), shape)
    return updated(x, places, source, "add" if accumulate else None)


def _filled(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """``x`` with ``value`` where ``mask``, of its first dims, holds."""
    builder = x.builder
    chosen = mask.at(*axes(mask.rank))
    return builder.materialize(
        builder.tensor(x.shape, select(chosen, cast(x.dtype, value.value), x.value)),
        builder.named("filled"),
    )


@aten("scatter.src", "scatter.value", "scatter_add.default")
def scatter(at: Place, x: Tensor, dim: int, index: Tensor, source: Tensor | Number) -> Tensor:
    return _scattered(at, x, dim, index, source, "add" if "add" in at.op else None)


@aten("scatter.reduce", "scatter.value_reduce")
def scatter_into(
    at: Place, x: Tensor, dim: int, index: Tensor, source: Tensor | Number, *, reduce: str
) -> Tensor:
    return _scattered(at, x, dim, index, source, {"add": "add", "multiply": "mul"}[reduce])


@aten("scatter_reduce.two")
def scatter_reduce(
    at: Place,
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    include_self: bool = True,
) -> Tensor:
    return _reduced(partial(_scattered, at), x, dim, index, source, reduce, include_self)


_COMBINERS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
# A tensor with others, or a number, in their places, or combined in.
Put = Callable[[Tensor, int, Tensor, Tensor | Number, str | None], Tensor]


def _reduced(
    put: Put,
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    include_self: bool,
) -> Tensor:
    """``x`` where what meets in a place is reduced as PyTorch's name says, with what was there."""
    if reduce != "mean":
        combiner = _COMBINERS[reduce]
        if not include_self:
            x = put(x, dim, index, identity(combiner, x.dtype), None)
        return put(x, dim, index, source, combiner)
    type_, builder = accumulator_for(x.dtype), x.builder
    old = convert(x, type_)
    if not include_self:
        old = put(old, dim, index, 0, None)
    total = put(old, dim, index, convert(source, type_), "add")
    count = put(builder.splat(int(include_self), type_, x.shape), dim, index, 1, "add")

    def mean(s: Expr, n: Expr) -> Expr:
        n = maximum(n, const(1, type_))
        return cast(x.dtype, s / n if type_.is_float else floored_division(s, n))

    return elementwise(mean, total, count, dtype=x.dtype)


def _scattered(
    at: Place, x: Tensor, dim: int, index: Tensor, source: Tensor | Number, combiner: str | None
) -> Tensor:
    if isinstance(source, Tensor):
        values = convert(source, x.dtype).viewed(index.shape, axes(index.rank))
    else:
        values = at.builder.splat(source, x.dtype, index.shape)
    if not x.rank:
        values = values.viewed((1,) * max(1, index.rank), [const(0)] * index.rank)
        return reshape(updated(reshape(x, (1,)), [const(0)], reshape(values, (1,)), combiner), ())
    return updated(x, _along(at, x.shape, dim % x.rank, _loaded(index)), values, combiner)


@aten("index_add.default")
def index_add(
    at: Place, x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Number = 1
) -> Tensor:
    if alpha != 1:
        source = elementwise(lambda s: multiply(s, const(alpha, s.type)), source)
    return _rows_updated(at, x, dim, index, source, "add")


@aten("index_reduce.default")
def index_reduce(
    at: Place,
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    put = partial(_rows_updated, at)
    return _reduced(put, x, dim, index, source, reduce, include_self)


@aten("histc.default")
def histc(at: Place, x: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Tensor:
    if not x.dtype.is_float:
        refuse("a histogram of integers is PyTorch's")
    type_, flat = accumulator_for(x.dtype), reshape(x, (x.elements,))
    counts = at.builder.splat(0, type_, (bins,))
    if not x.elements:
        return convert(counts, x.dtype)
    value = cast(type_, flat.value)
    low: Expr = const(float(min), type_)
    high: Expr = const(float(max), type_)
    if min == max:
        low, high = (combined(convert(flat, type_), (0,), kind).at() for kind in ("min", "max"))
        alone, one = binary("eq", low, high), const(1.0, type_)
        low, high = select(alone, low - one, low), select(alone, high + one, high)
    inside = (low <= value) & (value <= high)
    place = (value - low) * const(float(bins), type_) / (high - low)
    ones = at.builder.tensor(flat.shape, cast(type_, inside))
    where = clamped(cast(s64, place), 0, bins - 1)
    return convert(updated(counts, [where], ones, "add"), x.dtype)


@aten("index_copy.default")
def index_copy(at: Place, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return _rows_updated(at, x, dim, index, source, None)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(at: Place, x: Tensor, dim: int, index: Tensor, value: Given) -> Tensor:
    number = value if isinstance(value, Tensor) else at.builder.splat(value, x.dtype)
    count = index.elements
    shape = [count if n == dim % max(1, x.rank) else s for n, s in enumerate(x.shape or (1,))]
    source = broadcast_to(convert(reshape(number, ()), x.dtype), shape)
    return _rows_updated(at, x, dim, index, source, None, wraps=True)


def _rows_updated(
    at: Place,
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor | Number,
    combiner: str | None,
    wraps: bool = False,
) -> Tensor:
    """``x`` with ``source`` in place of the slices at ``index`` along ``dim``, or combined in."""
    rank = max(1, x.rank)
    rows = reshape(x, x.shape or (1,))
    dim %= rank
    flat = reshape(_loaded(index), (index.elements,))
    at.check_places(flat, dim, rows.shape[dim], wraps)
    places: list[Expr] = list(axes(rank))
    places[dim] = place_in(flat.at(axis(dim)), rows.shape[dim])
    shape = [flat.elements if n == dim else size for n, size in enumerate(rows.shape)]
    if isinstance(source, Tensor):
        values = reshape(source, shape)
    else:
        values = at.builder.splat(source, x.dtype, shape)
    return reshape(updated(rows, places, values, combiner), x.shape)
