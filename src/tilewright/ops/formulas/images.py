"""Windows of images, and what channels are multiplied with."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.dtypes import s32, s64
from tilewright.ir.expr import Expr, cast, const, select
from tilewright.ops.formulas.call import Call
from tilewright.problems import Direction
from tilewright.problems.library import DeconvProblem, MaxPoolProblem, PreluProblem
from tilewright.tensor.convolution import Window, transposed_convolution
from tilewright.tensor.elementwise import convert, expression
from tilewright.tensor.indexing import updated
from tilewright.tensor.nn.pooling import greatest_of_windows
from tilewright.tensor.places import axes
from tilewright.tensor.reductions import combined
from tilewright.tensor.tensor import Tensor
from tilewright.tensor.views import broadcast_to, reshape, transpose, unflattened


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


def max_pool(problem: MaxPoolProblem, call: Call) -> Mapping[str, Tensor]:
    """The greatest elements and their places, or what comes back to these."""
    pool, places = problem.pool, call.types["indices"]
    if call.direction.is_forward:
        windows = [
            Window(w.kernel, w.stride, w.pad_l, w.pad_r, dilation=w.dilation + 1)
            for w in pool.windows
        ]
        x = call.exact("src")
        dims = range(2, x.rank)
        value, place = greatest_of_windows(x, windows, dims, places=places, last_nan=False)
        return {"dst": value, "indices": place}
    back = call.wide("diff_dst")
    zeros = back.builder.splat(0, back.dtype, (pool.mb, pool.ic, *pool.src_size))
    number = cast(s64, call.inputs["indices"].value)
    inside = (number >= 0) & (number < problem.places)
    index = [*axes(2), *unflattened(number, pool.src_size)]
    return {"diff_src": updated(zeros, index, back, "add", inside)}


def prelu(problem: PreluProblem, call: Call) -> Mapping[str, Tensor]:
    """The result, or a gradient."""
    x = call.wide("src")
    if call.direction is Direction.BWD_W:
        parts = expression(_left_out, x, call.wide("diff_dst"))
        total = combined(parts, problem.broadcast, "add")
        return {"diff_weights": reshape(total, problem.weights_shape)}
    weights = broadcast_to(convert(call.inputs["weights"], x.dtype), x.shape)
    if call.direction.is_forward:
        return {"dst": expression(_weighted, x, x, weights)}
    return {"diff_src": expression(_weighted, x, call.wide("diff_dst"), weights)}


def _weighted(x: Expr, value: Expr, weight: Expr) -> Expr:
    return select(const(0, x.type) < x, value, value * weight)


def _left_out(x: Expr, back: Expr) -> Expr:
    return select(const(0, x.type) < x, const(0, x.type), x * back)
