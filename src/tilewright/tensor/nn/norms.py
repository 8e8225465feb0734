"""Softmax, moments and normalizations of floats: sums are kept in f32 where elements are narrower,
and results are rounded once, at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.ir.expr import Expr, StandIn, cast, const, maximum, number, select, unary
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise, expression
from tilewright.tensor.places import Shape
from tilewright.tensor.reductions import combined, reduce, sums_along
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import along, broadcast_in_dim, broadcast_to, merged, reshape

# Scale and shift, where they are there.
Factors = tuple[Tensor | None, Tensor | None]
Function = Callable[[Expr], Expr]


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


def softmax_gradient(
    result: Tensor, back: Tensor, dim: int, dtype: DType, *, logarithm: bool = False
) -> Tensor:
    """The gradient of what `softmax` was given, or (of its ``logarithm``) `log_softmax`, of that of
    its ``result``, in whose type it is computed."""
    terms = back if logarithm else expression(lambda y, g: g * y, result, back)
    total = along(combined(terms, [dim], "add"), back.shape, [dim])

    def value(y: Expr, g: Expr, t: Expr) -> Expr:
        return g - unary("exp", y) * t if logarithm else y * (g - t)

    return elementwise(value, result, back, total, dtype=dtype)


def log_sum_exp(x: Tensor, dims: Sequence[int], dtype: DType | None = None) -> Tensor:
    """The logarithm of the sum of exponentials, without ``dims``."""
    # An infinity less itself would be no number.
    finite = elementwise(
        lambda m: select(unary("abs", m) < const(math.inf, m.type), m, const(0, m.type)),
        combined(x, dims, "max"),
    )
    powers = expression(lambda s, m: unary("exp", s - m), x, along(finite, x.shape, dims))
    total = combined(powers, dims, "add")
    return elementwise(lambda t, m: unary("log", t) + m, total, finite, dtype=dtype)


def mean(x: Tensor, dims: Sequence[int], dtype: DType | None = None) -> Tensor:
    """Means without ``dims``, as ``dtype``; of integers, rounded down."""
    count = math.prod(x.shape[n] for n in dims)

    def divided(s: Expr) -> Expr:
        return s / number(count, s.type) if s.type.is_float else s // number(max(1, count), s.type)

    return elementwise(divided, combined(x, dims, "add"), dtype=dtype, name="mean")


def mean_square(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Means of squares of floats, without ``dims``."""
    return mean(expression(lambda s: s * s, x), dims)


def moments(x: Tensor, dims: Sequence[int], correction: float = 0.0) -> tuple[Tensor, Tensor]:
    """Means and variances of floats, without ``dims``, in two passes; squares are divided by their
    number less ``correction``."""
    center = mean(x, dims)
    square = expression(lambda s, m: (s - m) * (s - m), x, along(center, x.shape, dims))
    count = math.prod(x.shape[n] for n in dims)
    whole = isinstance(count, StandIn) and correction == int(correction)
    rest = max(0, count - int(correction)) if whole else max(0.0, count - correction)
    total = combined(square, dims, "add")
    return center, elementwise(lambda s: s / number(rest, s.type), total, name="variance")


