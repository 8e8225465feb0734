"""Pooling: the greatest, or the mean, of sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.frontends.torch.table import Place, aten, for_dims
from tilewright.ir.expr import Expr, all_of, cast, const
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.convolution import Window
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.nn.norms import mean
from tilewright.tensor.nn.ordering import placed_extreme
from tilewright.tensor.nn.pooling import greatest_of_windows, means, pooled
from tilewright.tensor.places import Shape, axis, guarded, linear_index
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import reshape


def spatial_windows(
    at: Place,
    x: Shape,
    result: Shape,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> list[Window]:
    """The window along each of the last dims, with as much padding after it as the result's size
    takes. Lists of one number have it for all dims."""
    count = 2 if "2d" in at.op else 3
    windows_of: list[Window] = []
    all_taps = for_dims(kernel, count)
    strides = for_dims(stride, count) if stride else all_taps
    paddings, dilations = for_dims(padding, count), for_dims(dilation, count)
    for n, taps in enumerate(all_taps):
        size, windows = x[len(x) - count + n], result[len(result) - count + n]
        reach = (taps - 1) * dilations[n] + 1
        high = (windows - 1) * strides[n] + reach - size - paddings[n]
        windows_of.append(Window(taps, strides[n], paddings[n], high, 1, dilations[n]))
    return windows_of


@aten("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool(
    at: Place,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    windows = spatial_windows(at, x.shape, at.shape, kernel, stride, padding, dilation)
    if 1 not in at.used:
        values = pooled(x, windows, "max")
        return values, values
    return greatest_of_windows(x, windows, range(x.rank - len(windows), x.rank))


@aten("avg_pool2d.default", "avg_pool3d.default")
def avg_pool(
    at: Place,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    windows = spatial_windows(at, x.shape, at.shape, kernel, stride, padding)
    type_ = accumulator_for(x.dtype)
    total = pooled(convert(x, type_), windows, "add")
    sizes = x.shape[x.rank - len(windows) :]
    return averaged(total, windows, sizes, count_include_pad, divisor_override, at.dtype)


def averaged(
    total: Tensor,
    windows: Sequence[Window],
    sizes: Sequence[int],
    pads: bool,
    divisor: int | None,
    to: DType,
) -> Tensor:
    """Sums of windows, or their gradients, divided as `avg_pool` divides."""
    if divisor is not None:
        return elementwise(lambda t: t / const(float(divisor), t.type), total, dtype=to)
    # PyTorch pads both sides alike.
    padding = [(window.low, window.low) for window in windows] if pads else None
    return means(total, windows, sizes, padding, to)


@aten("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def adaptive_avg_pool(at: Place, x: Tensor, size: Sequence[int]) -> Tensor:
    """Window ``o`` of ``m`` along n elements is from floor(o n / m) to ceil((o + 1) n / m)."""
    type_ = accumulator_for(x.dtype)
    first = x.rank - len(size)
    if all(m == 1 for m in at.shape[first:]):
        return reshape(mean(convert(x, type_), range(first, x.rank), at.dtype), at.shape)
    windows = _adaptive_windows(x.shape, at.shape, first)
    seen = _seen(convert(x, type_), at.shape, windows, const(0, type_))
    total = combined(seen, range(x.rank, seen.rank), "add")
    number = x.builder.tensor(at.shape, cast(type_, windows.count))
    return elementwise(lambda t, c: t / c, total, number, dtype=at.dtype)


@aten("adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_max_pool(at: Place, x: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The greatest of the windows of `adaptive_avg_pool`, and its place in the image."""
    first = x.rank - len(size)
    windows = _adaptive_windows(x.shape, at.shape, first)
    seen = _seen(x, at.shape, windows, const(x.dtype.lowest, x.dtype))
    place = linear_index(windows.index[first:], x.shape[first:])
    places = x.builder.tensor(seen.shape, place)
    return placed_extreme(seen, places, range(x.rank, seen.rank), last_nan=True)


@dataclass(frozen=True)
class _Windows:
    """Windows of several sizes: ``index`` is the place in the image of a tap (an axis after those
    of the result for each of ``taps``), ``inside`` whether its window has it, ``count`` how many it
    has."""

    index: list[Expr]
    inside: Expr | None
    taps: list[int]
    count: Expr


def _adaptive_windows(x: Shape, result: Shape, first: int) -> _Windows:
    index: list[Expr] = [axis(n) for n in range(first)]
    conditions: list[Expr] = []
    taps: list[int] = []
    count_of: Expr = const(1)
    for n, (size_n, m) in enumerate(zip(x[first:], result[first:], strict=True)):
        out = axis(first + n)
        start, stop = out * size_n // m, ((out + 1) * size_n + (m - 1)) // m
        bounds = [(o * size_n // m, -(-(o + 1) * size_n // m)) for o in range(m)]
        longest = max(b - a for a, b in bounds)
        place = start + axis(len(x) + n)
        if any(b - a < longest for a, b in bounds):
            conditions.append(place < stop)
        taps.append(longest)
        index.append(place)
        count_of = count_of * (stop - start)
    return _Windows(index, all_of(conditions), taps, count_of)


def _seen(x: Tensor, result: Shape, windows: _Windows, outside: Expr) -> Tensor:
    """What windows see, along dims of its own, and ``outside`` after a window's end."""
    value, inside = x.at(*windows.index), windows.inside
    value = value if inside is None else guarded(value, inside, outside)
    return x.builder.tensor((*result, *windows.taps), value)
