"""What users call: one function for each kind of op, and the elements of an epilogue.

    convolution("ic64ih56oc64oh56kh3ph1", direction="fwd", dtype="bf16", src="nhwc", dst="nhwc",
                epilogue=[bias(), add("residual"), relu()])

A problem is a benchdnn descriptor, sizes by keyword, or a problem object. ``dtype`` is one type
for all tensors or one for each (``"u8:s8:f32"``, or a mapping). Layouts are tags, strides in
elements or `Layout` objects; where only one of ``src`` and ``dst`` has a tag, the other takes it.

The order of effects is fixed (see `ops.epilogue`), so an epilogue written in another order is
refused rather than reordered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.calls import checked_call
from tilewright.dtypes import DType, f32, f64
from tilewright.dtypes import dtype as dtype_of
from tilewright.errors import ProblemError, one_of, short
from tilewright.ops.argument_forms import (
    direction_of,
    layouts_of,
    problem_of,
    shared_layouts,
    types_of,
    window_problem_of,
)
from tilewright.ops.attributes import Attributes
from tilewright.ops.convolution import Convolution, convolution_op
from tilewright.ops.epilogue_elements import Element, attributes_of
from tilewright.ops.foundation import FoundationOp, foundation_op
from tilewright.ops.matmul import Matmul, matmul_op
from tilewright.ops.op import LayoutSpec
from tilewright.problems import (
    UNARY_ALIASES,
    UNARY_FUNCTIONS,
    BinaryProblem,
    ConvProblem,
    Direction,
    EltwiseProblem,
    MatmulProblem,
    PoolProblem,
    Problem,
    ReduceProblem,
    ReorderProblem,
    Shape,
    Unary,
    parse_fpmath,
)

# One element type, which is what `dtypes.dtype` takes, or several.
Types = Any


@checked_call
def convolution(
    problem: str | ConvProblem | None = None,
    /,
    *,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    weights: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
    epilogue: Sequence[Element] = (),
    accumulator: str | DType | None = None,
    fpmath: str | DType | None = None,
    **sizes: int,
) -> Convolution:
    """A convolution: a descriptor (``"ic64ih56oc64oh56kh3ph1"``) or its sizes by keyword.

    With q = p * stride - padding + k * (dilation + 1) for each spatial dim (one to three), where
    src counts as 0 outside of the image:

        fwd          dst[n, o, p]     = sum over i, k  src[n, i, q] * weights[o, i, k]
        bwd_data     src[n, i, q]     = sum over o, k  dst[n, o, p] * weights[o, i, k]
        bwd_weights  weights[o, i, k] = sum over n, p  dst[n, o, p] * src[n, i, q]

    ``direction`` is one of these, or benchdnn's name (``BWD_WB``: with the bias' gradient, the sum
    of dst over n and p, as a second result). By data it is a transposed convolution, and takes an
    epilogue as well. Arguments of the kernel: ``src`` (N, C, spatial), ``weights`` ([G,] O, I,
    kernel), ``bias`` (O), the epilogue's tensors, ``dst`` (N, C, spatial); inputs first, results
    last.

    Sizes are ``mb``, ``g``, ``ic``, ``oc``, and for each of d, h, w: ``ih`` and ``oh`` (images),
    ``kh`` (kernel), ``sh`` (stride, 1), ``dh`` (dilation, 0: dense), ``ph`` (padding in front, 0;
    behind it is what ``oh`` needs). What is left out follows from the others, as in benchdnn: w is
    like h, images are 2. Each size is 1 at least, g divides ic and oc, and a tensor has at most
    2^60 elements. ``accumulator`` is the type
    of the sums: s32 of integers, f64 if one is f64, else f32, unless given. ``fpmath``: what
    operands of f32 are rounded to before they are multiplied, ``tf32`` or ``bf16``.

    Raises `ProblemError` for sizes that contradict each other, `LayoutError`, and
    `UnsupportedError` for types that are not available. Source: oneDNN's developer guide,
    "Convolution".
    """
    problem = window_problem_of(problem, ConvProblem, sizes)
    which = direction_of(direction)
    types = types_of(dtype, ("src", "weights", "dst"))
    result = types["src" if which is Direction.BWD_D else "dst"]
    return convolution_op(
        problem,
        which,
        types,
        shared_layouts(src=src, weights=weights, dst=dst),
        _attributes(epilogue, types, result, fpmath),
        None if accumulator is None else dtype_of(accumulator),
    )


@checked_call
def matmul(
    problem: str | MatmulProblem,
    /,
    *,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    weights: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
    epilogue: Sequence[Element] = (),
    accumulator: str | DType | None = None,
    fpmath: str | DType | None = None,
) -> Matmul:
    """A matrix product, ``"MxK:KxN"``; leading dims are the batch, where 1 is broadcast.

        dst[b, m, n] = sum over k  src[b, m, k] * weights[b, k, n]

    Arguments of the kernel: ``src`` (batch, M, K), ``weights`` (batch, K, N), ``bias`` (N), the
    epilogue's tensors, ``dst`` (batch, M, N). The layout ``"ba"`` is transposed. A tensor has at
    most 12 dims and 2^60 elements. ``accumulator`` and ``fpmath`` are as of `convolution`.

    Weights as language models have them, of u4, s4, u8 or s8 with a scale, and maybe a zero point,
    for each ``group`` of neighbours along K, beside a float ``src``:

        matmul("1x4096:4096x4096", dtype="f32:u4:f32", epilogue=[
            zero_point("weights", policy="per_ocic", dtype="u4", group=64),
            scale("weights", policy="per_ocic", group=64)])

    ``weights_scale`` and ``weights_zero_point`` are (K / group, N) then. With groups, weights of 4
    bits lie two to a byte: ``weights`` is an array of u8 of (batch, K / 2, N), a byte with an
    element in its lower half and the next along K in its upper one. ``weights="ba"`` is that of
    PyTorch's ``Linear``, (N, K / 2) in memory. Without groups each takes a byte.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Matrix Multiplication".
    """
    problem = problem_of(problem, MatmulProblem)
    types = types_of(dtype, ("src", "weights", "dst"))
    return matmul_op(
        problem,
        types,
        layouts_of(src=src, weights=weights, dst=dst),
        _attributes(epilogue, types, types["dst"], fpmath),
        None if accumulator is None else dtype_of(accumulator),
    )


@checked_call
def pool(
    problem: str | PoolProblem | None = None,
    /,
    *,
    algorithm: str | None = None,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
    epilogue: Sequence[Element] = (),
    **sizes: int,
) -> FoundationOp:
    """The maximum or the average of a sliding window (``algorithm``; "max", or the problem's).

        max     dst[n, c, p] = max over k   src[n, c, q]
        avg_np  dst[n, c, p] = sum over k   src[n, c, q] / how many q are inside
        avg_p   dst[n, c, p] = sum over k   src[n, c, q] / how many k there are

    with q as of `convolution`; only those inside of the image count. The maximum of none is the
    type's least value, the average of none 0. ``bwd_data`` is there for averages: each element of
    ``dst`` in equal parts to those that it is the average of. Sizes are those of `convolution`, but
    for ``g`` and ``oc``. Arguments: ``src`` (N, C, spatial), ``dst``.

    Raises `ProblemError`, `LayoutError`, and `UnsupportedError`, as for the gradient of a maximum.
    Source: oneDNN's developer guide, "Pooling".
    """
    problem = window_problem_of(problem, PoolProblem, sizes)
    if algorithm is not None:
        problem = problem.with_alg(algorithm)
    which = direction_of(direction)
    return _foundation(problem, dtype, shared_layouts(src=src, dst=dst), epilogue, which)


@checked_call
def reduce(
    problem: str | ReduceProblem,
    /,
    *,
    algorithm: str | None = None,
    p: float | None = None,
    eps: float | None = None,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
    epilogue: Sequence[Element] = (),
) -> FoundationOp:
    """A reduction, ``"2x3x4:2x1x4"``, along the dims that are 1 in the second shape only
    (``algorithm``; "sum", or the problem's).

        dst[a, 0, c] = sum over b  src[a, b, c]       (or mean, max, min, mul: the product)

    ``norm_lp_sum`` and ``norm_lp_max`` are norms: the ``p``-th root (1 unless given) of the sum of
    ``abs(src)**p``, with ``eps`` (0) added to the sum, or the least of it; ``norm_lp_power_p_sum``
    and ``norm_lp_power_p_max`` take no root.

    Integers are summed in s32, f64 in f64, all else in f32; ``mean`` divides the sum.
    Arguments: ``src``, ``dst``, of these shapes.

    Raises `ProblemError` (no dim is reduced, or sizes differ otherwise), `LayoutError` or
    `UnsupportedError`. Source: oneDNN's developer guide, "Reduction".
    """
    problem = problem_of(problem, ReduceProblem)
    if algorithm is not None:
        problem = problem.with_alg(algorithm)
    if p is not None or eps is not None:
        problem = problem.with_norm(p, eps)
    return _foundation(problem, dtype, shared_layouts(src=src, dst=dst), epilogue)


@checked_call
def elementwise(
    problem: str | Shape | EltwiseProblem | BinaryProblem,
    function: str,
    /,
    alpha: float = 0.0,
    beta: float = 0.0,
    *,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    src1: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
    epilogue: Sequence[Element] = (),
) -> FoundationOp:
    """A function of every element, ``elementwise("8x16", "relu")``, or of two tensors.

        dst[i] = function(src[i])      dst[i] = function(src0[i], src1[i])

    A function of one takes a shape, and ``alpha`` and ``beta`` where its formula has them (0 unless
    given, as in benchdnn). One of two (``"add"``) takes two shapes, ``"2x3x4:2x1x4"``, where 1 is
    broadcast; ``"select"`` takes src0 where the argument ``src2`` (s8, as ``dst``) is not 0, else
    src1. It is computed in f32, or in f64 where a type is f64, and rounded to the type of
    ``dst``, to nearest even and saturated. Arguments: ``src`` (``src0`` and ``src1``), ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Eltwise" and "Binary".
    """
    if isinstance(function, str) and function in BinaryProblem.algorithms:
        two = problem_of(problem, BinaryProblem, lambda shape: (shape, shape)).with_alg(function)
        layouts = shared_layouts(src0=src, dst=dst) | layouts_of(src1=src1)
        return _foundation(two, dtype, layouts, epilogue)
    if not isinstance(function, str) or function not in (*UNARY_FUNCTIONS, *UNARY_ALIASES):
        raise ProblemError(
            f"unknown elementwise function {short(function)}",
            cure=one_of(function, (*UNARY_FUNCTIONS, *UNARY_ALIASES, *BinaryProblem.algorithms)),
        )
    one = problem_of(problem, EltwiseProblem, lambda shape: (shape,))
    one = one.with_alg(Unary(function, alpha, beta).describe())
    return _foundation(one, dtype, shared_layouts(src=src, dst=dst), epilogue)


@checked_call
def reorder(
    problem: str | Shape | ReorderProblem,
    /,
    *,
    dtype: Types = f32,
    src: LayoutSpec = "any",
    dst: LayoutSpec = "any",
    epilogue: Sequence[Element] = (),
) -> FoundationOp:
    """A copy into another layout or type: ``reorder("2x32x7x7", src="nchw", dst="nChw16c")``.

        dst[i] = src[i], as the type of dst

    What is no number of that type is rounded to nearest even, and saturated if it is an integer.
    What a layout pads is written, too: zeros. Arguments: ``src``, ``dst``, of one shape, with at
    most 12 dims.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Reorder".
    """
    problem = problem_of(problem, ReorderProblem, lambda shape: (shape,))
    return _foundation(problem, dtype, layouts_of(src=src, dst=dst), epilogue)


def _foundation(
    problem: Problem,
    dtype: Types,
    layouts: Mapping[str, LayoutSpec],
    epilogue: Sequence[Element],
    direction: Direction = Direction.FWD_D,
) -> FoundationOp:
    types = types_of(dtype, problem.roles)
    attributes = _attributes(epilogue, types, types["dst" if direction.is_forward else "src"])
    return foundation_op(problem, direction, types, layouts, attributes)


def _attributes(
    epilogue: Sequence[Element],
    types: Mapping[str, DType],
    result: DType,
    fpmath: str | DType | None = None,
) -> Attributes:
    bias = f64 if f64 in types.values() else f32
    attributes = attributes_of(epilogue, bias=bias, result=result)
    if fpmath is None:
        return attributes
    chosen = parse_fpmath(fpmath if isinstance(fpmath, str) else dtype_of(fpmath).name)
    return replace(attributes, fpmath=chosen)