def moments_at_once(x: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Means and variances of floats, without ``dims``, in one pass. Source: Chan, Golub and
    LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979."""
    one, zero = (x.builder.splat(value, x.dtype) for value in (1.0, 0.0))

    def together(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
        (n, a, r), (m, b, s) = old, new
        apart, share = b - a, m / maximum(n + m, one.value)
        return n + m, a + apart * share, r + s + apart * apart * (n * share)

    parts = broadcast_to(one, x.shape), x, broadcast_to(zero, x.shape)
    count, average, spread = reduce(parts, [zero] * 3, dims, together, in_any_order=True)
    return average, expression(lambda s, n: s / n, spread, count)


def inverse_deviation(variance: Tensor, eps: float) -> Tensor:
    """``1 / sqrt(variance + eps)``."""
    return elementwise(
        lambda v: unary("rsqrt", v + const(eps, v.type)), variance, name="inverse_deviation"
    )


@dataclass(frozen=True)
class Sets:
    """Which elements of tensors of ``shape`` are normalized together: those along ``dims`` of the
    same elements in the shape ``parts``. Statistics are without these dims."""

    shape: Shape
    dims: Sequence[int]
    parts: Shape

    @classmethod
    def along(cls, x: Tensor, dims: Sequence[int], parts: Sequence[int] | None = None) -> Sets:
        """Those along ``dims`` of ``x``, or of ``parts``, where that is another shape."""
        return cls(x.shape, dims, x.shape if parts is None else tuple(parts))

    @property
    def count(self) -> int:
        """How many elements there are in a set."""
        return math.prod(self.parts[n] for n in self.dims)

    def rows(self, x: Tensor) -> Tensor:
        """A tensor of ``shape`` in that of the parts."""
        return reshape(x, self.parts)

    def computed(self, function: Callable[..., Expr], *tensors: Tensor, dtype: DType) -> Tensor:
        """`elementwise` of tensors of ``shape``, in loops over the parts."""
        if self.parts == self.shape:
            return elementwise(function, *tensors, dtype=dtype)
        value = expression(lambda *x: cast(dtype, function(*x)), *map(self.rows, tensors))
        return merged(value, self.shape, "map")

    def spread(self, statistic: Tensor) -> Tensor:
        """A number for each set as a tensor of ``shape``."""
        return reshape(along(statistic, self.parts, self.dims), self.shape)


def normalized(
    x: Tensor,
    center: Tensor | None,
    inverse: Tensor,
    factors: Factors,
    dtype: DType,
    after: Function | None = None,
) -> Tensor:
    """``(x - center) * inverse * scale + shift`` of tensors of the shape of ``x``, computed in the
    type of ``inverse``; ``after`` is applied before the result is rounded."""
    type_ = inverse.dtype
    scale, shift = factors
    present = [t for t in (center, *factors) if t is not None]

    def value(s: Expr, r: Expr, *rest: Expr) -> Expr:
        left = [cast(type_, x) for x in rest]
        result = cast(type_, s) if center is None else cast(type_, s) - left.pop(0)
        result = result * r
        result = result if scale is None else result * left.pop(0)
        result = result if shift is None else result + left.pop(0)
        return result if after is None else after(result)

    return elementwise(value, x, inverse, *present, dtype=dtype)


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
    sets = Sets.along(x, dims, parts)
    center, variance = moments(sets.rows(convert(x, accumulator_for(x.dtype))), dims)
    inverse = inverse_deviation(variance, eps)
    result = normalized(x, sets.spread(center), sets.spread(inverse), factors, dtype)
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
    center, factor = (broadcast_in_dim(t, x.shape, (channel,)) for t in (mean, inverse))
    return Standardized(normalized(x, center, factor, factors, dtype), mean, variance, inverse)


@dataclass(frozen=True)
class Normal:
    """Gradients of `normalized`: all tensors are of the shape of ``x``, and of one type, in which
    they are computed. Without ``center``, it is 0."""

    x: Tensor
    center: Tensor | None
    inverse: Tensor
    back: Tensor

    @property
    def value(self) -> Tensor:
        """What was normalized, before scale and shift."""
        if self.center is None:
            return expression(lambda s, r: s * r, self.x, self.inverse)
        return expression(lambda s, r, m: (s - m) * r, self.x, self.inverse, self.center)

    def by_factors(self, channel: int) -> tuple[Tensor, Tensor]:
        """The gradients of scale and shift, which vary along the dim ``channel``."""
        dims = [n for n in range(self.x.rank) if n != channel]
        product = expression(lambda g, n: g * n, self.back, self.value)
        by_scale, by_shift = sums_along([product, self.back], dims)
        return by_scale, by_shift

    def by_data(self, scale: Tensor | None, sets: Sets | None, dtype: DType) -> Tensor:
        """The gradient of ``x``, whose moments were those of ``sets``; None: they are others'."""
        back = self.back
        if scale is not None:
            back = expression(lambda g, s: g * s, back, scale)
        if sets is None:
            return elementwise(lambda g, r: r * g, back, self.inverse, dtype=dtype)

        terms = [expression(lambda g, n: g * n, back, self.value)]
        terms += [] if self.center is None else [back]
        slope, *totals = (
            sets.spread(total) for total in sums_along([*map(sets.rows, terms)], sets.dims)
        )

        def value(g: Expr, n: Expr, r: Expr, s: Expr, *total: Expr) -> Expr:
            count = number(float(sets.count), g.type)
            return r * ((g - total[0] / count if total else g) - n * (s / count))

        return sets.computed(value, back, self.value, self.inverse, slope, *totals, dtype=dtype)


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
