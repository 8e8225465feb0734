"""Ops that only move elements."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tilewright.ops.epilogue import convert as rounded
from tilewright.ops.formulas.call import Call
from tilewright.problems.library import (
    ConcatProblem,
    PadProblem,
    PixelsProblem,
    ShuffleProblem,
    SliceProblem,
    TileProblem,
    TransposeProblem,
)
from tilewright.problems.numbers import held
from tilewright.tensor import views
from tilewright.tensor.elementwise import expression
from tilewright.tensor.nn import channels
from tilewright.tensor.places import axis
from tilewright.tensor.tensor import Tensor


def slice_(problem: SliceProblem, call: Call) -> Mapping[str, Tensor]:
    """Steps may go backwards."""
    steps = enumerate(zip(problem.start, problem.stride, strict=True))
    index = [axis(n) * step + start for n, (start, step) in steps]
    return {"dst": call.inputs["src"].viewed(problem.made, index)}


def tile(problem: TileProblem, call: Call) -> Mapping[str, Tensor]:
    """Copies side by side."""
    return {"dst": views.tile(call.inputs["src"], problem.made)}


def transpose(problem: TransposeProblem, call: Call) -> Mapping[str, Tensor]:
    """Dims in another order."""
    return {"dst": views.transpose(call.inputs["src"], problem.order)}


def concat(problem: ConcatProblem, call: Call) -> Mapping[str, Tensor]:
    """Parts are rounded as they are copied."""
    to = partial(rounded, type=call.types["dst"])
    parts = [expression(to, call.inputs[f"src{n}"]) for n in range(len(problem.sources))]
    return {"dst": views.concatenate(parts, problem.axis)}


def pad(problem: PadProblem, call: Call) -> Mapping[str, Tensor]:
    """Elements around, and of a constant between."""
    x = call.inputs["src"]
    if problem.algorithm != "constant":
        return {"dst": views.extended(x, problem.low, problem.high, problem.algorithm)}
    value = problem.value if x.dtype.is_float else int(problem.value)
    number = x.builder.splat(held(value, x.dtype), x.dtype)
    return {"dst": views.pad(x, number, problem.low, problem.high, problem.interior)}


def pixels(problem: PixelsProblem, call: Call) -> Mapping[str, Tensor]:
    """Blocks of pixels to channels, or back."""
    function = channels.space_to_depth if problem.deepens else channels.depth_to_space
    block = problem.block[0]
    return {"dst": function(call.inputs["src"], block, blocks_first=problem.blocks_first)}


def shuffle(problem: ShuffleProblem, call: Call) -> Mapping[str, Tensor]:
    """Forward, or back."""
    axis, group = problem.axis, problem.group
    if call.direction.is_forward:
        return {"dst": channels.shuffled(call.inputs["src"], axis, group)}
    rows = problem.shape[axis] // group
    return {"diff_src": channels.shuffled(call.inputs["diff_dst"], axis, rows)}
