"""Factors of a matmul with scales and zero points for each group of neighbours along K.

    w[k, n] = (q[k, n] - zero_point[k // 64, n]) * scale[k // 64, n]
    x[m, k] = (q[m, k] - zero_point[m, k // 64]) * scale[m, k // 64]

Their values are a compute of their own in front of the product, a prologue of its factor: what
becomes of it, schedules decide.

Such weights of 4 bits lie two to a byte: an array of u8 that is half as long along K, of which byte
``j`` holds element ``2 j`` in its lower half and ``2 j + 1`` in its upper one. The layout is that
of this array: ``ab`` for (K / 2, N), ``ba`` for (N, K / 2) in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.dtypes import DType, s32, u8
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.expr import Expr, cast, const
from tilewright.ir.stmt import Allocate, Compute, Dim, Operand, Stmt, View
from tilewright.ops.attributes import Attributes, scale_name, zero_point_name
from tilewright.ops.domain import dim, extents, operand
from tilewright.problems import MatmulProblem, Scale, Shape, ZeroPoint
from tilewright.problems.numbers import held

# What the values are called until they are multiplied.
DEQUANTIZED = {"src": "dequantized_src", "weights": "dequantized"}


def has_groups(attributes: Attributes, tensor: str = "weights") -> bool:
    """Whether a scale or a zero point of ``tensor`` has groups."""
    factors = (attributes.scale(tensor), attributes.zero_point(tensor))
    return any(factor is not None and factor.group is not None for factor in factors)


def with_groups(attributes: Attributes) -> tuple[str, ...]:
    """The tensors that have groups."""
    return tuple(name for name in DEQUANTIZED if has_groups(attributes, name))


def along_k(tensor: str, rank: int) -> int:
    """The dim of ``tensor`` that is K."""
    return rank - 2 if tensor == "weights" else rank - 1


def as_held(shape: Shape, type: DType) -> tuple[Shape, DType]:
    """The array that holds weights of ``type``: those of 4 bits two to a byte."""
    if not type.is_nibble:
        return shape, type
    return (*shape[:-2], shape[-2] // 2, shape[-1]), u8


def factor_shape(factor: Scale | ZeroPoint, shape: Shape) -> Shape:
    """The shape of a factor with groups of a tensor of ``shape``: one dim for each that it varies
    along."""
    assert factor.group is not None
    dims = factor.policy.dims(len(shape), tensor=factor.tensor, driver="matmul")
    k = along_k(factor.tensor, len(shape))
    return tuple(shape[axis] // factor.group if axis == k else shape[axis] for axis in dims)


def check_groups(
    problem: MatmulProblem, types: Mapping[str, DType], attributes: Attributes, total: DType
) -> None:
    """Raises `UnsupportedError` for groups that a factor cannot have."""
    tensors = with_groups(attributes)
    for tensor in tensors:
        type = types[tensor]
        if not type.is_integer or type.bits > 8 or (tensor == "src" and type.is_nibble):
            raise UnsupportedError(
                f"{tensor} of {type} {'have' if tensor == 'weights' else 'has'} no groups of "
                "scales and zero points",
                where=tensor,
                cure=f"use {'u4, s4, ' if tensor == 'weights' else ''}u8 or s8, or leave the group "
                "out",
            )
    if not total.is_float:
        raise UnsupportedError(
            f"products of {types['src']} and {types['weights']} are added up in {total}, which has "
            "no room "
            "for scales of groups",
            where="src",
            why="a scale that varies along K is applied inside of the sum",
            cure="use f32, bf16 or f16 for src, or one scale for each column",
        )
    for tensor in tensors:
        for factor in (attributes.scale(tensor), attributes.zero_point(tensor)):
            if factor is not None and factor.group is not None:
                _check_group(factor, problem.k, len(problem.shapes[tensor]))
    if "weights" in tensors and types["weights"].is_nibble and problem.k % 2:
        raise UnsupportedError(
            f"{types['weights']} weights with groups lie two to a byte along K, and K = "
            f"{problem.k} is odd",
            where="weights",
            cure="add a row of zeros, and a column of zeros to src",
        )


def _check_group(factor: Scale | ZeroPoint, k: int, rank: int) -> None:
    where = factor.describe()
    dims = factor.policy.dims(rank, tensor=factor.tensor, driver="matmul")
    if along_k(factor.tensor, rank) not in dims:
        raise UnsupportedError(
            f"policy {factor.policy.name} does not vary along K, and has no groups there",
            where=where,
            cure="use policy per_ocic",
        )
    if k % factor.group if factor.group is not None else False:
        raise UnsupportedError(
            f"K = {k} is no multiple of the group of {factor.group}",
            where=where,
            why=f"a group of {factor.group} is longer than K"
            if factor.group is not None and factor.group > k
            else "all groups have as many elements",
            cure=f"choose a group that divides {k}",
        )


def without(attributes: Attributes, tensor: str) -> Attributes:
    """``attributes`` less what is applied where the numbers of ``tensor``, which has groups, are
    made of their parts: its zero point, and a scale with groups."""
    return replace(
        attributes,
        scales=tuple(e for e in attributes.scales if e.tensor != tensor or e.group is None),
        zero_points=tuple(e for e in attributes.zero_points if e.tensor != tensor),
    )


@dataclass(frozen=True)
class Dequantized:
    """The values of a factor with groups, the statements that make them, and where they are."""

    statements: tuple[Stmt, ...]
    buffer: Buffer


def dequantized(
    tensor: str,
    shape: Shape,
    held: DType,
    type: DType,
    attributes: Attributes,
    buffers: Mapping[str, Buffer],
) -> Dequantized:
    """``tensor`` of ``shape`` and the type ``held`` as numbers of ``type``."""
    domain = _domain(tensor, shape)
    target = buffer(DEQUANTIZED[tensor], type, shape)
    out = View(target, tuple(other.var for other in domain))
    q, value = _element(domain, held, buffers[tensor])
    operands = [q]
    value = cast(type, value)
    point, scale = attributes.zero_point(tensor), attributes.scale(tensor)
    if point is not None:
        value = value - _factor(point, zero_point_name(tensor), domain, type, buffers, operands)
    if scale is not None and scale.group is not None:
        value = value * _factor(scale, scale_name(tensor), domain, type, buffers, operands)
    name = "dequantize" if tensor == "weights" else f"dequantize_{tensor}"
    compute = Compute.single(name, domain, out, tuple(operands), value)
    return Dequantized((Allocate(target), compute), target)


def _domain(tensor: str, shape: Shape) -> tuple[Dim, ...]:
    # A batch dim of one element is none of the product's.
    batch = (f"b{i}" if size > 1 else f"one{i}" for i, size in enumerate(shape[:-2]))
    names = (*batch, *(("k", "n") if tensor == "weights" else ("m", "k")))
    return tuple(dim(name, size) for name, size in zip(names, shape, strict=True))


def _element(domain: tuple[Dim, ...], held: DType, weights: Buffer) -> tuple[Operand, Expr]:
    """An element: of weights of 4 bits, the half of a byte, as s32."""
    *batch, k, n = (other.var for other in domain)
    if not held.is_nibble:
        q = operand("q", weights, (*batch, k, n))
        return q, q.var
    q = operand("q", weights, (*batch, k // 2, n))
    first = cast(s32, k % 2 * 4)
    if held.kind == "uint":
        return q, (cast(s32, q.var) >> first) & const(15, s32)
    # The sign of the half becomes that of the number.
    return q, (cast(s32, q.var) << (const(28, s32) - first)) >> const(28, s32)


def _factor(
    factor: Scale | ZeroPoint,
    name: str,
    domain: tuple[Dim, ...],
    type: DType,
    buffers: Mapping[str, Buffer],
    operands: list[Operand],
) -> Expr:
    """A scale or zero point of an element, loaded as one more of ``operands``."""
    if factor.value is not None:
        return const(held(factor.value, type), type)
    dims = factor.policy.dims(len(domain), tensor=factor.tensor, driver="matmul")
    places: list[Expr] = [domain[axis].var for axis in dims]
    if factor.group is not None:
        k = dims.index(along_k(factor.tensor, len(domain)))
        places[k] = places[k] // factor.group
    else:
        # Without groups, an array has one dim for all that it varies along.
        flat: Expr = const(0)
        for place, size in zip(places, extents(domain[axis] for axis in dims), strict=True):
            flat = flat * size + place
        places = [flat]
    added = operand(name, buffers[name], places)
    operands.append(added)
    return cast(type, added.var)
