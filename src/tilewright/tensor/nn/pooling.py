"""Windows along the last dims of images: sums, greatest elements and their places, means."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import DType, s64
from tilewright.ir.expr import Expr, binary, cast, const, maximum, minimum, select
from tilewright.ir.operators import identity
from tilewright.tensor.convolution import Window, Windowed
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.places import axis, linear_index
from tilewright.tensor.reductions import reduce
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.windows import reduce_window

Pairs = Sequence[tuple[int, int]]


def pooled(x: Tensor, windows: Sequence[Window], combiner: str) -> Tensor:
    """Windows of the last dims by a named combiner, from its identity on."""
    first = x.rank - len(windows)
    return reduce_window(
        [x],
        [x.builder.splat(identity(combiner, x.dtype), x.dtype)],
        combiner,
        [1] * first + [each.taps for each in windows],
        strides=[1] * first + [each.stride for each in windows],
        padding=[(0, 0)] * first + [(each.low, each.high) for each in windows],
        base_dilations=[1] * first + [each.base for each in windows],
        dilations=[1] * first + [each.dilation for each in windows],
    )[0]


def greatest_places(x: Tensor, windows: Sequence[Window], dims: Sequence[int]) -> Tensor:
    """Where the greatest element of each window is, the first of equals: the number (s64) of its
    place along ``dims``, counted row by row. The last NaN is the greatest, as in PyTorch."""
    builder, windowed = x.builder, Windowed.of(x.shape, windows)
    index = windowed.index
    number = linear_index([index[n] for n in dims], [x.shape[n] for n in dims])
    lowest = const(x.dtype.lowest, x.dtype)
    values = builder.tensor(windowed.shape, windowed.guarded(x.at(*index), lowest))
    # What is outside is no place: the first one inside takes it over.
    places = builder.tensor(windowed.shape, windowed.guarded(number, const(-1)))

    def better(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, Expr]:
        wins = (old[0] < new[0]) | (old[1] < 0)
        if x.dtype.is_float:
            wins = wins | binary("ne", new[0], new[0])
        wins = wins & (new[1] >= 0)
        return select(wins, new[0], old[0]), select(wins, new[1], old[1])

    initials = [builder.splat(x.dtype.lowest, x.dtype), builder.splat(-1, s64)]
    return reduce([values, places], initials, range(x.rank, values.rank), better)[1]


def counts(
    shape: Sequence[int],
    windows: Sequence[Window],
    sizes: Sequence[int],
    padding: Pairs | None,
    type_: DType,
) -> Expr:
    """How many elements each window has, as an expression of the result's place: those within
    ``padding`` (in front and after), too."""
    first = len(shape) - len(windows)
    count: Expr = const(1)
    for n, (window, size) in enumerate(zip(windows, sizes, strict=True)):
        before, after = (0, 0) if padding is None else padding[n]
        low, high = const(-before), const(size + after)
        start = axis(first + n) * window.stride - window.low
        if window.dilation == 1:
            length = minimum(start + window.taps, high) - maximum(start, low)
        else:
            step = window.dilation
            skipped = (maximum(low - start, const(0)) + (step - 1)) // step
            length = minimum((high - 1 - start) // step + 1, const(window.taps)) - skipped
        count = count * length
    return cast(type_, count)


def means(
    total: Tensor, windows: Sequence[Window], sizes: Sequence[int], padding: Pairs | None, to: DType
) -> Tensor:
    """Sums of windows, or what is to be spread over them, divided by `counts`."""
    value = counts(total.shape, windows, sizes, padding, total.dtype)
    number = total.builder.tensor(total.shape, value)
    return elementwise(lambda t, n: t / n, total, number, dtype=to)
