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

from tilewright.dtypes import DType, f32, f64
from tilewright.dtypes import dtype as dtype_of
from tilewright.errors import ProblemError
from tilewright.ops.attributes import Attributes
from tilewright.ops.convolution import Convolution, convolution_op
from tilewright.ops.elementwise import BinaryOp, Eltwise, binary_op, eltwise_op
from tilewright.ops.epilogue_elements import Element, attributes_of
from tilewright.ops.matmul import Matmul, matmul_op
from tilewright.ops.op import LayoutSpec
from tilewright.ops.pooling import Pooling, pooling_op
from tilewright.ops.reduction import Reduction, reduction_op
from tilewright.ops.reorder import Reorder, reorder_op
from tilewright.problems import (
    BINARY_FUNCTIONS,
    BinaryProblem,
    ConvProblem,
    Direction,
    EltwiseProblem,
    MatmulProblem,
    PoolAlgorithm,
    PoolProblem,
    Problem,
    ReduceAlgorithm,
    ReduceProblem,
    ReorderProblem,
    Shape,
    Unary,
    conv_from_sizes,
    parse_binary,
    parse_conv,
    parse_direction,
    parse_eltwise,
    parse_fpmath,
    parse_matmul,
    parse_pool,
    parse_pool_algorithm,
    parse_reduce,
    parse_reduce_algorithm,
    parse_reorder,
    parse_types,
    pool_from_sizes,
)

