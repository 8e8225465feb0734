"""Quantizing and dequantizing, as exports of quantized models have them, and products with weights
of 4 and 8 bits."""

from __future__ import annotations

from typing import Any

import torch

from tilewright.dtypes import DType, f32, s32, u8
from tilewright.frontends.torch.table import Place, aten, refuse
from tilewright.ir.expr import Expr, cast, const, select, unary
from tilewright.problems.functions import clamped
from tilewright.tensor.contractions import accumulator_for, dot_general
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.nn.group_weights import dequantized as dequantized_groups
from tilewright.tensor.places import axes
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_in_dim, broadcast_to, reshape


def _along(x: Tensor, value: Any, axis: int | None) -> Tensor:
    """A scale or a zero point at each place of ``x``: of all, or of each place along ``axis``."""
    if not isinstance(value, Tensor):
        return x.builder.splat(float(value), f32, x.shape)
    value = convert(value, f32)
    if axis is None or value.elements == 1:
        return broadcast_to(reshape(value, ()), x.shape)
    return broadcast_in_dim(reshape(value, (value.elements,)), x.shape, (axis % x.rank,))


def _quantized(at: Place, x: Tensor, factors: tuple[Tensor, Tensor], low: int, high: int) -> Tensor:
    """The numbers next to ``x * (1 / scale) + zero``, rounded to even before the zero point is
    added."""
    to = at.dtype

    def value(v: Expr, s: Expr, z: Expr) -> Expr:
        place = unary("round", cast(f32, v) * (const(1.0, f32) / s)) + z
        return cast(to, clamped(place, low, high))

    return elementwise(value, x, *factors, name="quantize")


def _dequantized(at: Place, x: Tensor, factors: tuple[Tensor, Tensor]) -> Tensor:
    """``(x - zero) * scale`` in f32, rounded to the result's type."""
    to = at.dtype

    def value(q: Expr, s: Expr, z: Expr) -> Expr:
        return cast(to, (cast(f32, q) - z) * s)

    return elementwise(value, x, *factors, name="dequantize")


@aten(
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
)
def quantize(at: Place, x: Tensor, scale: Any, zero: Any, low: int, high: int, _: Any) -> Tensor:
    return _quantized(at, x, (_along(x, scale, None), _along(x, zero, None)), low, high)


@aten("quantized_decomposed.quantize_per_channel.default")
def quantize_channels(
    at: Place, x: Tensor, scale: Tensor, zero: Tensor, axis: int, low: int, high: int, _: Any
) -> Tensor:
    return _quantized(at, x, (_along(x, scale, axis), _along(x, zero, axis)), low, high)


@aten(
    "quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
)
def dequantize(at: Place, x: Tensor, scale: Any, zero: Any, *_: Any, **__: Any) -> Tensor:
    return _dequantized(at, x, (_along(x, scale, None), _along(x, zero, None)))


@aten("quantized_decomposed.dequantize_per_channel.default")
def dequantize_channels(
    at: Place, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int, *_: Any, **__: Any
) -> Tensor:
    return _dequantized(
        at, x, (_along(x, scale, axis), _along(x, 0 if zero is None else zero, axis))
    )


@aten("_weight_int8pack_mm.default")
def int8_weights(at: Place, x: Tensor, w: Tensor, scales: Tensor) -> Tensor:
    """By weights of s8, (N, K), with a scale for each column of the result."""
    sums = _product(at, x, convert(w, accumulator_for(x.dtype)))
    factors = broadcast_in_dim(convert(scales, sums.dtype), sums.shape, (1,))
    return convert(elementwise(lambda a, b: a * b, sums, factors), at.dtype)


@aten("_weight_int4pack_mm_for_cpu.default")
def int4_weights(at: Place, x: Tensor, packed: Tensor, group: int, factors: Tensor) -> Tensor:
    """By weights of 4 bits: ``(q - 8) * scale + zero``, of which ``factors``, of (K / group, N, 2),
    have both.

    PyTorch packs blocks of columns: a byte has a column of the block's first half in its lower
    half, and one of the second in its upper one.
    """
    n, k, block = packed.shape[0], 2 * packed.shape[1], _columns()
    if n % block:
        refuse(f"weights of 4 bits of {n} columns, which are no blocks of {block}")
    half = block // 2
    (column, row) = axes(2)
    bytes_ = reshape(packed, (n // block, k, half))
    shift = cast(s32, column // half % 2 * 4)

    def halves(q: Expr, after: Expr) -> Expr:
        """A byte with two neighbours along K, in one step, which takes no more memory."""
        low, high = ((cast(s32, expr) >> shift) & const(15, s32) for expr in (q, after))
        return cast(u8, low + high * const(16, s32))

    places = [[column // block, row * 2 + i, column % half] for i in (0, 1)]
    pair = elementwise(
        halves, *(bytes_.viewed((n, k // 2), place) for place in places), name="halves"
    )
    groups = (n, factors.shape[0])
    scale, shifted = (convert(factors.viewed(groups, [row, column, i]), f32) for i in (0, 1))

    def zero(s: Expr, z: Expr) -> Expr:
        return const(8.0, f32) - z / select(s.__eq__(0.0), const(_TINY, f32), s)

    def not_zero(s: Expr) -> Expr:
        return select(s.__eq__(0.0), const(_TINY, f32), s)

    points = elementwise(zero, scale, shifted, name="zero_points")
    scales = elementwise(not_zero, scale, name="scales")
    w = dequantized_groups(pair, 4, scales, points, group)
    return convert(_product(at, x, convert(w, accumulator_for(x.dtype))), at.dtype)


def _product(at: Place, x: Tensor, w: Tensor) -> Tensor:
    """``x`` by ``w`` of (N, K), in the type in which products are added up."""
    type_: DType = accumulator_for(x.dtype)
    return dot_general(x, w, ((), ()), ((1,), (1,)), accumulator=type_, dtype=type_)


# Instead of a scale of 0: what is added over it is a zero point.
_TINY = 2.0**-100


def _columns() -> int:
    """How many columns a block of PyTorch's packed weights has on this processor."""
    return 64 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 32
