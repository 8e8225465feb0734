"""Ops that move elements: views, pads, gathers and scatters."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tilewright.dtypes import s64
from tilewright.frontends.onnx.table import Place, axis_of, op, refuse
from tilewright.frontends.onnx.values import type_of
from tilewright.ir.expr import Expr, binary, cast, const, select
from tilewright.problems.functions import clamped
from tilewright.tensor.indexing import place_in, places_along, take, taken, updated
from tilewright.tensor.known import is_open
from tilewright.tensor.nn.channels import depth_to_space, space_to_depth
from tilewright.tensor.places import axes, axis
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import (
    broadcast_to,
    common_shape,
    concatenate,
    extended,
    pad,
    reshape,
    reverse,
    slice_,
    split,
    tile,
    transpose,
)


def sized(at: Place, number: int) -> tuple[int, ...]:
    """The shape of the result: as the model says it, else from the contents of an input."""
    said = at.said_shape(number)
    return tuple(at.integers(number)) if said is None else said


@op("Reshape")
def reshape_op(at: Place, x: Tensor, shape: Tensor | None = None) -> Tensor:
    if "shape" in at.attributes:
        wanted: tuple[int, ...] = tuple(at.attributes["shape"])
    else:
        said = at.said_shape(1)
        if said is not None:
            return reshape(x, said)
        wanted = tuple(at.integers(1))
    if not at.attribute("allowzero", 0):
        wanted = tuple(x.shape[n] if size == 0 else size for n, size in enumerate(wanted))
    if -1 in wanted:
        rest = prod(size for size in wanted if size != -1)
        wanted = tuple(x.elements // max(1, rest) if size == -1 else size for size in wanted)
    return reshape(x, wanted)


@op("Flatten")
def flatten(at: Place, x: Tensor) -> Tensor:
    n = at.attribute("axis", 1)
    n = n + x.rank if n < 0 else n
    return reshape(x, (prod(x.shape[:n]), prod(x.shape[n:])))


@op("Squeeze")
def squeeze(at: Place, x: Tensor, values: Tensor | None = None) -> Tensor:
    dims = at.whole("axes", 1)
    gone = (
        [axis_of(n, x.rank) for n in dims]
        if dims is not None
        else [n for n, size in enumerate(x.shape) if size == 1]
    )
    return reshape(x, [size for n, size in enumerate(x.shape) if n not in gone])


@op("Unsqueeze")
def unsqueeze(at: Place, x: Tensor, values: Tensor | None = None) -> Tensor:
    dims = at.whole("axes", 1) or []
    rank = x.rank + len(dims)
    new = {axis_of(n, rank) for n in dims}
    left = iter(x.shape)
    return reshape(x, [1 if n in new else next(left) for n in range(rank)])


@op("Transpose")
def transpose_op(at: Place, x: Tensor) -> Tensor:
    return transpose(x, at.attribute("perm", range(x.rank)[::-1]))


@op("Expand")
def expand(at: Place, x: Tensor, shape: Tensor) -> Tensor:
    return broadcast_to(x, common_shape(x.shape, sized(at, 1)))


@op("Tile")
def tile_op(at: Place, x: Tensor, repeats: Tensor) -> Tensor:
    shape = at.said_shape(1)
    if shape is None:
        shape = tuple(a * b for a, b in zip(x.shape, at.integers(1), strict=True))
    return tile(x, shape)


@op("Concat")
def concat(at: Place, *tensors: Tensor) -> Tensor:
    n = axis_of(at.attribute("axis", 1), tensors[0].rank)
    parts = [tensor for tensor in tensors if tensor.elements] or list(tensors[:1])
    return concatenate(parts, n)


@op("Split")
def split_op(at: Place, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    n = axis_of(at.attribute("axis", 0), x.rank)
    lengths = at.whole("split", 1)
    if lengths is None:
        count = at.attribute("num_outputs", len(at.shapes))
        length = -(-x.shape[n] // count)
        lengths = [max(0, min(length, x.shape[n] - k * length)) for k in range(count)]
    return split(x, n, lengths)


@op("Slice")
def slice_op(at: Place, x: Tensor, *_: Tensor | None) -> Tensor:
    starts, ends = at.whole("starts", 1) or [], at.whole("ends", 2) or []
    dims = at.whole("axes", 3, range(len(starts))) or []
    steps = at.whole("steps", 4, [1] * len(starts)) or []
    bounds = [(0, size, 1) for size in x.shape]
    turned: list[int] = []
    for n, start, end, step in zip(dims, starts, ends, steps, strict=True):
        n = axis_of(n, x.rank)
        bounds[n] = _within(x.shape[n], start, end, step)
        turned += [n] if step < 0 else []
    first, last, by = zip(*bounds, strict=True) if bounds else ((), (), ())
    return reverse(slice_(x, first, last, by), turned)


def _within(size: int, start: int, end: int, step: int) -> tuple[int, int, int]:
    """The slice of ``size`` elements, as Python has it: the first place, that after the last, and
    the distance, from the front."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, last = (min(max(at + size if at < 0 else at, low), high) for at in (start, end))
    count = max(0, -((first - last) // step))
    if not count:
        return 0, 0, abs(step)
    other = first + (count - 1) * step
    return (first, other + 1, step) if step > 0 else (other, first + 1, -step)


@op("Pad")
def pad_op(at: Place, x: Tensor, *others: Tensor | None) -> Tensor:
    amounts = at.whole("pads", 1) or []
    dims = at.whole("axes", 3, range(x.rank)) or []
    low, high = [0] * x.rank, [0] * x.rank
    for k, n in enumerate(dims):
        low[axis_of(n, x.rank)], high[axis_of(n, x.rank)] = amounts[k], amounts[k + len(dims)]
    mode = at.attribute("mode", "constant")
    if mode == "constant":
        tensor = others[1] if len(others) > 1 else None
        value = (
            tensor if tensor is not None else at.builder.splat(at.attribute("value", 0), x.dtype)
        )
        return pad(x, reshape(value, ()), low, high)
    return extended(x, low, high, mode)


@op("Gather")
def gather(at: Place, x: Tensor, indices: Tensor) -> Tensor:
    return take(x, indices, axis_of(at.attribute("axis", 0), x.rank))


@op("GatherElements")
def gather_elements(at: Place, x: Tensor, indices: Tensor) -> Tensor:
    n = axis_of(at.attribute("axis", 0), x.rank)
    return taken(x, indices.shape, places_along(indices, x.shape, n))


@op("GatherND")
def gather_nd(at: Place, x: Tensor, indices: Tensor) -> Tensor:
    batch = at.attribute("batch_dims", 0)
    rest = x.shape[batch + indices.shape[-1] :]
    return taken(x, (*indices.shape[:-1], *rest), _by_vectors(x, indices, batch))


def _by_vectors(x: Tensor, indices: Tensor, batch: int = 0) -> list[Expr]:
    """Where slices of ``x`` are that the last dim of ``indices`` says, for dims after ``batch``."""
    outer, depth = indices.rank - 1, indices.shape[-1]
    front = axes(outer)
    places = [place_in(indices.at(*front, k), x.shape[batch + k]) for k in range(depth)]
    rest = (axis(outer + k) for k in range(x.rank - batch - depth))
    return [*front[:batch], *places, *rest]


_COMBINERS = {"none": None, "add": "add", "mul": "mul", "max": "max", "min": "min"}


@op("ScatterElements", "Scatter")
def scatter_elements(at: Place, x: Tensor, indices: Tensor, source: Tensor) -> Tensor:
    n = axis_of(at.attribute("axis", 0), x.rank)
    index = places_along(indices, x.shape, n)
    return updated(x, index, source, _COMBINERS[at.attribute("reduction", "none")])


@op("ScatterND")
def scatter_nd(at: Place, x: Tensor, indices: Tensor, source: Tensor) -> Tensor:
    combiner = _COMBINERS[at.attribute("reduction", "none")]
    return updated(x, _by_vectors(x, indices), source, combiner)


@op("OneHot")
def one_hot(at: Place, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    rank = indices.rank + 1
    n = axis_of(at.attribute("axis", -1), rank)
    said = at.said_shape(1)
    count = at.integers(1)[0] if said is None else said[n]
    whole = (*indices.shape[:n], count, *indices.shape[n:])
    others = [axis(k) for k in range(rank) if k != n]
    place = cast(s64, indices.at(*others))
    place = select(place < 0, place + count, place)
    off, on = values.at(const(0)), values.at(const(1))
    encoded = at.builder.tensor(whole, select(binary("eq", place, axis(n)), on, off))
    return at.builder.materialize(encoded, at.builder.named("one_hot"))


@op("Trilu")
def triangle(at: Place, x: Tensor, k: Tensor | None = None) -> Tensor:
    offset = at.integers(1)[0] if at.has(1) else 0
    row, column = axis(x.rank - 2), axis(x.rank - 1)
    inside = column >= row + offset if at.attribute("upper", 1) else column <= row + offset
    if not x.elements:
        return x
    return at.builder.materialize(
        x.within(x.shape, axes(x.rank), inside, const(0, x.dtype)), at.builder.named("triangle")
    )


@op("DepthToSpace", "SpaceToDepth")
def blocks_of_pixels(at: Place, x: Tensor) -> Tensor:
    function = depth_to_space if at.op == "DepthToSpace" else space_to_depth
    first = at.attribute("mode", "DCR") == "DCR"
    return function(x, at.attribute("blocksize"), blocks_first=first)


@op("ConstantOfShape")
def constant_of_shape(at: Place, shape: Tensor) -> Tensor:
    value: Any = at.attribute("value", np.zeros(1, np.float32))
    return broadcast_to(reshape(at.builder.constant(value), ()), sized(at, 0))


@op("EyeLike")
def eye_like(at: Place, x: Tensor) -> Tensor:
    number = at.attribute("dtype")
    type_ = x.dtype if number is None else type_of(number)
    here = binary("eq", axis(1) - axis(0), const(at.attribute("k", 0)))
    return at.builder.tensor(x.shape, select(here, const(1, type_), const(0, type_)))


@op("Range")
def range_op(at: Place, start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
    shape = at.shapes[0]
    if shape is None:
        if any(is_open(at.values(n)) for n in range(3)):
            first, last, by = (at.integers(n)[0] for n in range(3))
            shape = (max(0, -((first - last) // by)),)
        else:
            low, high, size = (float(at.values(n).reshape(-1)[0]) for n in range(3))
            shape = (max(0, int(np.ceil((high - low) / size))),)
    begin, distance = reshape(start, ()).value, reshape(step, ()).value
    numbers = at.builder.tensor(shape, begin + cast(start.dtype, axis(0)) * distance)
    return at.builder.materialize(numbers, at.builder.named("range"))


@op("Compress")
def compress(at: Place, x: Tensor, condition: Tensor) -> Tensor:
    dim = at.attribute("axis")
    if dim is None:
        x, dim = reshape(x, (x.elements,)), 0
    n = axis_of(dim, x.rank)
    (places,) = np.nonzero(at.values(1)[: x.shape[n]])
    return take(x, at.builder.constant(places), n)


@op("TensorScatter")
def tensor_scatter(
    at: Place, cache: Tensor, update: Tensor, starts: Tensor | None = None
) -> Tensor:
    n = axis_of(at.attribute("axis", -2), cache.rank)
    if update.rank != cache.rank:
        refuse(f"an update of {update.rank} dims of a cache of {cache.rank}")
    index: list[Expr] = list(axes(cache.rank))
    if starts is not None:
        index[n] = index[n] + cast(s64, starts.at(axis(0)))
    if at.attribute("mode", "linear") == "circular":
        index[n] = index[n] % cache.shape[n]
    index[n] = place_in(index[n], cache.shape[n])
    return updated(cache, index, update, None)


@op("NonZero", "Unique", "NonMaxSuppression")
def data_dependent(at: Place, *_: Tensor | None) -> Tensor:
    refuse("the shape of its result depends on data")


@op("CenterCropPad")
def center_crop_pad(at: Place, x: Tensor, shape: Tensor) -> Tensor:
    dims = [axis_of(n, x.rank) for n in at.attribute("axes", range(x.rank))]
    said = at.said_shape(1)
    sizes = at.integers(1) if said is None else [said[n] for n in dims]
    low, high = [0] * x.rank, [0] * x.rank
    for n, size in zip(dims, sizes, strict=True):
        more = size - x.shape[n]
        low[n] = more // 2 if more >= 0 else -((-more) // 2)
        high[n] = more - low[n]
    return pad(x, at.builder.splat(0, x.dtype), low, high)


@op("ReverseSequence")
def reverse_sequence(at: Place, x: Tensor, lengths: Tensor) -> Tensor:
    time, batch = at.attribute("time_axis", 0), at.attribute("batch_axis", 1)
    length = cast(s64, lengths.at(axis(batch)))
    place = select(axis(time) < length, length - 1 - axis(time), axis(time))
    index: list[Expr] = list(axes(x.rank))
    index[time] = clamped(place, 0, x.shape[time] - 1)
    return taken(x, x.shape, index)
