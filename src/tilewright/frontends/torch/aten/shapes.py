"""Views: other shapes of the same elements. None of them computes anything."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from tilewright.frontends.torch.forms import Form
from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.frontends.torch.views import is_view
from tilewright.ir.expr import Expr, StandIn, const
from tilewright.tensor import views
from tilewright.tensor.elementwise import convert
from tilewright.tensor.indexing import updated
from tilewright.tensor.places import axes, axis
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import (
    broadcast_to,
    concatenate,
    extended,
    index_in_dim,
    pad,
    part,
    reshape,
    reverse,
    tile,
    transpose,
)


@aten(
    "view.default",
    "view_copy.default",
    "_unsafe_view.default",
    "reshape.default",
    "unsqueeze.default",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
)
def other_shape(at: Place, x: Tensor, *_: object) -> Tensor:
    return reshape(x, at.shape)


@aten("expand.default")
def expand(at: Place, x: Tensor, size: Sequence[int], implicit: bool = False) -> Tensor:
    return broadcast_to(x, at.shape)


@aten("permute.default")
def permute(at: Place, x: Tensor, dims: Sequence[int]) -> Tensor:
    return transpose(x, [dim % x.rank for dim in dims])


@aten("t.default")
def t(at: Place, x: Tensor) -> Tensor:
    return transpose(x, range(x.rank)[::-1])


@aten("transpose.int")
def transposed(at: Place, x: Tensor, a: int, b: int) -> Tensor:
    order = list(range(x.rank))
    if order:
        order[a], order[b] = order[b], order[a]
    return transpose(x, order)


def _bounds(size: int, start: int | None, stop: int | None) -> tuple[int, int]:
    if not any(isinstance(n, StandIn) for n in (size, start, stop)):
        first, last, _ = slice(start, stop).indices(size)
        return first, max(first, last)
    first, last = 0 if start is None else start, size if stop is None else stop
    first, last = (max(0, n + size) if n < 0 else min(n, size) for n in (first, last))
    return first, max(first, last)


@aten("slice.Tensor")
def sliced(
    at: Place,
    x: Tensor,
    dim: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> Tensor:
    dim %= x.rank
    return part(x, dim, *_bounds(x.shape[dim], start, stop), step)


@aten("select.int")
def selected(at: Place, x: Tensor, dim: int, index: int) -> Tensor:
    dim %= x.rank
    return index_in_dim(x, dim, index % x.shape[dim])


@aten("split_with_sizes.default")
def split(at: Place, x: Tensor, sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    return views.split(x, dim % x.rank, sizes)


@aten("split.Tensor")
def split_evenly(at: Place, x: Tensor, size: int, dim: int = 0) -> tuple[Tensor, ...]:
    length = x.shape[dim % x.rank]
    return split(at, x, [min(size, length - n) for n in range(0, length, size)], dim)


@aten("unbind.int", "unbind_copy.int")
def unbind(at: Place, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(selected(at, x, dim, n) for n in range(x.shape[dim % x.rank]))


@aten("cat.default")
def cat(at: Place, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    rank = len(at.shape)
    # Empty tensors of one dim are left out, whatever the others look like.
    kept = [convert(x, at.dtype) for x in tensors if x.shape != (0,) or rank == 1]
    kept = [x for x in kept if x.elements] or kept[:1]
    return concatenate(kept, dim % rank)


@aten("stack.default")
def stack(at: Place, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return views.stack([convert(x, at.dtype) for x in tensors], dim % len(at.shape))


@aten("flip.default")
def flip(at: Place, x: Tensor, dims: Sequence[int]) -> Tensor:
    return reverse(x, [dim % x.rank for dim in dims])


def _sides(x: Tensor, padding: Sequence[int]) -> tuple[list[int], list[int]]:
    """Padding before and after each dim, which PyTorch lists from the last dim on."""
    low, high = [0] * x.rank, [0] * x.rank
    for n in range(len(padding) // 2):
        low[-1 - n], high[-1 - n] = padding[2 * n], padding[2 * n + 1]
    return low, high


@aten("constant_pad_nd.default")
def constant_pad(at: Place, x: Tensor, padding: Sequence[int], value: float = 0) -> Tensor:
    return pad(x, at.builder.splat(value, x.dtype), *_sides(x, padding))


@aten("repeat.default")
def repeat(at: Place, x: Tensor, repeats: Sequence[int]) -> Tensor:
    return tile(x, at.shape)


def _diagonal(rank: int, offset: int, dim1: int, dim2: int) -> list[Expr]:
    """Where an element of a diagonal lies in a tensor of ``rank`` dims; its last dim runs along
    it."""
    others, along = iter(range(rank - 1)), axis(rank - 2)
    places = {dim1 % rank: along + max(-offset, 0), dim2 % rank: along + max(offset, 0)}
    return [places[n] if n in places else axis(next(others)) for n in range(rank)]


@aten("diagonal.default")
def diagonal(at: Place, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    if not x.elements or 0 in at.shape:
        return at.builder.tensor(at.shape, const(0, x.dtype))
    return x.viewed(at.shape, _diagonal(x.rank, offset, dim1, dim2))


@aten("diagonal_scatter.default")
def diagonal_scatter(
    at: Place, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    if not source.elements:
        return x
    return updated(x, _diagonal(x.rank, offset, dim1, dim2), source, None)


@aten("unfold.default", "unfold_copy.default")
def unfold(at: Place, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if not x.rank or not x.elements or 0 in at.shape:
        return broadcast_to(x, at.shape) if x.elements else at.builder.splat(0, x.dtype, at.shape)
    index: list[Expr] = [*axes(x.rank)]
    index[dim % x.rank] = axis(dim % x.rank) * step + axis(x.rank)
    return x.viewed(at.shape, index)


@aten(
    *(f"reflection_pad{count}d.default" for count in (1, 2, 3)),
    *(f"replication_pad{count}d.default" for count in (1, 2, 3)),
)
def extend(at: Place, x: Tensor, padding: Sequence[int]) -> Tensor:
    mode = "reflect" if at.op.startswith("reflection") else "edge"
    return extended(x, *_sides(x, padding), mode)


@aten("select_scatter.default")
def select_scatter(at: Place, x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    dim %= x.rank
    index %= x.shape[dim]
    rows = reshape(source, (*source.shape[:dim], 1, *source.shape[dim:]))
    return _with_part(at, x, rows, dim, index, index + 1, 1)


@aten("slice_scatter.default")
def slice_scatter(
    at: Place,
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> Tensor:
    dim %= x.rank
    first, last = _bounds(x.shape[dim], start, stop)
    return _with_part(at, x, source, dim, first, last, step)


def _with_part(
    at: Place, x: Tensor, source: Tensor, dim: int, start: int, stop: int, step: int
) -> Tensor:
    """``x`` with ``source`` from ``start`` to ``stop`` by ``step`` along ``dim``."""
    source = convert(source, x.dtype)
    place = axis(dim) - start
    conditions = (axis(dim) >= start) & (axis(dim) < stop)
    if step > 1:
        conditions = conditions & (place % step).__eq__(0)
    if not source.elements:
        return x
    index = [place // step if n == dim else axis(n) for n in range(x.rank)]
    if start == 0 and stop >= x.shape[dim] and step == 1:
        return source
    return source.within(x.shape, index, conditions, x.value)


@aten("as_strided.default")
def as_strided(
    at: Place, x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Tensor:
    source = at.node.args[0] if at.node is not None else None
    if not isinstance(source, Node):
        refuse("nothing says how the argument of a view by strides lies in memory")
    if offset is not None and (source.op == "placeholder" or is_view(source)):
        refuse("a view by strides from a place in memory depends on what lies around its argument")
    tensor = source.meta["val"]
    form = Form.of(tensor)
    if form.strides != tuple(tensor.stride()) or form.repeated:
        refuse("a view by strides of elements that do not lie side by side is PyTorch's")
    first = 0 if offset is None else offset - tensor.storage_offset()
    reach = first + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in at.shape and not (first >= 0 and reach < tensor.numel()):
        refuse("a view by strides reads memory that is not its argument's")
    flat = reshape(transpose(x, form.order), (tensor.numel(),))
    place: Expr = const(first)
    for n, step in enumerate(stride):
        place = place + axis(n) * step
    return flat.viewed(at.shape, [place])


@aten("roll.default")
def roll(at: Place, x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        refuse("a roll of all elements is PyTorch's")
    index: list[Expr] = list(map(axis, range(x.rank)))
    for shift, dim in zip(shifts, dims, strict=True):
        n = dim % x.rank
        if x.shape[n]:
            index[n] = (index[n] - shift) % x.shape[n]
    return x.viewed(at.shape, index)
