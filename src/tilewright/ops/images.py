"""What users call for more ops on images."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.calls import checked_call
from tilewright.dtypes import f32
from tilewright.ops.library import LibraryOp, Types, asked, op_of
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Direction, Shape
from tilewright.problems.library import (
    DeconvProblem,
    MaxPoolProblem,
    PreluProblem,
    ResamplingProblem,
)


@checked_call
def resample(
    problem: str | Shape | ResamplingProblem,
    algorithm: str = "nearest",
    /,
    *,
    out: Sequence[int] | None = None,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Images of another size, ``resample("mb2ic3ih8oh16", "linear")``, or a shape (N, C, spatial)
    and the sizes ``out``.

    Output ``o`` of O lies at ``(o + 0.5) * I / O - 0.5`` among I inputs. ``nearest`` takes the next
    one, ``linear`` two in each dim, ``cubic`` four (with the parameter -0.75); what lies outside
    is the nearest inside. ``bwd_data`` gives ``diff_src`` from ``diff_dst``. By default channels
    are last in memory. Arguments: ``src``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Resampling".
    """
    resampling_problem = asked(problem, ResamplingProblem, out=out, algorithm=algorithm)
    return op_of(resampling_problem, direction, dtype, src=src, dst=dst)


@checked_call
def max_pool(
    problem: str | MaxPoolProblem,
    /,
    *,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """The maximum of a sliding window and its place, ``max_pool("ic64ih112kh3sh2ph1")``.

    Windows are those of `pool`, each of which has an element. A place counts through the image,
    row by row; of equal elements it is the first, and NaN is greater than all numbers. ``bwd_data``
    takes ``indices`` and ``diff_dst``, and gives ``diff_src``. By default channels are last in
    memory. Arguments: ``src``, ``dst``, ``indices`` (s32, or s64 with ``dtype="f32:f32:s64"``).

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    return op_of(asked(problem, MaxPoolProblem), direction, dtype, src=src, dst=dst)


@checked_call
def deconvolution(
    problem: str | DeconvProblem,
    /,
    *,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    weights: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """A transposed convolution, ``deconvolution("mb2ic8oc4ih5kh3sh2ph1")``.

    Each element of ``src``, times the weights, is added to the window of ``dst`` that a convolution
    would read: ``oh = (ih - 1) * sh + (kh - 1) * (dh + 1) + 1 - 2 * ph`` unless given. It is what
    `convolution` computes backward by data, by the names that one has for it forward. Arguments:
    ``src`` (N, IC, spatial), ``weights`` ([G,] OC, IC, kernel), ``dst`` (N, OC, spatial); images
    have channels last in memory by default.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Convolution", on deconvolution.
    """
    deconv_problem = asked(problem, DeconvProblem)
    return op_of(deconv_problem, "fwd", dtype, src=src, weights=weights, dst=dst)


@checked_call
def parametric_relu(
    problem: str | Shape | PreluProblem,
    /,
    *,
    weights_shape: Sequence[int] | None = None,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    weights: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """What is above 0 as it is, the rest times weights: ``parametric_relu("8x64x56x56:1x64x1x1")``.

    The weights' dims are those of ``src``, or 1. ``bwd_data`` takes ``src``, ``weights`` and
    ``diff_dst``, and gives ``diff_src``; ``bwd_weights`` takes ``src`` and ``diff_dst``, and gives
    ``diff_weights``. (As a part of another op, it is the element `prelu` of its epilogue.)
    Arguments: ``src``, ``weights``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "PReLU".
    """
    prelu_problem = asked(problem, PreluProblem, weights_shape=weights_shape)
    return op_of(prelu_problem, direction, dtype, src=src, weights=weights, dst=dst)
