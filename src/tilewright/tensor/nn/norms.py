"""Softmax, moments and normalizations of floats: sums are kept in f32 where elements are narrower,
and results are rounded once, at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.ir.expr import Expr, StandIn, cast, const, number, select, unary
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import along, broadcast_in_dim, reshape

# Scale and shift, where they are there.
Factors = tuple[Tensor | None, Tensor | None]


def softmax(x: Tensor, dim: int, dtype: DType) -> Tensor:
    """Exponentials along ``dim``, divided by their sum."""
    x = convert(x, accumulator_for(x.dtype))
    greatest = along(combined(x, [dim], "max"), x.shape, [dim])
    powers = elementwise(lambda s, m: unary("exp", s - m), x, greatest, name="exponentials")
    total = along(combined(powers, [dim], "add"), x.shape, [dim])
    return elementwise(lambda p, t: p / t, powers, total, dtype=dtype)


def log_softmax(x: Tensor, dim: int, dtype: DType) -> Tensor:
    """The logarithm of `softmax`."""
    x = convert(x, accumulator_for(x.dtype))
    greatest = along(combined(x, [dim], "max"), x.shape, [dim])
    shifted = elementwise(lambda s, m: s - m, x, greatest, name="shifted")
    powers = elementwise(lambda s: unary("exp", s), shifted, name="exponentials")
    total = along(combined(powers, [dim], "add"), x.shape, [dim])
    return elementwise(lambda s, t: s - unary("log", t), shifted, total, dtype=dtype)


def log_sum_exp(x: Tensor, dims: Sequence[int]) -> Tensor:
    """The logarithm of the sum of exponentials, without ``dims``."""
    # An infinity less itself would be no number.
    finite = elementwise(
        lambda m: select(unary("abs", m) < const(math.inf, m.type), m, const(0, m.type)),
        combined(x, dims, "max"),
    )
    powers = elementwise(lambda s, m: unary("exp", s - m), x, along(finite, x.shape, dims))
    total = combined(powers, dims, "add")
    return elementwise(lambda t, m: unary("log", t) + m, total, finite)


def mean(x: Tensor, dims: Sequence[int], dtype: DType | None = None) -> Tensor:
    """Means without ``dims``, as ``dtype``; of integers, rounded down."""
    count = math.prod(x.shape[n] for n in dims)

    def divided(s: Expr) -> Expr:
        return s / number(count, s.type) if s.type.is_float else s // number(max(1, count), s.type)

    return elementwise(divided, combined(x, dims, "add"), dtype=dtype, name="mean")


def moments(x: Tensor, dims: Sequence[int], correction: float = 0.0) -> tuple[Tensor, Tensor]:
    """Means and variances of floats, without ``dims``, in two passes; squares are divided by their
    number less ``correction``."""
    center = mean(x, dims)
    square = elementwise(
        lambda s, m: (s - m) * (s - m), x, along(center, x.shape, dims), name="squares"
    )
    count = math.prod(x.shape[n] for n in dims)
    whole = isinstance(count, StandIn) and correction == int(correction)
    rest = max(0, count - int(correction)) if whole else max(0.0, count - correction)
    total = combined(square, dims, "add")
    return center, elementwise(lambda s: s / number(rest, s.type), total, name="variance")


def inverse_deviation(variance: Tensor, eps: float) -> Tensor:
    """``1 / sqrt(variance + eps)``."""
    return elementwise(
        lambda v: unary("rsqrt", v + const(eps, v.type)), variance, name="inverse_deviation"
    )


def normalized(
    x: Tensor, center: Tensor, inverse: Tensor, factors: Factors, dtype: DType
) -> Tensor:
    """``(x - center) * inverse * scale + shift`` of tensors of the shape of ``x``, computed in the
    type of ``inverse``."""
    type_ = inverse.dtype
    scale, shift = factors
    present = [each for each in factors if each is not None]

    def value(s: Expr, m: Expr, r: Expr, *rest: Expr) -> Expr:
        found = (cast(type_, s) - cast(type_, m)) * r
        left = [cast(type_, each) for each in rest]
        found = found if scale is None else found * left.pop(0)
        return found if shift is None else found + left.pop(0)

    return elementwise(value, x, center, inverse, *present, dtype=dtype)


def of_channels(x: Tensor, scale: Tensor | None, shift: Tensor | None, channel: int = 1) -> Factors:
    """Factors of channels, the dim ``channel``, in the shape of ``x``."""
    scales, shifts = (
        None if t is None else broadcast_in_dim(t, x.shape, (channel,)) for t in (scale, shift)
    )
    return scales, shifts


@dataclass(frozen=True)
class Standardized:
    """What `standardized` gives: the moments and the inverse deviation are without its dims."""

    result: Tensor
    mean: Tensor
    variance: Tensor
    inverse: Tensor


def standardized(
    x: Tensor,
    dims: Sequence[int],
    factors: Factors,
    eps: float,
    dtype: DType,
    parts: Sequence[int] | None = None,
) -> Standardized:
    """`normalized` by the moments of ``x`` along ``dims`` (of the shape ``parts``, where that is
    another one): layer, batch, instance and group norms."""
    rows = reshape(convert(x, accumulator_for(x.dtype)), x.shape if parts is None else parts)
    center, variance = moments(rows, dims)
    inverse = inverse_deviation(variance, eps)
    spread = [reshape(along(each, rows.shape, dims), x.shape) for each in (center, inverse)]
    result = normalized(x, spread[0], spread[1], factors, dtype)
    return Standardized(result, center, variance, inverse)


def batch_normalized(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    factors: Factors,
    eps: float,
    dtype: DType,
    channel: int = 1,
) -> Standardized:
    """`normalized` by moments of channels that are there."""
    inverse = inverse_deviation(convert(variance, accumulator_for(x.dtype)), eps)
    center, factor = (broadcast_in_dim(each, x.shape, (channel,)) for each in (mean, inverse))
    return Standardized(normalized(x, center, factor, factors, dtype), mean, variance, inverse)


def running_average(
    old: Tensor, new: Tensor, momentum: float, correction: float, dtype: DType
) -> Tensor:
    """``old * (1 - momentum) + new * momentum * correction``, computed in the type of ``new``."""
    part = momentum * correction
    return elementwise(
        lambda o, n: cast(n.type, o) * const(1 - momentum, n.type) + n * const(part, n.type),
        old,
        new,
        dtype=dtype,
        name="running",
    )
