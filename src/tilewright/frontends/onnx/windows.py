"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilewright.dtypes import DType
from tilewright.frontends.onnx.multiplying import centered, requantized
from tilewright.frontends.onnx.table import Place, op, refuse
from tilewright.ir.expr import Expr, binary, const, select, unary
from tilewright.problems.functions import power
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.convolution import (
    Window,
    Windowed,
    convolution,
    transposed_convolution,
    windows_of,
    with_bias,
)
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.indexing import place_in, updated
from tilewright.tensor.nn.norms import mean
from tilewright.tensor.nn.pooling import greatest_of_windows, means, pooled
from tilewright.tensor.places import axis
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import pad, reshape
from tilewright.tensor.windows import reduce_window

Pairs = list[tuple[int, int]]


def _padding(
    at: Place,
    sizes: Sequence[int],
    taps: Sequence[int],
    strides: Sequence[int],
    steps: Sequence[int],
) -> Pairs:
    """How much is padded before and after each spatial dim."""
    count, auto = len(taps), at.attribute("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        return _pads(at, count)
    if auto == "VALID":
        return [(0, 0)] * count
    padding: Pairs = []
    for size, tap, stride, step in zip(sizes, taps, strides, steps, strict=True):
        total = max(0, ((size - 1) // stride) * stride + (tap - 1) * step + 1 - size)
        small, large = total // 2, total - total // 2
        padding.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return padding


def _steps(at: Place, count: int) -> tuple[list[int], list[int]]:
    """Strides and dilations of ``count`` dims."""
    ones = [1] * count
    return at.attribute("strides", ones), at.attribute("dilations", ones)


def _pads(at: Place, count: int) -> Pairs:
    """What is padded before and after each of ``count`` dims, where the node says it."""
    pads = at.attribute("pads", [0] * 2 * count)
    return list(zip(pads[:count], pads[count:], strict=True))


def convolved(
    at: Place, x: Tensor, weight: Tensor, bias: Tensor | None, type_: DType, result: DType
) -> Tensor:
    """The convolution that a node asks for, in ``type_``, as ``result``."""
    strides, steps = _steps(at, x.rank - 2)
    sums = convolution(
        x,
        weight,
        strides=strides,
        padding=_padding(at, x.shape[2:], weight.shape[2:], strides, steps),
        dilations=steps,
        feature_groups=at.attribute("group", 1),
        dtype=type_,
    )
    return with_bias(sums, bias, result)


@op("Conv")
def conv(at: Place, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return convolved(at, x, weight, bias, accumulator_for(x.dtype), x.dtype)


@op("ConvInteger")
def conv_integer(
    at: Place, x: Tensor, weight: Tensor, zx: Tensor | None = None, zw: Tensor | None = None
) -> Tensor:
    a, b = centered(x, zx, 1), centered(weight, zw, 0)
    return convolved(at, a, b, None, a.dtype, a.dtype)


@op("QLinearConv")
def quantized_conv(
    at: Place,
    x: Tensor,
    scale_x: Tensor,
    zero_x: Tensor,
    weight: Tensor,
    scale_w: Tensor,
    zero_w: Tensor,
    scale: Tensor,
    zero: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    a, b = centered(x, zero_x, 1), centered(weight, zero_w, 0)
    sums = convolved(at, a, b, bias, a.dtype, a.dtype)
    return requantized(sums, (scale_x, scale_w, scale), zero, 1)


@op("ConvTranspose")
def conv_transpose(at: Place, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    count, groups = x.rank - 2, at.attribute("group", 1)
    strides, steps = _steps(at, count)
    more = at.attribute("output_padding", [0] * count)
    taps = weight.shape[2:]
    full = [
        (x.shape[2 + n] - 1) * strides[n] + (taps[n] - 1) * steps[n] + 1 + more[n]
        for n in range(count)
    ]
    auto = at.attribute("auto_pad", "NOTSET")
    wanted = at.attribute("output_shape")
    if wanted is None and auto.startswith("SAME"):
        wanted = [x.shape[2 + n] * strides[n] for n in range(count)]
    if wanted is not None:
        total = [full[n] - wanted[-count + n] for n in range(count)]
        less = [(t // 2, t - t // 2) for t in total]
        cut = less if auto == "SAME_UPPER" else [(high, low) for low, high in less]
    else:
        cut = _pads(at, count)
    # The image has more elements at the end than the windows reach.
    padding = [(low, high - more[n]) for n, (low, high) in enumerate(cut)]
    sums = accumulator_for(x.dtype)
    images = transposed_convolution(x, weight, padding, strides, steps, groups, sums)
    return with_bias(images, bias, x.dtype)


def _windows(at: Place, x: Tensor) -> tuple[Window, ...]:
    """The windows of a pooling node along its spatial dims."""
    taps = at.attribute("kernel_shape")
    strides, steps = _steps(at, len(taps))
    pads = _padding(at, x.shape[2:], taps, strides, steps)
    for n, (low, high) in enumerate(pads if at.attribute("ceil_mode", 0) else ()):
        size, reach = x.shape[2 + n], (taps[n] - 1) * steps[n] + 1
        windows = -((reach - size - low - high) // strides[n]) + 1
        if (windows - 1) * strides[n] >= size + low:
            windows -= 1  # it would begin after the image
        pads[n] = (low, (windows - 1) * strides[n] + reach - size - low)
    return windows_of(at.builder, taps, strides, pads, dilations=steps)


@op("MaxPool")
def max_pool(at: Place, x: Tensor) -> tuple[Tensor, ...]:
    windows, x = _windows(at, x), _numbers(x)
    if len(at.shapes) < 2:
        return (pooled(x, windows, "max"),)
    order = range(2, x.rank)
    order = order[::-1] if at.attribute("storage_order", 0) else order
    return greatest_of_windows(x, windows, (0, 1, *order))


def _numbers(x: Tensor) -> Tensor:
    """``x`` with the least value for NaN, which is no greatest element in ONNX."""
    if not x.dtype.is_float:
        return x
    lowest = const(x.dtype.lowest, x.dtype)
    return elementwise(lambda s: select(binary("eq", s, s), s, lowest), x)


@op("AveragePool")
def average_pool(at: Place, x: Tensor) -> Tensor:
    windows, sizes = _windows(at, x), x.shape[2:]
    padding = None
    if at.attribute("count_include_pad", 0):
        taps, strides, steps = (
            [getattr(window, name) for window in windows] for name in ("taps", "stride", "dilation")
        )
        padding = _padding(at, sizes, taps, strides, steps)
    total = pooled(convert(x, accumulator_for(x.dtype)), windows, "add")
    return means(total, windows, sizes, padding, x.dtype)


@op("LpPool")
def lp_pool(at: Place, x: Tensor) -> Tensor:
    p = at.attribute("p", 2)
    values = elementwise(lambda s: power(unary("abs", s), p), convert(x, accumulator_for(x.dtype)))
    total = pooled(values, _windows(at, x), "add")
    return elementwise(lambda t: power(t, 1 / p), total, dtype=x.dtype)


@op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(at: Place, x: Tensor) -> Tensor:
    dims = range(2, x.rank)
    if at.op == "GlobalMaxPool":
        tensor = combined(x, dims, "max")
    else:
        tensor = mean(convert(x, accumulator_for(x.dtype)), dims, x.dtype)
    return reshape(tensor, (*x.shape[:2], *(1 for _ in dims)))


@op("Col2Im")
def columns_to_image(at: Place, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    """Sums over the windows that each element is in: those of a transposed convolution."""
    sizes, taps = at.integers(1), at.integers(2)
    count = len(sizes)
    strides, steps = _steps(at, count)
    windows = windows_of(at.builder, taps, strides, _pads(at, count), dilations=steps)
    blocks = [window.positions(size) for window, size in zip(windows, sizes, strict=True)]
    if x.shape[1] % prod(taps) or x.shape[2] != prod(blocks):
        refuse(f"{list(x.shape)} as windows of {taps} in an image of {sizes}")
    channels = x.shape[1] // prod(taps)
    parts = reshape(convert(x, accumulator_for(x.dtype)), (x.shape[0], channels, *taps, *blocks))
    back = [window.back(size) for window, size in zip(windows, sizes, strict=True)]
    windowed = Windowed.of((x.shape[0], channels, *blocks), back)
    tap = [const(size - 1) - axis(2 + count + n) for n, size in enumerate(taps)]
    value = parts.at(axis(0), axis(1), *tap, *windowed.index[2:])
    seen = at.builder.tensor(windowed.shape, windowed.guarded(value, const(0, parts.dtype)))
    return convert(combined(seen, range(2 + count, seen.rank), "add"), x.dtype)


@op("MaxUnpool")
def max_unpool(at: Place, x: Tensor, places: Tensor, shape: Tensor | None = None) -> Tensor:
    taps = at.attribute("kernel_shape")
    count = len(taps)
    strides, _ = _steps(at, count)
    sizes = [
        (x.shape[2 + n] - 1) * strides[n] - low - high + taps[n]
        for n, (low, high) in enumerate(_pads(at, count))
    ]
    whole = (*x.shape[:2], *sizes)
    empty = at.builder.splat(0, x.dtype, (prod(whole),))
    place = place_in(places.value, prod(whole))
    image = reshape(updated(empty, [place], x, None), whole)
    if shape is None:
        return image
    wanted = at.integers(2)
    more = [a - b for a, b in zip(wanted, whole, strict=True)]
    return pad(image, at.builder.splat(0, x.dtype), [0] * x.rank, more)


@op("LRN")
def local_response(at: Place, x: Tensor) -> Tensor:
    size, alpha = at.attribute("size"), at.attribute("alpha", 1e-4)
    beta, bias = at.attribute("beta", 0.75), at.attribute("bias", 1.0)
    low = (size - 1) // 2
    squares = elementwise(lambda s: s * s, x)
    rest = [1] * (x.rank - 2)
    total = reduce_window(
        [squares],
        [at.builder.splat(0, x.dtype)],
        "add",
        [1, size, *rest],
        padding=[(0, 0), (low, size - 1 - low), *((0, 0) for _ in rest)],
    )[0]

    def value(s: Expr, t: Expr) -> Expr:
        base = const(bias, s.type) + t * const(alpha / size, s.type)
        return s / unary("exp", unary("log", base) * const(beta, s.type))

    return elementwise(value, x, total)
