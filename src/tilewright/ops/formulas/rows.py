"""What is computed of the elements along a dim: softmax, logarithms of sums of exponentials, places
of extremes, scans."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ops.formulas.call import Call
from tilewright.problems.library import (
    ArgProblem,
    LogSumExpProblem,
    MomentsProblem,
    ScanProblem,
    SoftmaxProblem,
)
from tilewright.tensor.nn import norms
from tilewright.tensor.nn.ordering import extreme, running
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import reshape

_COMBINERS = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def softmax(problem: SoftmaxProblem, call: Call) -> Mapping[str, Tensor]:
    """The result, or its gradient."""
    logarithm, axis = problem.algorithm == "LOGSOFTMAX", problem.axis
    if call.direction.is_forward:
        function = norms.log_softmax if logarithm else norms.softmax
        return {"dst": function(call.wide("src"), axis, call.rounds_to("dst"))}
    dst, back = call.wide("dst"), call.wide("diff_dst")
    type_ = call.rounds_to("diff_src")
    return {"diff_src": norms.softmax_gradient(dst, back, axis, type_, logarithm=logarithm)}


def moments(problem: MomentsProblem, call: Call) -> Mapping[str, Tensor]:
    """Mean and variance, of size 1 along the axis."""
    mean, variance = norms.moments_at_once(call.wide("src"), [problem.axis])
    return {"mean": reshape(mean, problem.kept), "variance": reshape(variance, problem.kept)}


def log_sum_exp(problem: LogSumExpProblem, call: Call) -> Mapping[str, Tensor]:
    """The result, of size 1 along the axis."""
    total = norms.log_sum_exp(call.wide("src"), [problem.axis], call.rounds_to("dst"))
    return {"dst": reshape(total, problem.kept)}


def arg(problem: ArgProblem, call: Call) -> Mapping[str, Tensor]:
    """The places, of size 1 along the axis."""
    greatest = problem.algorithm == "argmax"
    places = call.types["dst"]
    _, place = extreme(call.exact("src"), problem.axis, greatest=greatest, places=places)
    return {"dst": reshape(place, problem.kept)}


def scan(problem: ScanProblem, call: Call) -> Mapping[str, Tensor]:
    """What is combined up to each place."""
    combiner, flags = _COMBINERS[problem.algorithm], problem.flags
    x = call.exact("src")
    return {"dst": running(x, problem.axis, combiner, reverse="R" in flags, exclusive="E" in flags)}
