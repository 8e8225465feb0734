"""Images sampled at places that are computed: grids, regions, deformable convolutions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tilewright.frontends.onnx.table import Place, op, refuse
from tilewright.ir.expr import Expr, cast, const, maximum, select
from tilewright.problems.functions import number
from tilewright.tensor.contractions import accumulator_for, dot_general
from tilewright.tensor.convolution import with_bias
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.nn.sampling import (
    LINEAR,
    NEAREST,
    Taps,
    cubic,
    grid_sampled,
    nearest_within,
    sampled,
    taps,
)
from tilewright.tensor.places import axes, axis
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_in_dim, reshape, transpose

_KERNELS = {
    "nearest": NEAREST,
    "linear": LINEAR,
    "bilinear": LINEAR,
    "cubic": cubic(-0.75),
    "bicubic": cubic(-0.75),
}


@op("GridSample")
def grid_sample(at: Place, x: Tensor, grid: Tensor) -> Tensor:
    mode, outside = at.attribute("mode", "linear"), at.attribute("padding_mode", "zeros")
    if mode not in _KERNELS or outside not in ("zeros", "border", "reflection"):
        refuse(f"sampling by {mode} with {outside} outside")
    corners = bool(at.attribute("align_corners", 0))
    return grid_sampled(x, grid, _KERNELS[mode], outside, corners)


@op("RoiAlign")
def roi_align(at: Place, x: Tensor, rois: Tensor, images: Tensor) -> Tensor:
    ratio, how = at.attribute("sampling_ratio", 0), at.attribute("mode", "avg")
    if ratio <= 0:
        refuse("regions are sampled more or less often by their sizes", "export a sampling_ratio")
    usual = "half_pixel" if at.version >= 16 else "output_half_pixel"
    half = at.attribute("coordinate_transformation_mode", usual) == "half_pixel"
    scale, count = at.attribute("spatial_scale", 1.0), rois.shape[0]
    sizes = (at.attribute("output_height", 1), at.attribute("output_width", 1))
    fine = [size * ratio for size in sizes]
    inside: list[Tensor] = []
    along: list[Taps] = []
    for n, (first, size) in enumerate(((1, x.shape[2]), (0, x.shape[3]))):
        where = _region(at, rois, first, half, scale, sizes[n], ratio)
        where = where.viewed((count, *fine), [axis(0), axis(1 + n)])
        inside.append(elementwise(lambda v, s=size: (v >= -1.0) & (v <= float(s)), where))
        # The last element counts as its own neighbour.
        moved = elementwise(
            lambda v, s=size: select(v >= float(s - 1), number(s - 1, v), maximum(v, number(0, v))),
            where,
        )
        along.append(taps(moved, LINEAR, _last_again(size)))
    value = _regions(x, images, along, how)
    kept = elementwise(lambda a, b: a & b, *inside)
    spread = broadcast_in_dim(kept, value.shape, (0, 2, 3))
    value = elementwise(lambda v, k: select(k, v, number(0, v)), value, spread)
    value = reshape(value, (*value.shape[:2], sizes[0], ratio, sizes[1], ratio))
    if how == "max":
        return convert(combined(value, (3, 5), "max"), x.dtype)
    total = combined(value, (3, 5), "add")
    return elementwise(lambda t: t / number(ratio * ratio, t), total, dtype=x.dtype)


def _last_again(size: int) -> Callable[[Expr], Expr]:
    return lambda place: nearest_within(place, size)


def _region(
    at: Place, rois: Tensor, first: int, half: bool, scale: float, size: int, ratio: int
) -> Tensor:
    """Where the rows or columns of regions are sampled: (regions, places)."""

    def corner(n: int) -> Expr:
        expr = cast(accumulator_for(rois.dtype), rois.at(axis(0), const(n)))
        expr = expr * number(scale, expr)
        return expr - number(0.5, expr) if half else expr

    start, stop = corner(first), corner(first + 2)
    length = stop - start if half else maximum(stop - start, number(1.0, start))
    step = length / number(size, start)
    place = axis(1)
    bin_, part = cast(start.type, place // ratio), cast(start.type, place % ratio)
    value = start + bin_ * step + (part + number(0.5, part)) * step / number(ratio, part)
    tensor = at.builder.tensor((rois.shape[0], size * ratio), value)
    return at.builder.materialize(tensor, at.builder.named("regions"))


def _regions(x: Tensor, images: Tensor, along: list[Taps], how: str) -> Tensor:
    """What is sampled of the image that each region is of."""
    image = cast(axis(0).type, images.at(axis(0)))
    image = nearest_within(image, x.shape[0])
    shape = (images.shape[0], *x.shape[1:])
    tensor = convert(x, accumulator_for(x.dtype)).viewed(shape, [image, *axes(x.rank)[1:]])
    return sampled(tensor, along, "add" if how == "avg" else "max")


@op("DeformConv")
def deformed(
    at: Place,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    if x.rank != 4:
        refuse(f"deformable convolution of {x.rank - 2} dims")
    group, parts = at.attribute("group", 1), at.attribute("offset_group", 1)
    images, channels = x.shape[:2]
    kernel, result = weight.shape[2:], offset.shape[2:]
    count = prod(kernel)
    type_ = accumulator_for(x.dtype)
    offsets = reshape(convert(offset, type_), (images * parts, count, 2, *result))
    along = [taps(_shifted(at, offsets, kernel, n), LINEAR) for n in range(2)]
    folded = reshape(x, (images * parts, channels // parts, *x.shape[2:]))
    columns = sampled(convert(folded, type_), along)
    if mask is not None:
        factors = reshape(convert(mask, type_), (images * parts, count, *result))
        spread = broadcast_in_dim(factors, columns.shape, (0, 2, 3, 4))
        columns = elementwise(lambda c, m: c * m, columns, spread)
    inner, outer = channels // group, weight.shape[0] // group
    columns = reshape(columns, (images, group, inner * count, prod(result)))
    matrix = reshape(convert(weight, type_), (group, outer, inner * count))
    sums = dot_general(matrix, columns, ((0,), (1,)), ((2,), (2,)))
    sums = reshape(transpose(sums, (2, 0, 1, 3)), (images, weight.shape[0], *result))
    return with_bias(sums, bias, x.dtype)


def _shifted(at: Place, offsets: Tensor, kernel: tuple[int, ...], n: int) -> Tensor:
    """Where taps are along dim ``n``: (images and groups, taps, rows, columns)."""
    strides, steps = at.attribute("strides", [1, 1]), at.attribute("dilations", [1, 1])
    pads = at.attribute("pads", [0] * 4)
    tap = axis(1) // kernel[1] if n == 0 else axis(1) % kernel[1]
    place = axis(2 + n) * strides[n] - pads[n] + tap * steps[n]
    shift = offsets.at(axis(0), axis(1), const(n), axis(2), axis(3))
    shape = (*offsets.shape[:2], *offsets.shape[3:])
    tensor = at.builder.tensor(shape, cast(shift.type, place) + shift)
    return at.builder.materialize(tensor, at.builder.named("places"))
