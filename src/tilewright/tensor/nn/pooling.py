"""Windows along the last dims of images: sums, greatest elements and their places, means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.dtypes import DType, s64
from tilewright.ir.expr import Expr, as_expr, cast, const, maximum, minimum
from tilewright.ir.operators import identity
from tilewright.tensor.convolution import Window, Windowed
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.nn.ordering import placed_extreme
from tilewright.tensor.places import axis, linear_index
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import unflattened
from tilewright.tensor.windows import reduce_window

Pairs = Sequence[tuple[int, int]]


def pooled(x: Tensor, windows: Sequence[Window], combiner: str) -> Tensor:
    """Windows of the last dims by a named combiner, from its identity on."""
    first = x.rank - len(windows)
    windows = [_inside(*pair) for pair in zip(windows, x.shape[first:], strict=True)]
    return reduce_window(
        [x],
        [x.builder.splat(identity(combiner, x.dtype), x.dtype)],
        combiner,
        [1] * first + [window.taps for window in windows],
        strides=[1] * first + [window.stride for window in windows],
        padding=[(0, 0)] * first + [(window.low, window.high) for window in windows],
        base_dilations=[1] * first + [window.base for window in windows],
        dilations=[1] * first + [window.dilation for window in windows],
    )[0]


def _inside(window: Window, size: int) -> Window:
    """``window`` without the first and last taps that no place of it has inside of ``size``
    elements, such as those of a window that is larger."""
    # (Open sizes are integers of another class.)
    if window.base != 1 or type(size) is not int or window.positions(size) == 0:
        return window
    step, last = window.dilation, (window.positions(size) - 1) * window.stride
    before = min(max(0, -(-(window.low - last) // step)), window.taps - 1)
    after = min(max(0, window.taps - 1 - (size - 1 + window.low) // step), window.taps - 1 - before)
    return replace(
        window,
        taps=window.taps - before - after,
        low=window.low - before * step,
        high=window.high - after * step,
    )


def greatest_of_windows(
    x: Tensor,
    windows: Sequence[Window],
    dims: Sequence[int],
    *,
    places: DType = s64,
    last_nan: bool = True,
) -> tuple[Tensor, Tensor]:
    """The greatest element of each window, and where it is, the first of equals: the number of its
    place along ``dims``, counted row by row. Of NaN, which is the greatest, the last (as in
    PyTorch) or the first."""
    builder, windowed = x.builder, Windowed.of(x.shape, windows)
    index = windowed.index
    order = sorted(dims)
    number = linear_index([index[n] for n in order], [x.shape[n] for n in order])
    lowest, nowhere = const(x.dtype.lowest, x.dtype), const(places.highest, places)
    values = builder.tensor(windowed.shape, windowed.guarded(x.at(*index), lowest))
    numbers = builder.tensor(windowed.shape, windowed.guarded(cast(places, number), nowhere))
    taps = range(x.rank, values.rank)
    value, place = placed_extreme(values, numbers, taps, last_nan=last_nan)
    if order == [*dims]:
        return value, place

    def counted(at: Expr) -> Expr:
        along = dict(zip(order, unflattened(at, [x.shape[n] for n in order]), strict=True))
        return linear_index([along[n] for n in dims], [x.shape[n] for n in dims])

    return value, elementwise(counted, place)


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
        low, high = as_expr(-before), as_expr(size + after)
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
