"""Softmax and normalizations: in f32 where elements are narrower, and rounded at the end."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import dtype
from tilewright.frontends.torch.aten.sums import variance_of
from tilewright.frontends.torch.table import Place, aten
from tilewright.ir.expr import Expr, cast, const, unary
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert, elementwise
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import along, broadcast_in_dim, broadcast_to, reshape


def _shifted(x: Tensor, dim: int) -> Tensor:
    """``x`` less its greatest element along ``dim``: no exponential of it overflows."""
    greatest = along(combined(x, [dim], "max"), x.shape, [dim])
    return elementwise(lambda s, m: s - m, x, greatest, name="shifted")


@aten("_softmax.default")
def softmax(at: Place, x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    if not x.rank:
        return elementwise(lambda s: const(1, at.dtype), x)
    dim %= x.rank
    x = convert(x, accumulator_for(x.dtype))
    greatest = along(combined(x, [dim], "max"), x.shape, [dim])
    powers = elementwise(lambda s, m: unary("exp", s - m), x, greatest, name="exponentials")
    total = along(combined(powers, [dim], "add"), x.shape, [dim])
    return elementwise(lambda p, t: p / t, powers, total, dtype=at.dtype)


@aten("_log_softmax.default")
def log_softmax(at: Place, x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    if not x.rank:
        return elementwise(lambda s: const(0, at.dtype), x)
    dim %= x.rank
    shifted = _shifted(convert(x, accumulator_for(x.dtype)), dim)
    powers = elementwise(lambda s: unary("exp", s), shifted, name="exponentials")
    total = along(combined(powers, [dim], "add"), x.shape, [dim])
    return elementwise(lambda s, t: s - unary("log", t), shifted, total, dtype=at.dtype)


def _inverse_deviation(variance: Tensor, eps: float) -> Tensor:
    return elementwise(
        lambda v: unary("rsqrt", v + const(eps, v.type)), variance, name="inverse_deviation"
    )


@aten("native_layer_norm.default")
def layer_norm(
    at: Place,
    x: Tensor,
    normalized: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    first = x.rank - len(normalized)
    dims = tuple(range(first, x.rank))
    values = convert(x, accumulator_for(x.dtype))
    variance, mean = variance_of(values, dims)
    scale = _inverse_deviation(variance, eps)
    factors = [broadcast_to(each, x.shape) for each in (weight, bias) if each is not None]

    def value(s: Expr, m: Expr, r: Expr, *rest: Expr) -> Expr:
        return _affine((s - m) * r, rest, weight is not None, bias is not None)

    means, scales = along(mean, x.shape, dims), along(scale, x.shape, dims)
    result = elementwise(value, values, means, scales, *factors, dtype=at.dtype)
    kept = (*x.shape[:first], *(1 for _ in dims))
    return result, _kept(at, 1, mean, kept), _kept(at, 2, scale, kept)


def _affine(x: Expr, rest: Sequence[Expr], weight: bool, bias: bool) -> Expr:
    """``x * weight + bias``, where these are there."""
    left = list(rest)
    if weight:
        x = x * cast(x.type, left.pop(0))
    return x + cast(x.type, left.pop(0)) if bias else x


def _kept(at: Place, number: int, found: Tensor, shape: Sequence[int]) -> Tensor:
    """A statistic in the type and shape that the op gives it in."""
    result = at.results[number]
    if result is None or 0 in result.shape:
        return at.builder.splat(0, found.dtype, (0,))
    return reshape(convert(found, dtype(result.dtype)), shape)


def _per_channel(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A value for each channel, in the shape of a batch of images."""
    return broadcast_in_dim(x, shape, (1,))


@aten("_native_batch_norm_legit_no_training.default")
def batch_norm(
    at: Place,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    type_ = accumulator_for(x.dtype)
    scale = _inverse_deviation(convert(variance, type_), eps)
    given = [each for each in (weight, bias) if each is not None]

    def value(s: Expr, m: Expr, r: Expr, *rest: Expr) -> Expr:
        normal = (cast(type_, s) - cast(type_, m)) * r
        return _affine(normal, rest, weight is not None, bias is not None)

    spread = [_per_channel(each, x.shape) for each in (mean, scale, *given)]
    result = elementwise(value, x, *spread, dtype=at.dtype)
    return result, _kept(at, 1, mean, (0,)), _kept(at, 2, scale, (0,))


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_of_batch(
    at: Place,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return _normalized_by_batch(at, x, weight, bias, eps)[:3]


def _normalized_by_batch(
    at: Place, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The result, what is kept for gradients, and the variances."""
    dims = tuple(n for n in range(x.rank) if n != 1)
    values = convert(x, accumulator_for(x.dtype))
    variance, mean = variance_of(values, dims)
    scale = _inverse_deviation(variance, eps)
    given = [each for each in (weight, bias) if each is not None]

    def value(s: Expr, m: Expr, r: Expr, *rest: Expr) -> Expr:
        return _affine((s - m) * r, rest, weight is not None, bias is not None)

    spread = [_per_channel(each, x.shape) for each in (mean, scale, *given)]
    result = elementwise(value, values, *spread, dtype=at.dtype)
    channels = (x.shape[1],)
    return result, _kept(at, 1, mean, channels), _kept(at, 2, scale, channels), variance


@aten("_native_batch_norm_legit_functional.default")
def batch_norm_functional(
    at: Place,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    running = (running_mean, running_variance)
    if not training:
        kept = (_kept(at, 3 + n, old, old.shape) for n, old in enumerate(running))
        return (*batch_norm(at, x, weight, bias, *running, momentum, eps), *kept)
    result, mean, scale, variance = _normalized_by_batch(at, x, weight, bias, eps)
    count = x.elements // x.shape[1]
    unbiased = count / max(1, count - 1)

    def moved(number: int, new: Tensor, factor: float) -> Tensor:
        """Its running average, in the type that PyTorch says it has: eager's may be narrower."""
        part = momentum * factor
        return elementwise(
            lambda o, n: cast(n.type, o) * const(1 - momentum, n.type) + n * const(part, n.type),
            running[number],
            new,
            dtype=dtype(at.results[3 + number].dtype),
            name="running",
        )

    return result, mean, scale, moved(0, mean, 1.0), moved(1, variance, unbiased)


@aten("native_group_norm.default")
def group_norm(
    at: Place,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    grouped = reshape(convert(x, accumulator_for(x.dtype)), (n, group, c // group, *x.shape[2:]))
    dims = tuple(range(2, grouped.rank))
    variance, mean = variance_of(grouped, dims)
    scale = _inverse_deviation(variance, eps)
    spread = [reshape(along(each, grouped.shape, dims), x.shape) for each in (mean, scale)]
    given = [_per_channel(each, x.shape) for each in (weight, bias) if each is not None]

    def value(s: Expr, m: Expr, r: Expr, *rest: Expr) -> Expr:
        normal = (cast(r.type, s) - m) * r
        return _affine(normal, rest, weight is not None, bias is not None)

    result = elementwise(value, x, *spread, *given, dtype=at.dtype)
    return result, _kept(at, 1, mean, (n, group)), _kept(at, 2, scale, (n, group))
