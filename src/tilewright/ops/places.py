"""What users call for ops whose places are data, or results."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.calls import checked_call
from tilewright.dtypes import f32
from tilewright.ops.library import LibraryOp, Types, asked, op_of, switch
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Shape
from tilewright.problems.library import (
    GatherProblem,
    OneHotProblem,
    ScatterProblem,
    SortProblem,
    TopKProblem,
)


@checked_call
def gather(
    problem: str | Shape | GatherProblem,
    /,
    *,
    indices: Sequence[int] | None = None,
    axis: int = 0,
    outside: str = "clip",
    counted: bool = False,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Elements at places that are data, ``gather("100x24:40")``: the shapes of ``src`` and of the
    indices, which is ``indices`` where the problem is a shape.

        dst[.., i, ..] = src[.., indices[i], ..]      in the dim ``axis``

    An index out of range takes the nearest place (``outside="clip"``), or gives 0 (``"zero"``);
    there are no places counted from the end. ``counted``: one more result, ``outside`` of one
    element, says how many there were. Indices are s32, or s64 if asked for
    (``dtype="f32:s64:f32"``). Arguments: ``src``, ``indices``, ``dst``, whose dims are those of
    ``src`` with the indices' for ``axis``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    flags = "C" if switch(counted, "counted") else ""
    gather_problem = asked(
        problem, GatherProblem, indices_shape=indices, axis=axis, flags=flags, algorithm=outside
    )
    return op_of(gather_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def embedding(
    rows: int,
    columns: int,
    indices: Sequence[int],
    /,
    *,
    outside: str = "clip",
    counted: bool = False,
    dtype: Types = f32,
) -> LibraryOp:
    """Rows of a table, ``embedding(30522, 768, (32, 128))``: `gather` along its first dim.

    Arguments: ``src`` (rows, columns), ``indices``, ``dst`` (the dims of the indices, columns).

    Raises `ProblemError` or `UnsupportedError`.
    """
    flags = "C" if switch(counted, "counted") else ""
    table = (rows, columns)
    gather_problem = asked(
        table, GatherProblem, indices_shape=indices, flags=flags, algorithm=outside
    )
    return op_of(gather_problem, "fwd", dtype)


@checked_call
def scatter(
    problem: str | Shape | ScatterProblem,
    algorithm: str = "add",
    /,
    *,
    indices: Sequence[int] | None = None,
    axis: int = 0,
    counted: bool = False,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Elements to places that are data, ``scatter("100x24:40", "add")``: the shapes of ``dst`` and
    of the indices, which have one dim.

        dst[.., indices[i], ..] += src[.., i, ..]      (or max, min) in the dim ``axis``

    in place, in any order, in f32, f64 or s32. What an index out of range would write is left out;
    ``counted`` is as of `gather`. Arguments: ``src``, ``indices``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    flags = "C" if switch(counted, "counted") else ""
    scatter_problem = asked(
        problem, ScatterProblem, indices_shape=indices, axis=axis, flags=flags, algorithm=algorithm
    )
    return op_of(scatter_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def one_hot(
    problem: str | Shape | OneHotProblem,
    /,
    *,
    classes: int | None = None,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """1 where the class is the index, else 0: ``one_hot("32x128:1000")``, or a shape and
    ``classes``.

    Of an index out of range, all are 0. Arguments: ``src``, the indices (s32, or s64 with
    ``dtype="s64:f32"``), and ``dst``, with one more dim.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    one_hot_problem = asked(problem, OneHotProblem, classes=None if classes is None else (classes,))
    return op_of(one_hot_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def sort(
    problem: str | Shape | SortProblem,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Values in order along a dim, and their places: ``sort("32x100")``.

    Equal ones stay in their order. NaN is greater than all numbers. Places are s32, or s64 if
    asked for (``dtype="f32:f32:s64"``). Rows of up to 64 elements are sorted by a network of
    compares, longer ones by the digits of their bits, each row by one thread. Arguments: ``src``,
    ``dst``, ``indices``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: Batcher, "Sorting Networks
    and Their Applications", 1968; Knuth, "The Art of Computer Programming", volume 3, 5.2.5.
    """
    chosen = "sort_descending" if switch(descending, "descending") else "sort"
    sort_problem = asked(problem, SortProblem, axis=axis, algorithm=chosen)
    return op_of(sort_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def topk(
    problem: str | Shape | TopKProblem,
    /,
    *,
    count: int | None = None,
    axis: int = -1,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """The greatest values along a dim in order, and their places: ``topk("32x100:5")``, or a shape
    and ``count``.

    Of equal ones, those in front. Otherwise as `sort`, of which it is the beginning. Arguments:
    ``src``, ``dst``, ``indices``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    top_k_problem = asked(
        problem, TopKProblem, axis=axis, amount=None if count is None else (count,)
    )
    return op_of(top_k_problem, "fwd", dtype, src=src, dst=dst)
