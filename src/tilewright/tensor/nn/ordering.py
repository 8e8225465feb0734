"""What depends on an order along a dim: places of extremes, sorts, running sums."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import DType, s64
from tilewright.ir.expr import Expr, binary, cast, select
from tilewright.ir.operators import identity
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, expression
from tilewright.tensor.reductions import reduce, scan
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import iota, pad, part


def extreme(
    x: Tensor, dim: int, *, greatest: bool = True, last: bool = False, places: DType = s64
) -> tuple[Tensor, Tensor]:
    """The greatest (or least) element along ``dim``, and the first (or ``last``) of its ``places``;
    a NaN is both."""
    numbers = iota(x.builder, places, x.shape, dim)
    return placed_extreme(x, numbers, [dim], greatest=greatest, last=last)


def placed_extreme(
    x: Tensor,
    places: Tensor,
    dims: Sequence[int],
    *,
    greatest: bool = True,
    last: bool = False,
    last_nan: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """The greatest (or least) element along ``dims``, and its place: the least of equal ones' (or
    the greatest, ``last``). A NaN is both, the first one, or the last (``last_nan``)."""
    type_ = accumulator_for(x.dtype)
    worst = type_.lowest if greatest else type_.highest
    nowhere = places.dtype.lowest if last else places.dtype.highest
    of_nan = last if last_nan is None else last_nan

    def better(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, Expr]:
        (v, p), (w, q) = old, new
        wins = v < w if greatest else w < v
        wins = wins | (binary("eq", v, w) & (p < q if last else q < p))
        if type_.is_float:
            was, comes = binary("ne", v, v), binary("ne", w, w)
            wins = wins | (comes & (~was | (p < q if of_nan else q < p)))
        return select(wins, w, v), select(wins, q, p)

    value, place = reduce(
        [expression(lambda s: cast(type_, s), x), places],
        [x.builder.splat(worst, type_), x.builder.splat(nowhere, places.dtype)],
        dims,
        better,
        in_any_order=True,
    )
    return convert(value, x.dtype), place


def running_extreme(x: Tensor, dim: int, *, greatest: bool = True) -> tuple[Tensor, Tensor]:
    """At each place the greatest (or least) of the elements along ``dim`` up to it, and the last
    place of it among these; a NaN is both."""
    worst = x.dtype.lowest if greatest else x.dtype.highest

    def better(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, Expr]:
        before, after = (old[0], new[0]) if greatest else (new[0], old[0])
        wins = before <= after
        if x.dtype.is_float:
            wins = wins | binary("ne", new[0], new[0])
        return select(wins, new[0], old[0]), select(wins, new[1], old[1])

    first = [x.builder.splat(worst, x.dtype), x.builder.splat(0, s64)]
    value, place = scan([x, iota(x.builder, s64, x.shape, dim)], first, dim, better)
    return value, place


def running(
    x: Tensor, dim: int, combiner: str, *, reverse: bool = False, exclusive: bool = False
) -> Tensor:
    """The elements along ``dim`` up to each place, combined ("add", "mul", "max", "min"); from the
    end with ``reverse``, without the place's own with ``exclusive``."""
    type_ = accumulator_for(x.dtype)
    first = x.builder.splat(identity(combiner, type_), type_)
    values = convert(x, type_)
    if exclusive:
        # What is combined at each place is its neighbour's.
        low, high = (
            [int(n == dim and side) for n in range(x.rank)] for side in (not reverse, reverse)
        )
        start = int(reverse)
        values = part(pad(values, first, low, high), dim, start, x.shape[dim] + start)
    sums = scan(
        [values],
        [first],
        dim,
        lambda old, new: (binary(combiner, old[0], new[0]),),
        reverse=reverse,
    )[0]
    return convert(sums, x.dtype)
