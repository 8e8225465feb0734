"""The arguments that attributes add to a kernel: bias, scales, zero points, post-op tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.dtypes import f32
from tilewright.errors import LayoutError, UnsupportedError
from tilewright.ir.buffer import row_major
from tilewright.layout.tags import ANY, layout_of
from tilewright.ops.attributes import Attributes, scale_name, zero_point_name
from tilewright.ops.group_factors import factor_shape
from tilewright.ops.op import Argument
from tilewright.problems import Binary, Prelu, Scale, Shape, Sum, ZeroPoint


def attribute_arguments(
    attributes: Attributes,
    result: Argument,
    inputs: Mapping[str, Argument],
    *,
    driver: str,
    channel: int = 1,
    grouped: tuple[str, ...] = (),
) -> tuple[Argument, ...]:
    """The arguments in the order bias, zero points, scales, post-op tensors.

    ``result`` is what the epilogue writes, whose dim ``channel`` the bias varies along; ``inputs``
    are the tensors that scales can be given for; ``grouped`` names those with a dim of groups.

    Raises `UnsupportedError` for a scale of a tensor that is not there, or zero points of
    sources that are floats.
    """
    tensors = {**inputs, "dst": result}
    for post_op in attributes.post_ops:
        kind = post_op.dtype if isinstance(post_op, Sum) else None
        if kind is not None and kind.bits != result.dtype.bits:
            raise UnsupportedError(
                f"sum reads the result as {kind}, and it is {result.dtype}",
                where=post_op.describe(),
                why="the old result has other bits",
                cure="leave the type out, or name one of as many bits",
            )
    added: list[Argument] = []
    if attributes.bias is not None:
        size = (result.shape[channel],)
        added.append(Argument("bias", size, attributes.bias, row_major(size), "in", "bias"))
    for point in attributes.zero_points:
        target = _target(point.tensor, tensors, "zero point", driver)
        if point.tensor != "dst" and not target.dtype.is_integer:
            raise UnsupportedError(
                f"{point.tensor} is {target.dtype}, which has no zero point",
                cure="use an integer type, or leave the zero point out",
            )
        if point.tensor == "src" and point.policy.name != "common" and point.group is None:
            raise UnsupportedError(
                "a zero point of src is one for the whole tensor",
                where=point.describe(),
                cure="use policy common, or groups of a matmul's",
            )
        if point.dtype.is_nibble and point.tensor != "weights":
            raise UnsupportedError(
                f"a zero point of {point.tensor} is not kept in {point.dtype}",
                where=point.describe(),
                cure="use s8, u8 or s32",
            )
        if point.value is None:
            shape = _shape(point, target, driver, grouped)
            name = zero_point_name(point.tensor)
            layout = row_major(shape)
            added.append(Argument(name, shape, point.dtype, layout, "in", "zero_point"))
    for scale in attributes.scales:
        target = _target(scale.tensor, tensors, "scale", driver)
        if scale.value is None:
            shape = _shape(scale, target, driver, grouped)
            name = scale_name(scale.tensor)
            added.append(Argument(name, shape, scale.dtype, row_major(shape), "in", "scale"))
    for position, post_op in attributes.tensors:
        added.append(_post_op(attributes.name_of(position), post_op, result, driver))
    return tuple(added)


def _target(tensor: str, tensors: Mapping[str, Argument], what: str, driver: str) -> Argument:
    if tensor not in tensors:
        raise UnsupportedError(
            f"{driver} takes no {what} for {tensor}",
            cure="choose one of " + ", ".join(tensors),
        )
    return tensors[tensor]


def _shape(
    factor: Scale | ZeroPoint, target: Argument, driver: str, grouped: tuple[str, ...]
) -> Shape:
    """One dim for all that vary, row-major, so that grouped channels count through; with groups
    along K, one for each."""
    if factor.group is not None:
        if driver != "matmul":
            raise UnsupportedError(
                f"{driver} takes no groups of scales and zero points",
                where=factor.describe(),
                why="they lie along K, and only a matmul's weights have them",
                cure="use policy per_oc, or write the product as a matmul",
            )
        return factor_shape(factor, target.shape)
    name = "dst" if target.access != "in" else target.name
    rank = len(target.shape)
    chosen = factor.policy.dims(rank, tensor=name, driver=driver, grouped=name in grouped)
    return (math.prod(target.shape[number] for number in chosen),)


def _post_op(name: str, post_op: Binary | Prelu, result: Argument, driver: str) -> Argument:
    """The tensor of a post-op: as many dims as the result, 1 where it is broadcast.

    Without a tag, one of the result's shape has the result's layout.
    """
    chosen = post_op.policy.dims(len(result.shape), tensor="dst", driver=driver)
    shape = tuple(size if dim in chosen else 1 for dim, size in enumerate(result.shape))
    tag = post_op.tag if isinstance(post_op, Binary) else ANY
    type_ = post_op.dtype if isinstance(post_op, Binary) else f32
    if tag == ANY:
        layout = result.layout if shape == result.shape else row_major(shape)
    else:
        try:
            layout = layout_of(tag, shape)
        except LayoutError as error:
            raise LayoutError(
                error.what,
                where=error.where,
                why=error.why or f"of the operand {name}",
                cure=error.cure,
            ) from None
    return Argument(name, shape, type_, layout, "in", "post_op")
