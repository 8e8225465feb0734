"""Convolutions, pooling, and images of another size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any

import numpy as np

from tilewright.dtypes import DType, s64
from tilewright.frontends.onnx.multiplying import centered, requantized
from tilewright.frontends.onnx.table import Place, op, refuse
from tilewright.graph.contractions import accumulator_for
from tilewright.graph.convolution import Window, convolution, transposed_convolution
from tilewright.graph.elementwise import convert, elementwise
from tilewright.graph.reductions import combined, reduce
from tilewright.graph.tensor import Tensor, axis, guarded
from tilewright.graph.views import broadcast_in_dim, reshape
from tilewright.graph.windows import reduce_window
from tilewright.ir.expr import Expr, all_of, binary, cast, const, maximum, minimum, select, unary

Pairs = list[tuple[int, int]]


def _padding(
    at: Place,
    sizes: Sequence[int],
    taps: Sequence[int],
    strides: Sequence[int],
    steps: Sequence[int],
) -> Pairs:
    """How much is padded in front of and behind each spatial dim."""
    count, auto = len(taps), at.attribute("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = at.attribute("pads", [0] * 2 * count)
        return [(pads[n], pads[count + n]) for n in range(count)]
    if auto == "VALID":
        return [(0, 0)] * count
    found: Pairs = []
    for size, tap, stride, step in zip(sizes, taps, strides, steps, strict=True):
        total = max(0, (ceil(size / stride) - 1) * stride + (tap - 1) * step + 1 - size)
        small, large = total // 2, total - total // 2
        found.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return found


def convolved(
    at: Place, x: Tensor, weight: Tensor, bias: Tensor | None, type_: DType, result: DType
) -> Tensor:
    """The convolution that a node asks for, in ``type_``, as ``result``."""
    count = x.rank - 2
    strides = at.attribute("strides", [1] * count)
    steps = at.attribute("dilations", [1] * count)
    found = convolution(
        x,
        weight,
        strides=strides,
        padding=_padding(at, x.shape[2:], weight.shape[2:], strides, steps),
        dilations=steps,
        feature_groups=at.attribute("group", 1),
        dtype=type_,
    )
    if bias is None:
        return convert(found, result)
    spread = broadcast_in_dim(bias, found.shape, (1,))
    return elementwise(lambda s, b: s + cast(s.type, b), found, spread, dtype=result)


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
    if scale_w.elements != 1:
        refuse("scales of channels")
    a, b = centered(x, zero_x, 1), centered(weight, zero_w, 0)
    sums = convolved(at, a, b, bias, a.dtype, a.dtype)
    return requantized(sums, (scale_x, scale_w, scale), zero)


@op("ConvTranspose")
def conv_transpose(at: Place, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    count, groups = x.rank - 2, at.attribute("group", 1)
    strides = at.attribute("strides", [1] * count)
    steps = at.attribute("dilations", [1] * count)
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
        pads = at.attribute("pads", [0] * 2 * count)
        cut = [(pads[n], pads[count + n]) for n in range(count)]
    # The image has more elements at the end than the windows reach.
    padding = [(low, high - more[n]) for n, (low, high) in enumerate(cut)]
    sums = accumulator_for(x.dtype)
    found = transposed_convolution(x, weight, padding, strides, steps, groups, sums)
    if bias is None:
        return convert(found, x.dtype)
    spread = broadcast_in_dim(bias, found.shape, (1,))
    return elementwise(lambda s, b: s + cast(s.type, b), found, spread, dtype=x.dtype)


def _windows(at: Place, x: Tensor) -> list[Window]:
    """The windows of a pooling node along its spatial dims."""
    taps = at.attribute("kernel_shape")
    count = len(taps)
    strides = at.attribute("strides", [1] * count)
    steps = at.attribute("dilations", [1] * count)
    pads = _padding(at, x.shape[2:], taps, strides, steps)
    found: list[Window] = []
    for n in range(count):
        low, high = pads[n]
        if at.attribute("ceil_mode", 0):
            size, reach = x.shape[2 + n], (taps[n] - 1) * steps[n] + 1
            windows = ceil((size + low + high - reach) / strides[n]) + 1
            if (windows - 1) * strides[n] >= size + low:
                windows -= 1  # it would begin behind the image
            high = (windows - 1) * strides[n] + reach - size - low
        found.append(Window(taps[n], strides[n], low, high, 1, steps[n]))
    return found


def _pooled(x: Tensor, windows: Sequence[Window], combiner: str) -> Tensor:
    identity = {"add": 0, "max": x.dtype.lowest}[combiner]
    return reduce_window(
        [x],
        [x.builder.splat(identity, x.dtype)],
        combiner,
        [1, 1, *(each.taps for each in windows)],
        strides=[1, 1, *(each.stride for each in windows)],
        padding=[(0, 0), (0, 0), *((each.low, each.high) for each in windows)],
        dilations=[1, 1, *(each.dilation for each in windows)],
    )[0]


@op("MaxPool")
def max_pool(at: Place, x: Tensor) -> tuple[Tensor, ...]:
    windows = _windows(at, x)
    values = _pooled(x, windows, "max")
    if len(at.shapes) < 2:
        return (values,)
    order = [*range(2, x.rank)]
    order = order[::-1] if at.attribute("storage_order", 0) else order
    return values, _places(x, values.shape, windows, order)


def _places(
    x: Tensor, shape: Sequence[int], windows: Sequence[Window], order: Sequence[int]
) -> Tensor:
    """Where the greatest element of each window is, counted through the whole tensor."""
    rank = x.rank
    index: list[Expr] = [axis(0), axis(1)]
    conditions: list[Expr] = []
    for n, window in enumerate(windows, 2):
        place, needed = window.place(axis(n), axis(rank + n - 2), x.shape[n])
        index.append(place)
        conditions += needed
    flat: Expr = axis(0) * x.shape[1] + axis(1)
    for n in order:
        flat = flat * x.shape[n] + index[n]
    inside = all_of(conditions)
    lowest = const(x.dtype.lowest, x.dtype)
    value = x.at(*index)
    seen = (*shape, *(each.taps for each in windows))
    values = x.builder.tensor(seen, value if inside is None else guarded(value, inside, lowest))
    places = x.builder.tensor(seen, flat if inside is None else select(inside, flat, const(-1)))

    def better(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, Expr]:
        wins = ((old[0] < new[0]) | (old[1] < 0)) & (new[1] >= 0)
        return select(wins, new[0], old[0]), select(wins, new[1], old[1])

    initials = [x.builder.splat(x.dtype.lowest, x.dtype), x.builder.splat(-1, s64)]
    return reduce([values, places], initials, range(rank, len(seen)), better)[1]


def _counted(shape: Sequence[int], windows: Sequence[Window], at: Place, x: Tensor) -> Expr:
    """How many elements count in each window."""
    found: Expr = const(1)
    pads = at.attribute("count_include_pad", 0)
    given = _padding(
        at,
        x.shape[2:],
        [w.taps for w in windows],
        [w.stride for w in windows],
        [w.dilation for w in windows],
    )
    for n, window in enumerate(windows):
        size = x.shape[2 + n]
        start = axis(2 + n) * window.stride - window.low
        low, high = (-window.low, size + given[n][1]) if pads else (0, size)
        if window.dilation == 1:
            length = minimum(start + window.taps, const(high)) - maximum(start, const(low))
        else:
            step = window.dilation
            first = maximum(const(low) - start, const(0))
            before = (first + (step - 1)) // step
            behind = minimum((const(high - 1) - start) // step + 1, const(window.taps))
            length = behind - before
        found = found * length
    return found


@op("AveragePool")
def average_pool(at: Place, x: Tensor) -> Tensor:
    windows, type_ = _windows(at, x), accumulator_for(x.dtype)
    total = _pooled(convert(x, type_), windows, "add")
    number = at.builder.tensor(total.shape, cast(type_, _counted(total.shape, windows, at, x)))
    return elementwise(lambda t, n: t / n, total, number, dtype=x.dtype)


@op("LpPool")
def lp_pool(at: Place, x: Tensor) -> Tensor:
    p = at.attribute("p", 2)
    values = elementwise(
        lambda s: _raised(unary("abs", s), p), convert(x, accumulator_for(x.dtype))
    )
    total = _pooled(values, _windows(at, x), "add")
    return elementwise(lambda t: _raised(t, 1 / p), total, dtype=x.dtype)


def _raised(x: Expr, exponent: float) -> Expr:
    if exponent in (1, 2):
        return x if exponent == 1 else x * x
    if exponent == 0.5:
        return unary("sqrt", x)
    return binary("pow", x, const(exponent, x.type))


@op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(at: Place, x: Tensor) -> Tensor:
    dims = range(2, x.rank)
    shape = (*x.shape[:2], *(1 for _ in dims))
    if at.op == "GlobalMaxPool":
        return reshape(combined(x, dims, "max"), shape)
    count = float(prod(x.shape[2:]))
    total = combined(convert(x, accumulator_for(x.dtype)), dims, "add")
    return reshape(elementwise(lambda s: s / const(count, s.type), total, dtype=x.dtype), shape)


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


@op("Resize", "Upsample")
def resize(at: Place, x: Tensor, *given: Tensor | None) -> Tensor:
    """By tables of places and weights for each dim, which are made here."""
    scales, shape, dims = _resized(at, x)
    mode = at.attribute("mode", "nearest")
    if at.attribute("antialias", 0):
        refuse(f"resizing by {mode}, antialiased")
    result = list(x.shape)
    for n, size in zip(dims, shape, strict=True):
        result[n] = size
    found = x
    coordinate = at.attribute("coordinate_transformation_mode", "half_pixel")
    if at.op == "Upsample" or at.version < 11:
        coordinate = "asymmetric"
    if coordinate == "tf_crop_and_resize":
        refuse("resizing of a crop")
    for n, scale in zip(dims, scales, strict=True):
        if result[n] != x.shape[n] or scale != 1:
            places = _coordinates(coordinate, x.shape[n], result[n], scale)
            found = _along(at, found, n, places, mode)
    return found


def _resized(at: Place, x: Tensor) -> tuple[list[float], list[int], list[int]]:
    """Scales, sizes and numbers of the dims that change."""
    dims = [n % x.rank for n in at.attribute("axes", range(x.rank))]
    number = 1 if at.op == "Upsample" or at.version < 11 else 2
    if "scales" in at.attributes or (
        at.has(number) and at.known[number] is not None and at.values(number).size
    ):
        raw = at.attributes.get("scales")
        scales = [float(each) for each in (at.values(number) if raw is None else raw)]
        return scales, [int(x.shape[n] * s) for n, s in zip(dims, scales, strict=True)], dims
    sizes = [int(each) for each in at.values(3 if at.has(3) else number)]
    scales = [size / x.shape[n] for n, size in zip(dims, sizes, strict=True)]
    policy = at.attribute("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        scale = (min if policy == "not_larger" else max)(scales)
        scales = [scale] * len(dims)
        sizes = [int(x.shape[n] * scale + 0.5) for n in dims]
    return scales, sizes, dims


def _coordinates(mode: str, size: int, result: int, scale: float) -> np.ndarray[Any, Any]:
    """Where each place of the result lies in the source."""
    places = np.arange(result, dtype=np.float64)
    if mode == "asymmetric":
        return places / scale
    if mode == "align_corners":
        return places * (size - 1) / (result - 1) if result > 1 else np.zeros(result)
    if mode == "pytorch_half_pixel" and result == 1:
        return np.full(1, -0.5)
    if mode == "half_pixel_symmetric":
        adjustment = result / (scale * size)
        center = size / 2
        return center * (1 - adjustment) + (places + 0.5) / scale - 0.5
    return (places + 0.5) / scale - 0.5


def _taps(
    at: Place, places: np.ndarray[Any, Any], size: int, mode: str
) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Places in the source and their weights, for each neighbour that counts. Keys, "Cubic
    Convolution Interpolation for Digital Image Processing", 1981."""
    low = np.floor(places)
    part = places - low
    if mode == "linear":
        tables = [(low, 1 - part), (low + 1, part)]
    elif mode == "cubic":
        a = at.attribute("cubic_coeff_a", -0.75)
        far = [a * (((d - 5) * d + 8) * d - 4) for d in (1 + part, 2 - part)]
        near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (part, 1 - part)]
        weights = [far[0], near[0], near[1], far[1]]
        tables = [(low + n - 1, weight) for n, weight in enumerate(weights)]
    else:
        refuse(f"resizing by {mode}")
    if at.attribute("exclude_outside", 0):
        inside = [(p, w * ((p >= 0) & (p < size))) for p, w in tables]
        total = sum(w for _, w in inside)
        tables = [(p, w / total) for p, w in inside]
    return tables


_NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _along(at: Place, x: Tensor, n: int, places: np.ndarray[Any, Any], mode: str) -> Tensor:
    size = x.shape[n]
    shape = (*x.shape[:n], len(places), *x.shape[n + 1 :])

    def entry(table: np.ndarray[Any, Any]) -> Expr:
        return at.builder.constant(table).at(axis(n))

    def element(table: np.ndarray[Any, Any]) -> Expr:
        place = entry(np.clip(table, 0, size - 1).astype(np.int64))
        return x.at(*(place if k == n else axis(k) for k in range(x.rank)))

    if mode == "nearest":
        usual = "floor" if at.op == "Upsample" or at.version < 11 else "round_prefer_floor"
        value = element(np.asarray(_NEAREST[at.attribute("nearest_mode", usual)](places)))
    else:
        type_ = accumulator_for(x.dtype)
        total: Expr | None = None
        for table, weights in _taps(at, places, size, mode):
            part = cast(type_, element(table)) * cast(type_, entry(weights.astype(np.float32)))
            total = part if total is None else total + part
        assert total is not None
        value = cast(x.dtype, total)
    return at.builder.materialize(at.builder.tensor(shape, value), at.builder.named("resize"))
