"""What users call for reductions of several values at once, and for scans."""

from __future__ import annotations

from tilewright.calls import checked_call
from tilewright.dtypes import f32
from tilewright.ops.library import LibraryOp, Types, asked, op_of, switch
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Shape
from tilewright.problems.library import (
    ArgProblem,
    LogSumExpProblem,
    MomentsProblem,
    ScanProblem,
)


@checked_call
def argmax(
    problem: str | Shape | ArgProblem,
    /,
    *,
    axis: int = -1,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """The place of the greatest element along a dim, ``argmax("32x1000")``.

    As in numpy, the first of equal ones, and of NaN, which counts as greater than all numbers.
    ``dst`` holds s32, or s64 if asked for (``dtype="f32:s64"``), and has size 1 along ``axis``.
    Arguments: ``src``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    arg_problem = asked(problem, ArgProblem, axis=axis, algorithm="argmax")
    return op_of(arg_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def argmin(
    problem: str | Shape | ArgProblem,
    /,
    *,
    axis: int = -1,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """The place of the least element along a dim, ``argmin("32x1000")``: the first of equal ones,
    and of NaN. Otherwise as `argmax`. Arguments: ``src``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    arg_problem = asked(problem, ArgProblem, axis=axis, algorithm="argmin")
    return op_of(arg_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def moments(
    problem: str | Shape | MomentsProblem,
    /,
    *,
    axis: int = -1,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Mean and variance along a dim in one pass, ``moments("32x1000")``.

    The variance is the mean of squared differences from the mean. Parts are merged as they are in
    Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
    Variances", 1979, in f32, or in f64 where a type is. ``dst`` is the layout and the type of both
    results. Arguments: ``src``, ``mean``, ``variance``, of size 1 along ``axis``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    return op_of(asked(problem, MomentsProblem, axis=axis), "fwd", dtype, src=src, dst=dst)


@checked_call
def logsumexp(
    problem: str | Shape | LogSumExpProblem,
    /,
    *,
    axis: int = -1,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """The logarithm of a sum of exponentials along a dim, ``logsumexp("32x1000")``.

    The greatest element is taken out first, so that nothing overflows; of minus infinities it is
    minus infinity. Computed in f32, or in f64 where a type is. Arguments: ``src``, ``dst``, of size
    1 along ``axis``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    return op_of(asked(problem, LogSumExpProblem, axis=axis), "fwd", dtype, src=src, dst=dst)


@checked_call
def scan(
    problem: str | Shape | ScanProblem,
    algorithm: str = "cumsum",
    /,
    *,
    axis: int = -1,
    exclusive: bool = False,
    reversed: bool = False,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Running sums, products, maxima or minima along a dim, ``scan("32x1000", "cumsum")``.

        cumsum    dst[i] = dst[i - 1] + src[i]
        cumprod   dst[i] = dst[i - 1] * src[i]
        cummax    dst[i] = max(dst[i - 1], src[i])      (cummin: min)

    ``exclusive``: of the elements before each one only; of none, 0, 1, and the least or the
    greatest number (of floats, an infinity). ``reversed``: from the end. Floats are kept in f32, or
    in f64 where a type is; integers in s32, which wraps. Arguments: ``src``, ``dst``, of one shape.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    flags = "E" if switch(exclusive, "exclusive") else ""
    flags += "R" if switch(reversed, "reversed") else ""
    scan_problem = asked(problem, ScanProblem, axis=axis, flags=flags, algorithm=algorithm)
    return op_of(scan_problem, "fwd", dtype, src=src, dst=dst)