# An element type is what `dtypes.dtype` takes: a name, or numpy's, torch's and JAX's own.
Types = Any
_DIRECTIONS = {"FWD": "FWD_D", "BWD_DATA": "BWD_D", "BWD_WEIGHTS": "BWD_W"}


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

    ``direction`` is ``fwd``, ``bwd_data`` or ``bwd_weights``, or benchdnn's names. Arguments of the
    kernel: ``src`` (N, C, spatial), ``weights`` ([G,] O, I, kernel), ``bias`` (O), the epilogue's
    tensors, ``dst`` (N, C, spatial); inputs first, results last. ``fpmath``: what operands of f32
    are rounded to before they are multiplied, ``tf32`` or ``bf16``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    if problem is None:
        problem = conv_from_sizes("", **sizes)
    else:
        _refuse_sizes(sizes)
        problem = parse_conv(problem) if isinstance(problem, str) else problem
    which = _direction(direction)
    types = _types(dtype, ("src", "weights", "dst"))
    result = types["src" if which is Direction.BWD_D else "dst"]
    return convolution_op(
        problem,
        which,
        types,
        _layouts(src=src, weights=weights, dst=dst),
        _attributes(epilogue, types, result, fpmath),
        None if accumulator is None else dtype_of(accumulator),
    )


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
    """A matrix product: ``"MxK:KxN"``, leading dims are the batch. ``"ba"`` is transposed;
    ``fpmath`` as of `convolution`.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    problem = parse_matmul(problem) if isinstance(problem, str) else problem
    types = _types(dtype, ("src", "weights", "dst"))
    given = {"src": src, "weights": weights, "dst": dst}
    return matmul_op(
        problem,
        types,
        {name: layout for name, layout in given.items() if layout is not None},
        _attributes(epilogue, types, types["dst"], fpmath),
        None if accumulator is None else dtype_of(accumulator),
    )


def pool(
    problem: str | PoolProblem | None = None,
    /,
    *,
    algorithm: str | PoolAlgorithm = "max",
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
    epilogue: Sequence[Element] = (),
    **sizes: int,
) -> Pooling:
    """A pooling: ``max``, ``avg_np`` (padding not counted) or ``avg_p``; see `convolution`."""
    if problem is None:
        problem = pool_from_sizes("", **sizes)
    else:
        _refuse_sizes(sizes)
        problem = parse_pool(problem) if isinstance(problem, str) else problem
    chosen = parse_pool_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    which = _direction(direction)
    types = _types(dtype, ("src", "dst"))
    attributes = _attributes(epilogue, types, types["dst" if which.is_forward else "src"])
    return pooling_op(problem, chosen, which, types, _layouts(src=src, dst=dst), attributes)


def reduce(
    problem: str | ReduceProblem,
    /,
    *,
    algorithm: str | ReduceAlgorithm = "sum",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
    epilogue: Sequence[Element] = (),
) -> Reduction:
    """A reduction, ``"2x3x4:2x1x4"``, by ``sum``, ``mean``, ``max``, ``min`` or ``mul``."""
    problem = parse_reduce(problem) if isinstance(problem, str) else problem
    chosen = parse_reduce_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    types = _types(dtype, ("src", "dst"))
    attributes = _attributes(epilogue, types, types["dst"])
    return reduction_op(problem, chosen, types, _layouts(src=src, dst=dst), attributes)


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
) -> Eltwise | BinaryOp:
    """A function of every element, ``elementwise("8x16", "relu")``, or of two tensors.

    A function of two (``"add"``) takes a problem with two shapes, ``"2x3x4:2x1x4"``; the arguments
    are then called ``src0`` and ``src1``.
    """
    if function in BINARY_FUNCTIONS:
        if isinstance(problem, tuple):
            problem = BinaryProblem(problem, problem)
        elif isinstance(problem, str):
            problem = parse_binary(problem)
        _check_kind(problem, BinaryProblem, function)
        assert isinstance(problem, BinaryProblem)
        types = _types(dtype, ("src0", "src1", "dst"))
        layouts = _layouts(src0=src, dst=dst) | ({} if src1 is None else {"src1": src1})
        attributes = _attributes(epilogue, types, types["dst"])
        return binary_op(problem, function, types, layouts, attributes)
    if isinstance(problem, tuple):
        problem = EltwiseProblem(problem)
    elif isinstance(problem, str):
        problem = parse_eltwise(problem)
    _check_kind(problem, EltwiseProblem, function)
    assert isinstance(problem, EltwiseProblem)
    types = _types(dtype, ("src", "dst"))
    attributes = _attributes(epilogue, types, types["dst"])
    chosen = Unary(function, alpha, beta)
    return eltwise_op(problem, chosen, types, _layouts(src=src, dst=dst), attributes)


def reorder(
    problem: str | Shape | ReorderProblem,
    /,
    *,
    dtype: Types = f32,
    src: LayoutSpec = "any",
    dst: LayoutSpec = "any",
    epilogue: Sequence[Element] = (),
) -> Reorder:
    """A copy into another layout or type: ``reorder("2x32x7x7", src="nchw", dst="nChw16c")``."""
    if isinstance(problem, tuple):
        problem = ReorderProblem(problem)
    elif isinstance(problem, str):
        problem = parse_reorder(problem)
    types = _types(dtype, ("src", "dst"))
    attributes = _attributes(epilogue, types, types["dst"])
    return reorder_op(problem, types, {"src": src, "dst": dst}, attributes)


def _direction(direction: str | Direction) -> Direction:
    if isinstance(direction, Direction):
        return direction
    return parse_direction(_DIRECTIONS.get(direction.upper(), direction))


def _types(given: Types, tensors: tuple[str, ...]) -> dict[str, DType]:
    """The type of each tensor. Raises `ProblemError` when there are too many or too few."""
    if isinstance(given, str):
        return dict(zip(tensors, parse_types(given, tensors), strict=True))
    if isinstance(given, Mapping):
        missing = [tensor for tensor in tensors if tensor not in given]
        unknown = [tensor for tensor in given if tensor not in tensors]
        if missing or unknown:
            raise ProblemError(
                f"types are given for {', '.join(given)}",
                where="dtype",
                cure="give one for each of " + ", ".join(tensors),
            )
        return {tensor: dtype_of(given[tensor]) for tensor in tensors}
    if not isinstance(given, Sequence):
        return dict.fromkeys(tensors, dtype_of(given))
    if len(given) != len(tensors):
        raise ProblemError(
            f"{len(given)} types are given for {len(tensors)} tensors",
            where="dtype",
            cure="give one, or one for each of " + ", ".join(tensors),
        )
    return dict(zip(tensors, map(dtype_of, given), strict=True))


def _layouts(**given: LayoutSpec | None) -> dict[str, LayoutSpec]:
    """What was given; the tag of one of source and result is the other's too."""
    found = {name: layout for name, layout in given.items() if layout is not None}
    source = "src0" if "src0" in given else "src"
    for name, other in ((source, "dst"), ("dst", source)):
        if name not in found and isinstance(found.get(other), str):
            found[name] = found[other]
    return found


def _attributes(
    epilogue: Sequence[Element],
    types: Mapping[str, DType],
    result: DType,
    fpmath: str | DType | None = None,
) -> Attributes:
    bias = f64 if f64 in types.values() else f32
    chosen = parse_fpmath(str(fpmath)) if fpmath is not None else None
    return replace(attributes_of(epilogue, bias=bias, result=result), fpmath=chosen)


def _refuse_sizes(sizes: Mapping[str, int]) -> None:
    if sizes:
        raise ProblemError(
            f"both a problem and sizes are given: {', '.join(sizes)}",
            cure="write the sizes into the descriptor, or leave it out",
        )


def _check_kind(problem: Problem, kind: type[Problem], function: str) -> None:
    if not isinstance(problem, kind):
        wanted = "one tensor" if kind is EltwiseProblem else "two tensors"
        raise ProblemError(
            f"{function} is a function of {wanted}", cure=f"give it a {kind.__name__}"
        )
