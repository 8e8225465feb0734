"""Batch normalization: by moments that are there, by the batch's own, and backward."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.dtypes import DType
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.translation import (
    Translation,
    arrays,
    integer,
    result_tensor,
    wrong,
)
from tilewright.frontends.stablehlo.types import Float, computed_type
from tilewright.frontends.stablehlo.values import Array, Value
from tilewright.tensor.contractions import accumulator_for
from tilewright.tensor.elementwise import convert
from tilewright.tensor.nn import norms
from tilewright.tensor.tensor import Tensor


def _given(
    o: Operation, operands: Sequence[Value], count: int
) -> tuple[Tensor, list[Tensor], int, float, DType]:
    """What is normalized, the other operands, the dim of channels, epsilon, and the type."""
    first, *rest = arrays(o, operands, count)
    channel = integer(o, "feature_index")
    eps = o.attributes.get("epsilon")
    if not 0 <= channel < first.rank:
        raise wrong(o, "feature_index", f"a dim of {first.type}")
    if not isinstance(eps, int | float):
        raise wrong(o, "epsilon", "a number")
    type_ = computed_type(result_tensor(o).element)
    if not isinstance(first.element, Float) or type_ is None:
        raise UnsupportedError(
            f"{o.name} of {first.element}", where=o.span, cure="convert it to f32 before"
        )
    for array in rest:
        if array.shape not in ((first.shape[channel],), first.shape):
            raise ProblemError(
                f"{o.name} of {first.type} takes no {array.type}",
                where=o.span,
                cure=f"give {first.shape[channel]} numbers, one for each place in dim {channel}",
            )
    return first.parts[0], [array.parts[0] for array in rest], channel, float(eps), type_


def _inference(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    x, (scale, shift, mean, variance), channel, eps, type_ = _given(o, operands, 5)
    factors = norms.of_channels(x, scale, shift, channel)
    norm = norms.batch_normalized(x, mean, variance, factors, eps, type_, channel)
    return [Array(result_tensor(o).element, (norm.result,))]


def _training(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    x, (scale, shift), channel, eps, type_ = _given(o, operands, 3)
    dims = [n for n in range(x.rank) if n != channel]
    factors = norms.of_channels(x, scale, shift, channel)
    norm = norms.standardized(x, dims, factors, eps, type_)
    results = (norm.result, norm.mean, norm.variance)
    return _results(o, results)


def _gradient(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Array]:
    """Source: StableHLO's specification, ``batch_norm_grad``."""
    x, (scale, mean, variance, back), channel, eps, _ = _given(o, operands, 5)
    wide = accumulator_for(x.dtype)
    x, scale, mean, variance, back = (convert(e, wide) for e in (x, scale, mean, variance, back))
    dims = [n for n in range(x.rank) if n != channel]
    sets = norms.Sets.along(x, dims)
    inverse = sets.spread(norms.inverse_deviation(variance, eps))
    normal = norms.Normal(x, sets.spread(mean), inverse, back)
    by_scale, by_shift = normal.by_factors(channel)
    return _results(o, (normal.by_data(sets.spread(scale), sets, wide), by_scale, by_shift))


def _results(o: Operation, results: Sequence[Tensor]) -> list[Array]:
    """Results in the types that the program says."""
    arrays = []
    for number, result in enumerate(results):
        element = result_tensor(o, number).element
        arrays.append(Array(element, (convert(result, computed_type(element)),)))
    return arrays


HANDLERS = {
    "stablehlo.batch_norm_grad": _gradient,
    "stablehlo.batch_norm_inference": _inference,
    "stablehlo.batch_norm_training": _training,
}
