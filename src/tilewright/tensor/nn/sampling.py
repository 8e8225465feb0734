"""Elements between elements: images sampled at places that are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.dtypes import s64
from tilewright.ir.expr import Expr, all_of, cast, const, minimum, select, unary
from tilewright.ir.operators import identity
from tilewright.problems.functions import clamped, number
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.places import axes, axis, guarded
from tilewright.tensor.reductions import reduce
from tilewright.tensor.tensor import Tensor


@dataclass(frozen=True)
class Kernel:
    """How an element counts by its distance from a place: elements from ``before`` in front of the
    one at the place or before it, ``taps`` of them."""

    before: int
    taps: int
    weight: Callable[[Expr], Expr]


NEAREST = Kernel(0, 1, lambda d: number(1.0, d))
LINEAR = Kernel(0, 2, lambda d: number(1.0, d) - d)


def cubic(a: float) -> Kernel:
    """R. Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981."""

    def weight(d: Expr) -> Expr:
        near = ((number(a + 2, d) * d - number(a + 3, d)) * d) * d + number(1.0, d)
        far = number(a, d) * (((d - number(5.0, d)) * d + number(8.0, d)) * d - number(4.0, d))
        return select(d <= number(1.0, d), near, far)

    return Kernel(1, 4, weight)


@dataclass(frozen=True)
class Taps:
    """Which elements along a dim are sampled, and how much each counts: of shape (windows, taps,
    places...), as vectors are of places. What lies outside of the dim counts as 0."""

    place: Tensor
    weight: Tensor


def taps(where: Tensor, kernel: Kernel, moved: Callable[[Expr], Expr] | None = None) -> Taps:
    """The elements around each of ``where`` (floats, in elements), which ``moved`` (of a place in
    s64) puts elsewhere."""
    builder = where.builder
    shape = (where.shape[0], kernel.taps, *where.shape[1:])
    value = where.at(axis(0), *axes(where.rank + 1)[2:])
    low, step = unary("floor", value), axis(1) - kernel.before
    place = cast(s64, low) + step
    distance = unary("abs", value - (low + cast(where.dtype, step)))
    weight = kernel.weight(distance)
    if moved is not None:
        place = moved(place)
    name = builder.named("sample")
    return Taps(
        builder.materialize(builder.tensor(shape, place), f"{name}_places"),
        builder.materialize(builder.tensor(shape, weight), f"{name}_weights"),
    )


def sampled(x: Tensor, along: Sequence[Taps], combiner: str = "add") -> Tensor:
    """Of ``x`` (images, channels, dims...) the combined products of elements and weights: (images,
    channels, places...), for `Taps` along each of the dims."""
    builder, points = x.builder, along[0].place.shape[2:]
    rank = 2 + len(points)
    index: list[Expr] = [axis(0), axis(1)]
    conditions: list[Expr] = []
    factor: Expr | None = None
    for n, tap in enumerate(along):
        here = (axis(0), axis(rank + n), *axes(rank)[2:])
        place, weight = tap.place.at(*here), tap.weight.at(*here)
        index.append(place)
        conditions += [place >= 0, place < x.shape[2 + n]]
        factor = weight if factor is None else factor * weight
    inside = all_of(conditions)
    assert factor is not None and inside is not None
    value = guarded(x.at(*index), inside, const(0, x.dtype))
    counts = [tap.place.shape[1] for tap in along]
    shape = (*x.shape[:2], *points, *counts)
    seen = builder.tensor(shape, cast(factor.type, value) * factor)
    initial = builder.splat(identity(combiner, factor.type), factor.type)
    with builder.at(builder.named("sample")):
        return reduce([seen], [initial], range(rank, rank + len(along)), combiner)[0]


def reflected(place: Expr, low: float, high: float) -> Expr:
    """A float place between ``low`` and ``high``, which are mirrors."""
    if high <= low:
        return number(low, place)
    turn = number(2 * (high - low), place)
    along = place - number(low, place)
    along = along - turn * unary("floor", along / turn)
    return number(low, place) + minimum(along, turn - along)


def nearest_within(place: Expr, size: int) -> Expr:
    """The place from 0 to ``size`` - 1 that is nearest, of an integer or a float."""
    return clamped(place, 0, size - 1)


def grid_sampled(x: Tensor, grid: Tensor, kernel: Kernel, outside: str, corners: bool) -> Tensor:
    """``x`` (images, channels, dims...) at the places of ``grid`` (images, places..., dims from the
    last on), which are from -1 to 1: from the middle of the first element to that of the last with
    ``corners``, else from edge to edge. ``outside`` of these are "zeros", what is at the "border",
    or a "reflection"."""
    places = convert(grid, accumulator_for(grid.dtype))
    along = [
        _grid_taps(places, x.rank - 3 - n, size, kernel, outside, corners)
        for n, size in enumerate(x.shape[2:])
    ]
    return convert(sampled(convert(x, accumulator_for(x.dtype)), along), x.dtype)


def _grid_taps(
    grid: Tensor, number_of: int, size: int, kernel: Kernel, outside: str, corners: bool
) -> Taps:
    """The taps along a dim, whose places the grid has at ``number_of``: from -1 to 1."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)

    def element(value: Expr) -> Expr:
        one, half = number(1.0, value), number(0.5, value)
        if corners:
            value = (value + one) * half * number(size - 1, value)
        else:
            value = ((value + one) * number(size, value) - one) * half
        if kernel is NEAREST:
            value = unary("round", value)
        inside = (number(low, value) <= value) & (value <= number(high, value))
        if outside == "border":
            return select(inside, value, nearest_within(value, size))
        return select(inside, value, reflected(value, low, high)) if mirror else value

    def within(place: Expr) -> Expr:
        if mirror:
            place = cast(place.type, reflected(cast(grid.dtype, place), low, high))
        return nearest_within(place, size)

    mirror = outside == "reflection"
    at_ = grid.viewed(grid.shape[:-1], [*axes(grid.rank - 1), const(number_of)])
    where = elementwise(element, at_, name="place")
    return taps(where, kernel, None if outside == "zeros" else within)
