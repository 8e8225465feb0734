"""Layer, batch and group normalization, and their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tilewright.dtypes import u8
from tilewright.ir.expr import Expr, const, select
from tilewright.ops.formulas.call import Call
from tilewright.problems import activations
from tilewright.problems.library.normalizations import Normalization
from tilewright.problems.numbers import held
from tilewright.tensor.elementwise import convert, expression
from tilewright.tensor.nn import norms
from tilewright.tensor.tensor import Tensor


def normalization(problem: Normalization, call: Call) -> Mapping[str, Tensor]:
    """The results of a direction."""
    sets = norms.Sets(problem.shape, problem.reduced, problem.parts)
    return (
        _forward(problem, call, sets) if call.direction.is_forward else _back(problem, call, sets)
    )


def _forward(problem: Normalization, call: Call, sets: norms.Sets) -> Mapping[str, Tensor]:
    x, results = call.wide("src"), dict[str, Tensor]()
    if problem.has("G"):
        mean, variance = call.inputs.get("mean"), call.inputs["variance"]
    elif problem.has("M"):
        mean, variance = None, norms.mean_square(sets.rows(x), sets.dims)
    else:
        mean, variance = norms.moments(sets.rows(x), sets.dims)
    center = None if mean is None else sets.spread(mean)
    eps = held(problem.eps, call.accumulator)
    inverse = sets.spread(norms.inverse_deviation(variance, eps))
    scale, shift = norms.of_channels(
        x, call.inputs.get("scale"), call.inputs.get("shift"), problem.channel
    )
    factors = scale, _shift(call, shift) if problem.has("A") else shift
    relu = partial(activations.relu, alpha=0.0, beta=0.0)
    after = relu if problem.has("R") else None
    type_ = call.rounds_to("dst")
    results["dst"] = norms.normalized(x, center, inverse, factors, type_, after)
    if "workspace" in call.types:
        results["workspace"] = norms.normalized(x, center, inverse, factors, u8, _passes)
    if mean is not None:
        results["mean"] = mean
    return results | {"variance": variance}


def _back(problem: Normalization, call: Call, sets: norms.Sets) -> Mapping[str, Tensor]:
    x, back = call.wide("src"), call.wide("diff_dst")
    if problem.has("R"):
        back = expression(_passed, back, call.inputs["workspace"])
    mean = call.inputs.get("mean")
    center = None if mean is None else sets.spread(mean)
    eps = held(problem.eps, call.accumulator)
    inverse = sets.spread(norms.inverse_deviation(call.inputs["variance"], eps))
    normal = norms.Normal(x, center, inverse, back)
    if "diff_src" in call.types:
        scale, _ = norms.of_channels(x, call.inputs.get("scale"), None, problem.channel)
        if scale is not None:
            scale = convert(scale, x.dtype)
        moments = None if problem.has("G") else sets
        by_data = normal.by_data(scale, moments, call.rounds_to("diff_src"))
        return {"diff_src": by_data, "diff_src1": back}
    by_scale, by_shift = normal.by_factors(problem.channel)
    return {"diff_scale": by_scale, "diff_shift": by_shift}


def _shift(call: Call, shift: Tensor | None) -> Tensor:
    """What is added: a tensor, besides the shift."""
    added = call.wide("src1")
    if shift is None:
        return added
    return expression(lambda a, b: a + b, added, convert(shift, added.dtype))


def _passes(x: Expr) -> Expr:
    return select(const(0, x.type) < x, const(1, u8), const(0, u8))


def _passed(x: Expr, passes: Expr) -> Expr:
    return select(const(0, u8) < passes, x, const(0, x.type))
