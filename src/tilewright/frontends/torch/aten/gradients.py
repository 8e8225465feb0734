"""Ops that backward graphs have: gradients of convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import DType
from tilewright.frontends.torch.aten.pooling import averaged, spatial_windows
from tilewright.frontends.torch.aten.products import Sliding, slid, spread, weight_gradient
from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import Expr, all_of, binary, const, select
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.convolution import Window
from tilewright.tensor.elementwise import convert
from tilewright.tensor.nn.pooling import pooled
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor, axis, guarded


@aten("convolution_backward.default")
def convolution_backward(
    at: Place,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    window = Sliding.of(grad.rank - 2, stride, padding, dilation, groups)
    sums = accumulator_for(grad.dtype)
    found: list[Tensor | None] = [None, None, None]
    if output_mask[0]:
        by_input = (
            slid(grad, weight, window, sums)
            if transposed
            else spread(grad, weight, window, x.shape[2:], sums)
        )
        found[0] = convert(by_input, x.dtype)
    if output_mask[1]:
        image, windows = (grad, x) if transposed else (x, grad)
        by_weight = weight_gradient(image, windows, window, weight.shape[2:], sums)
        found[1] = convert(by_weight, weight.dtype)
    if output_mask[2]:
        others = [n for n in range(grad.rank) if n != 1]
        found[2] = convert(combined(convert(grad, sums), others, "add"), grad.dtype)
    return tuple(found)


@aten("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def avg_pool_backward(
    at: Place,
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    kernel = tuple(kernel) * (2 if len(kernel) == 1 else 1)
    windows = spatial_windows(x.shape, grad.shape, kernel, stride, padding)
    first = x.rank - len(windows)
    sizes = x.shape[first:]
    type_ = accumulator_for(grad.dtype)
    parts = convert(grad, type_)
    parts = averaged(parts, windows, sizes, count_include_pad, divisor_override, type_)
    back = [_back(window, parts.shape[first + n], sizes[n]) for n, window in enumerate(windows)]
    return convert(pooled(parts, back, "add"), at.dtype)


def _back(window: Window, windows: int, size: int) -> Window:
    """The window over windows that have an element, for each element of ``size``."""
    low = (window.taps - 1) * window.dilation - window.low
    length = (windows - 1) * window.stride + 1
    high = size + (window.taps - 1) * window.dilation - length - low
    return Window(window.taps, 1, low, high, window.stride, window.dilation)


@aten("max_pool2d_with_indices_backward.default")
def max_pool_backward(
    at: Place,
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    places: Tensor,
) -> Tensor:
    kernel = tuple(kernel) * (2 if len(kernel) == 1 else 1)
    windows = spatial_windows(x.shape, grad.shape, kernel, stride, padding, dilation)
    rank, first = x.rank, x.rank - len(windows)
    index: list[Expr] = [axis(n) for n in range(first)]
    conditions: list[Expr] = []
    flat: Expr = const(0)
    for n, window in enumerate(windows):
        size, count = x.shape[first + n], grad.shape[first + n]
        place, needed = _back(window, count, size).place(axis(first + n), axis(rank + n), count)
        index.append(place)
        conditions += needed
        flat = flat * size + axis(first + n)
    type_ = accumulator_for(grad.dtype)
    value = _taken(convert(grad, type_).at(*index), places.at(*index), flat, type_)
    inside = all_of(conditions)
    if inside is not None:
        value = guarded(value, inside, const(0, type_))
    taps = [window.taps for window in windows]
    seen = at.builder.tensor((*x.shape, *taps), value)
    return convert(combined(seen, range(rank, rank + len(taps)), "add"), at.dtype)


def _taken(value: Expr, place: Expr, here: Expr, type_: DType) -> Expr:
    """``value``, where the window's greatest element is the one ``here``."""
    return select(binary("eq", place, here), value, const(0, type_))
