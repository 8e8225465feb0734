"""What users call for the library's ops: a function for each record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tilewright.dtypes import DType, f32
from tilewright.ops.argument_forms import direction_of, layouts_of, problem_of, types_of
from tilewright.ops.library import LibraryOp, library_op
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Direction, Record, Shape
from tilewright.problems.library import SoftmaxProblem

# One element type, which is what `dtypes.dtype` takes, or several.
Types = Any
R = TypeVar("R", bound=Record)


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
    found = _problem(problem, SoftmaxProblem, axis=axis, algorithm=_upper(algorithm))
    return _op(found, direction, dtype, src=src, dst=dst)


def _problem(given: object, kind: type[R], **settings: Any) -> R:
    """The problem that a descriptor, a shape or an object says, with these settings."""
    found = problem_of(given, kind.parse, kind, lambda shape: (shape,))
    algorithm = settings.pop("algorithm", None)
    if algorithm is not None:
        found = found.with_alg(algorithm)
    return replace(found, **settings)


def _upper(text: object) -> Any:
    return text.upper() if isinstance(text, str) else text


def _op(problem: Record, direction: object, dtype: Types, **layouts: object) -> LibraryOp:
    types: Mapping[str, DType] = types_of(dtype, problem.roles)
    if len(set(types.values())) == 1:
        one = problem.expanded((next(iter(types.values())),))
        types = dict(zip(problem.roles, one, strict=True))
    return library_op(problem, direction_of(direction), types, layouts_of(**layouts))
