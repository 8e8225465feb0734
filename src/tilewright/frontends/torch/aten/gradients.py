"""Ops that backward graphs have: gradients of convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.torch.aten.pooling import averaged, spatial_windows
from tilewright.frontends.torch.aten.products import Sliding, slid, spread, weight_gradient
from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import binary, const, select
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.convolution import Windowed
from tilewright.tensor.elementwise import convert
from tilewright.tensor.nn.pooling import pooled
from tilewright.tensor.places import axes, linear_index
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor


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
    gradients: list[Tensor | None] = [None, None, None]
    if output_mask[0]:
        by_input = (
            slid(grad, weight, window, sums)
            if transposed
            else spread(grad, weight, window, x.shape[2:], sums)
        )
        gradients[0] = convert(by_input, x.dtype)
    if output_mask[1]:
        image, windows = (grad, x) if transposed else (x, grad)
        by_weight = weight_gradient(image, windows, window, weight.shape[2:], sums)
        gradients[1] = convert(by_weight, weight.dtype)
    if output_mask[2]:
        others = [n for n in range(grad.rank) if n != 1]
        gradients[2] = convert(combined(convert(grad, sums), others, "add"), grad.dtype)
    return tuple(gradients)


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
    windows = spatial_windows(at, x.shape, grad.shape, kernel, stride, padding)
    first = x.rank - len(windows)
    sizes = x.shape[first:]
    type_ = accumulator_for(grad.dtype)
    parts = convert(grad, type_)
    parts = averaged(parts, windows, sizes, count_include_pad, divisor_override, type_)
    back = [window.back(size) for window, size in zip(windows, sizes, strict=True)]
    return convert(pooled(parts, back, "add"), at.dtype)


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
    windows = spatial_windows(at, x.shape, grad.shape, kernel, stride, padding, dilation)
    first = x.rank - len(windows)
    sizes = x.shape[first:]
    back = [window.back(size) for window, size in zip(windows, sizes, strict=True)]
    windowed = Windowed.of(grad.shape, back)
    here = linear_index(axes(x.rank)[first:], sizes)
    parts = convert(grad, accumulator_for(grad.dtype))
    zero = const(0, parts.dtype)
    index = windowed.index
    value = select(binary("eq", places.at(*index), here), parts.at(*index), zero)
    seen = at.builder.tensor(windowed.shape, windowed.guarded(value, zero))
    return convert(combined(seen, range(x.rank, seen.rank), "add"), at.dtype)
