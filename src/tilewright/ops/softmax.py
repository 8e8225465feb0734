"""What users call for softmax."""

from __future__ import annotations

from tilewright.calls import checked_call
from tilewright.dtypes import f32
from tilewright.ops.library import LibraryOp, Types, asked, op_of
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Direction, Shape
from tilewright.problems.library import SoftmaxProblem


@checked_call
def softmax(
    problem: str | Shape | SoftmaxProblem,
    /,
    *,
    axis: int = 1,
    algorithm: str = "softmax",
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Softmax along a dim, ``softmax("32x1000")``, or (``"logsoftmax"``) its logarithm.

        softmax       dst = exp(src - peak) / total
        logsoftmax    dst = src - peak - log(total)

    with the greatest element ``peak`` along ``axis``, and the sum ``total`` of ``exp(src - peak)``
    there. ``bwd_data`` takes ``dst`` and ``diff_dst``, and gives ``diff_src``:

        softmax       diff_src = dst * (diff_dst - sum of diff_dst * dst)
        logsoftmax    diff_src = diff_dst - exp(dst) * sum of diff_dst

    Computed in f32, or in f64 where a type is f64. Arguments: ``src``, ``dst``, of one shape.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Softmax".
    """
    named = algorithm.upper() if isinstance(algorithm, str) else algorithm
    softmax_problem = asked(problem, SoftmaxProblem, axis=axis, algorithm=named)
    return op_of(softmax_problem, direction, dtype, src=src, dst=dst)
