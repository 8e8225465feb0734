"""Pooling: the greatest, or the mean, of sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.dtypes import DType, s64
from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import Expr, all_of, binary, cast, const, maximum, minimum, select
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.convolution import Window
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.reductions import combined, reduce
from tilewright.tensor.tensor import Shape, Tensor, axis, guarded
from tilewright.tensor.windows import reduce_window


def spatial_windows(
    x: Shape,
    result: Shape,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> list[Window]:
    """The window along each of the last dims, with as much padding behind as the result's size
    takes. Lists of one number have it for all dims."""
    count = len(kernel)
    found: list[Window] = []
    strides = _each(stride, count) if stride else tuple(kernel)
    paddings, dilations = _each(padding, count), _each(dilation, count)
    for n, taps in enumerate(kernel):
        size, windows = x[len(x) - count + n], result[len(result) - count + n]
        reach = (taps - 1) * dilations[n] + 1
        high = (windows - 1) * strides[n] + reach - size - paddings[n]
        found.append(Window(taps, strides[n], paddings[n], high, 1, dilations[n]))
    return found


def _each(given: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(map(int, given)) * (count if len(given) == 1 else 1)


def pooled(x: Tensor, windows: Sequence[Window], combiner: str) -> Tensor:
    """Windows of the last dims by a named combiner, from its identity on."""
    first = x.rank - len(windows)
    identity = {"add": 0, "max": x.dtype.lowest}[combiner]
    return reduce_window(
        [x],
        [x.builder.splat(identity, x.dtype)],
        combiner,
        [1] * first + [each.taps for each in windows],
        strides=[1] * first + [each.stride for each in windows],
        padding=[(0, 0)] * first + [(each.low, each.high) for each in windows],
        dilations=[1] * first + [each.dilation for each in windows],
    )[0]


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
    count = 2 if at.op.startswith("max_pool2d") else len(kernel)
    kernel = _each(kernel, max(count, len(kernel)))
    windows = spatial_windows(x.shape, at.shape, kernel, stride, padding, dilation)
    values = pooled(x, windows, "max")
    return values, _places(x, at.shape, windows) if 1 in at.used else values


def _places(x: Tensor, shape: Shape, windows: Sequence[Window]) -> Tensor:
    """Where in its plane the greatest element of each window is, the first of equals."""
    builder, rank = x.builder, x.rank
    first = rank - len(windows)
    index: list[Expr] = [axis(n) for n in range(first)]
    conditions: list[Expr] = []
    flat: Expr = const(0)
    for n, window in enumerate(windows):
        size = x.shape[first + n]
        place, needed = window.place(axis(first + n), axis(rank + n), size)
        index.append(place)
        conditions += needed
        flat = flat * size + place
    inside = all_of(conditions)
    lowest = const(x.dtype.lowest, x.dtype)
    value = x.at(*index)
    seen = (*shape, *(each.taps for each in windows))
    # What is outside is no place: the first one inside takes it over.
    place = flat if inside is None else select(inside, flat, const(-1))
    values = builder.tensor(seen, value if inside is None else guarded(value, inside, lowest))
    places = builder.tensor(seen, place)

    def better(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, Expr]:
        wins = (old[0] < new[0]) | (old[1] < 0)
        if x.dtype.is_float:
            wins = wins | binary("ne", new[0], new[0])
        wins = wins & (new[1] >= 0)
        return select(wins, new[0], old[0]), select(wins, new[1], old[1])

    initials = [builder.splat(x.dtype.lowest, x.dtype), builder.splat(-1, s64)]
    return reduce([values, places], initials, range(rank, len(seen)), better)[1]


def counts(
    shape: Shape, windows: Sequence[Window], sizes: Sequence[int], pads: bool, type_: DType
) -> Expr:
    """How many elements each window has, as an expression of the result's place: those of padding,
    too, where ``pads``."""
    first = len(shape) - len(windows)
    found: Expr = const(1)
    for n, (window, size) in enumerate(zip(windows, sizes, strict=True)):
        start = axis(first + n) * window.stride - window.low
        stop = minimum(start + window.taps, const(size + (window.low if pads else 0)))
        length = stop - (start if pads else maximum(start, const(0)))
        found = found * length
    return cast(type_, found)


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
    kernel = _each(kernel, 3 if at.op.startswith("avg_pool3d") else 2)
    windows = spatial_windows(x.shape, at.shape, kernel, stride, padding)
    type_ = accumulator_for(x.dtype)
    total = pooled(convert(x, type_), windows, "add")
    return _divided(at, total, x, windows, count_include_pad, divisor_override)


def _divided(
    at: Place,
    total: Tensor,
    x: Tensor,
    windows: Sequence[Window],
    pads: bool,
    divisor: int | None,
) -> Tensor:
    type_ = total.dtype
    if divisor is not None:
        return elementwise(lambda t: t / const(float(divisor), type_), total, dtype=at.dtype)
    sizes = x.shape[x.rank - len(windows) :]
    number = x.builder.tensor(at.shape, counts(at.shape, windows, sizes, pads, type_))
    return elementwise(lambda t, n: t / n, total, number, dtype=at.dtype)


def window_divisors(
    grad: Tensor, windows: Sequence[Window], sizes: Sequence[int], pads: bool, divisor: int | None
) -> Tensor:
    """``grad`` of each window, divided as `avg_pool` divides."""
    type_ = accumulator_for(grad.dtype)
    if divisor is not None:
        number = grad.builder.splat(float(divisor), type_, grad.shape)
    else:
        value = counts(grad.shape, windows, sizes, pads, type_)
        number = grad.builder.tensor(grad.shape, value)
    return elementwise(lambda g, n: cast(type_, g) / n, grad, number, dtype=type_)


@aten("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def adaptive_avg_pool(at: Place, x: Tensor, size: Sequence[int]) -> Tensor:
    """Window ``o`` of ``m`` along n elements is from floor(o n / m) to ceil((o + 1) n / m)."""
    type_ = accumulator_for(x.dtype)
    first = x.rank - len(size)
    sizes, results = x.shape[first:], at.shape[first:]
    if all(m == 1 for m in results):
        total = combined(convert(x, type_), range(first, x.rank), "add")
        count = float(prod(sizes))
        mean = elementwise(lambda t: t / const(count, type_), total, dtype=at.dtype)
        return mean.viewed(at.shape, [axis(n) for n in range(first)])
    index: list[Expr] = [axis(n) for n in range(first)]
    conditions: list[Expr] = []
    taps: list[int] = []
    count_of: Expr = const(1)
    for n, (size_n, m) in enumerate(zip(sizes, results, strict=True)):
        out = axis(first + n)
        start, stop = out * size_n // m, ((out + 1) * size_n + (m - 1)) // m
        bounds = [(o * size_n // m, -(-(o + 1) * size_n // m)) for o in range(m)]
        longest = max(b - a for a, b in bounds)
        place = start + axis(x.rank + n)
        if any(b - a < longest for a, b in bounds):
            conditions.append(place < stop)
        taps.append(longest)
        index.append(place)
        count_of = count_of * (stop - start)
    inside = all_of(conditions)
    value = convert(x, type_).at(*index)
    zero = const(0, type_)
    seen = x.builder.tensor(
        (*at.shape, *taps), value if inside is None else guarded(value, inside, zero)
    )
    total = combined(seen, range(x.rank, x.rank + len(taps)), "add")
    number = x.builder.tensor(at.shape, cast(type_, count_of))
    return elementwise(lambda t, c: t / c, total, number, dtype=at.dtype)
