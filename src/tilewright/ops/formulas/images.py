"""Windows of images."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.dtypes import s32
from tilewright.ops.formulas.call import Call
from tilewright.problems.library import DeconvProblem
from tilewright.tensor.convolution import transposed_convolution
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import reshape, transpose


def deconvolution(problem: DeconvProblem, call: Call) -> Mapping[str, Tensor]:
    """A convolution backward by data."""
    conv, weights = problem.conv, call.inputs["weights"]
    sums = call.accumulator if any(t.is_float for t in call.types.values()) else s32
    # From features of the source to those of the result, group by group.
    first = weights.rank - len(conv.kernel) - 2
    order = (*range(first), first + 1, first, *range(first + 2, weights.rank))
    matrices = transpose(weights, order)
    kernel = reshape(matrices, (conv.oc, conv.ic // conv.g, *conv.kernel))
    images = transposed_convolution(
        call.inputs["src"],
        kernel,
        [(window.pad_l, window.pad_r) for window in conv.windows],
        [window.stride for window in conv.windows],
        [window.dilation + 1 for window in conv.windows],
        conv.g,
        sums,
    )
    return {"dst": images}
