"""What depends on an order along a dim: places of extremes, sorts, running sums."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import DType, s64
from tilewright.ir.expr import Expr, binary, select
from tilewright.ir.operators import identity
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert
from tilewright.tensor.reductions import Combine, reduce, scan
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import iota


def extreme(
    x: Tensor, dim: int, *, greatest: bool = True, last: bool = False
) -> tuple[Tensor, Tensor]:
    """The greatest (or least) element along ``dim``, and the first (or ``last``) place of it; a NaN
    is both."""
    pair, first = _with_places(x, dim, greatest)
    value, place = reduce(pair, first, [dim], _better(x.dtype, greatest, last))
    return value, place


def running_extreme(x: Tensor, dim: int, *, greatest: bool = True) -> tuple[Tensor, Tensor]:
    """At each place the greatest (or least) of the elements along ``dim`` up to it, and the last
    place of it among these; a NaN is both."""
    value, place = scan(*_with_places(x, dim, greatest), dim, _better(x.dtype, greatest, True))
    return value, place


def _with_places(x: Tensor, dim: int, greatest: bool) -> tuple[list[Tensor], list[Tensor]]:
    """The elements and their places along ``dim``, and what is worse than any."""
    worst = x.dtype.lowest if greatest else x.dtype.highest
    places = iota(x.builder, s64, x.shape, dim)
    return [x, places], [x.builder.splat(worst, x.dtype), x.builder.splat(0, s64)]


def _better(type_: DType, greatest: bool, last: bool) -> Combine:
    """Of two values with their places, the greater (or lesser) one; of equal ones the first (or
    ``last``)."""

    def better(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, Expr]:
        before, after = (old[0], new[0]) if greatest else (new[0], old[0])
        wins = before <= after if last else before < after
        if type_.is_float:
            missing = binary("ne", new[0], new[0])
            wins = wins | (missing if last else missing & binary("eq", old[0], old[0]))
        return select(wins, new[0], old[0]), select(wins, new[1], old[1])

    return better


def running(x: Tensor, dim: int, combiner: str, *, reverse: bool = False) -> Tensor:
    """The sum ("add") or product ("mul") of the elements along ``dim`` up to each place; from the
    end with ``reverse``."""
    type_ = accumulator_for(x.dtype)
    first = x.builder.splat(identity(combiner, type_), type_)
    sums = scan(
        [convert(x, type_)],
        [first],
        dim,
        lambda old, new: (binary(combiner, old[0], new[0]),),
        reverse=reverse,
    )[0]
    return convert(sums, x.dtype)
