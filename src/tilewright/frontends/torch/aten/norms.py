"""Softmax and normalizations, as PyTorch's schemas have them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import dtype
from tilewright.frontends.torch.table import Place, aten
from tilewright.tensor.elementwise import convert
from tilewright.tensor.nn import norms
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to, reshape


@aten("_softmax.default", "_log_softmax.default")
def softmax(at: Place, x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    rows = reshape(x, x.shape or (1,))
    function = norms.softmax if at.op == "_softmax.default" else norms.log_softmax
    return reshape(function(rows, dim % rows.rank, at.dtype), x.shape)


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
    scale, shift = (None if t is None else broadcast_to(t, x.shape) for t in (weight, bias))
    norm = norms.standardized(x, dims, (scale, shift), eps, at.dtype)
    kept = (*x.shape[:first], *(1 for _ in dims))
    return norm.result, _kept(at, 1, norm.mean, kept), _kept(at, 2, norm.inverse, kept)


def _kept(at: Place, number: int, statistic: Tensor, shape: Sequence[int]) -> Tensor:
    """A statistic in the type and shape that the op gives it in."""
    result = at.results[number]
    if result is None or 0 in result.shape:
        return at.builder.splat(0, statistic.dtype, (0,))
    return reshape(convert(statistic, dtype(result.dtype)), shape)


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
    factors = norms.of_channels(x, weight, bias)
    norm = norms.batch_normalized(x, mean, variance, factors, eps, at.dtype)
    return norm.result, _kept(at, 1, mean, (0,)), _kept(at, 2, norm.inverse, (0,))


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
    return _batch_results(at, _by_batch(at, x, weight, bias, eps))


def _by_batch(
    at: Place, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> norms.Standardized:
    dims = [n for n in range(x.rank) if n != 1]
    return norms.standardized(x, dims, norms.of_channels(x, weight, bias), eps, at.dtype)


def _batch_results(at: Place, norm: norms.Standardized) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and what is kept for gradients."""
    shape = norm.mean.shape
    return norm.result, _kept(at, 1, norm.mean, shape), _kept(at, 2, norm.inverse, shape)


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
    norm = _by_batch(at, x, weight, bias, eps)
    count = x.elements // x.shape[1]
    unbiased = count / max(1, count - 1)
    # In the types that PyTorch says they have: eager's may be narrower.
    types = [dtype(result.dtype) for result in at.results[3:]]
    averages = (
        norms.running_average(running_mean, norm.mean, momentum, 1.0, types[0]),
        norms.running_average(running_variance, norm.variance, momentum, unbiased, types[1]),
    )
    return *_batch_results(at, norm), *averages


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
    parts = (n, group, c // group, *x.shape[2:])
    dims = tuple(range(2, len(parts)))
    factors = norms.of_channels(x, weight, bias)
    norm = norms.standardized(x, dims, factors, eps, at.dtype, parts)
    kept = (n, group)
    return norm.result, _kept(at, 1, norm.mean, kept), _kept(at, 2, norm.inverse, kept)
