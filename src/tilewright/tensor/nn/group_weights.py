"""Weights of 4 and 8 bits with a scale and a zero point for each group of neighbours along K."""

from __future__ import annotations

from tilewright.dtypes import f32, s32
from tilewright.ir.expr import Expr, cast, const
from tilewright.tensor.elementwise import elementwise
from tilewright.tensor.places import axes
from tilewright.tensor.tensor import Tensor


def nibbles(halves: Tensor) -> Tensor:
    """Numbers of 4 bits as s32, of which bytes have two along the last dim: first the lower half.

    An index of the result divides by 2: what reads it says so to the product that it is for.
    """
    *front, last = axes(halves.rank)
    shape = (*halves.shape[:-1], 2 * halves.shape[-1])
    shift = cast(s32, last % 2 * 4)
    return elementwise(
        lambda q: (cast(s32, q) >> shift) & const(15, s32),
        halves.viewed(shape, [*front, last // 2]),
        name="nibbles",
    )


def dequantized(q: Tensor, bits: int, scale: Tensor, zero: Tensor | float, group: int) -> Tensor:
    """``(q - zero) * scale`` in f32, of (N, K); ``scale`` and ``zero`` are of (N, K / group). ``q``
    is of integers of ``bits``: of 8 as they are, of 4 two to a byte along K."""
    n, k = q.shape[0], q.shape[1] * (2 if bits == 4 else 1)
    row, place = axes(2)
    shift = cast(s32, place % 2 * 4)

    def of_group(x: Tensor | float) -> Tensor:
        if not isinstance(x, Tensor):
            return q.builder.splat(x, f32, (n, k))
        return x.viewed((n, k), [row, place // group])

    def value(element: Expr, s: Expr, z: Expr) -> Expr:
        if bits == 4:
            element = (cast(s32, element) >> shift) & const(15, s32)
        return (cast(f32, element) - cast(f32, z)) * cast(f32, s)

    elements = q.viewed((n, k), [row, place // 2 if bits == 4 else place])
    return elementwise(value, elements, of_group(scale), of_group(zero), name="dequantized")
