"""What users call for ops that move elements.

All of them convert, where ``dst`` has another type: to nearest even, and saturated.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.calls import checked_call
from tilewright.dtypes import f32
from tilewright.ops.library import LibraryOp, Types, asked, op_of
from tilewright.ops.op import LayoutSpec
from tilewright.problems import Direction, Shape
from tilewright.problems.library import (
    ConcatProblem,
    PadProblem,
    PixelsProblem,
    ShuffleProblem,
    SliceProblem,
    TileProblem,
    TransposeProblem,
    ZeroPadProblem,
)


@checked_call
def concat(
    problem: str | Sequence[Shape] | ConcatProblem,
    /,
    *,
    axis: int = 1,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Tensors one after the other along a dim, ``concat("2x3x4:2x5x4")``, or a list of shapes.

    All other sizes are equal. Arguments: ``src0``, ``src1`` and so on, of the type and layout that
    ``src`` has, and ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Concat".
    """
    if isinstance(problem, list):
        problem = tuple(problem)
    return op_of(asked(problem, ConcatProblem, axis=axis), "fwd", dtype, src=src, dst=dst)


@checked_call
def slice(
    problem: str | Shape | SliceProblem,
    /,
    *,
    start: Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """A part of a tensor, ``slice("8x9:1x8:3x4:2x-2")``: shape, start, size, and stride (1).

        dst[i] = src[start + i * stride]      in each dim

    A stride below 0 runs backwards. Arguments: ``src``, ``dst`` of the shape ``size``.

    Raises `ProblemError` where the slice leaves the tensor, `LayoutError` or `UnsupportedError`.
    """
    slice_problem = asked(problem, SliceProblem, start=start, size=size, stride=stride)
    return op_of(slice_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def tile(
    problem: str | Shape | TileProblem,
    /,
    *,
    repeats: Sequence[int] | None = None,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Copies of a tensor side by side, ``tile("4x5:2x3")``: so many in each dim.

    Arguments: ``src``, ``dst``, whose sizes are those of ``src`` times ``repeats``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    tile_problem = asked(problem, TileProblem, repeats=repeats)
    return op_of(tile_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def transpose(
    problem: str | Shape | TransposeProblem,
    /,
    *,
    order: Sequence[int] | None = None,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Dims in another order, ``transpose("2x3x4:2x0x1")``: dim ``i`` of ``dst`` is dim ``order[i]``
    of ``src``. Arguments: ``src``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    return op_of(asked(problem, TransposeProblem, order=order), "fwd", dtype, src=src, dst=dst)


@checked_call
def pixels(
    problem: str | Shape | PixelsProblem,
    algorithm: str = "pixel_unshuffle",
    /,
    *,
    block: int | None = None,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Blocks of pixels to channels, ``pixels("2x3x4x6:2")``, and back.

    Of an image (N, C, H, W) in blocks of b times b, whose pixels are at (y, x), one with b * b
    times the channels is made: ``pixel_unshuffle`` has them in the order (C, y, x), as PyTorch;
    ``space_to_depth`` in the order (y, x, C), as ONNX. ``pixel_shuffle`` and ``depth_to_space`` are
    their inverses; the shape is that of the larger image with less channels on either way.
    Arguments: ``src``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    blocks = None if block is None else (block,)
    pixels_problem = asked(problem, PixelsProblem, block=blocks, algorithm=algorithm)
    return op_of(pixels_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def shuffle(
    problem: str | Shape | ShuffleProblem,
    /,
    *,
    axis: int = 1,
    group: int = 1,
    direction: str | Direction = "fwd",
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """A dim in another order, ``shuffle("8x240x28x28", group=80)``: seen as a matrix with rows of
    ``group`` elements, it is transposed. ``bwd_data`` goes back, from ``diff_dst`` to ``diff_src``.

    (PyTorch's ``channel_shuffle`` of g groups has rows of C / g.) Arguments: ``src``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`. Source: oneDNN's developer guide,
    "Shuffle".
    """
    shuffle_problem = asked(problem, ShuffleProblem, axis=axis, group=group)
    return op_of(shuffle_problem, direction, dtype, src=src, dst=dst)


@checked_call
def pad(
    problem: str | Shape | PadProblem,
    algorithm: str = "constant",
    /,
    *,
    low: Sequence[int] | None = None,
    high: Sequence[int] | None = None,
    interior: Sequence[int] | None = None,
    value: float = 0.0,
    dtype: Types = f32,
    src: LayoutSpec | None = None,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """Elements around a tensor's, ``pad("4x5:1x-1:0x2")``: shape, in front and behind each dim.

    ``constant`` adds ``value``, ``edge`` the nearest element, ``reflect`` those on the other side
    of the first or last, which is not repeated. Below 0, elements are taken away. A fourth list of
    the descriptor, or ``interior``, is how many constants stand between neighbours. Arguments:
    ``src``, ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    pad_problem = asked(
        problem, PadProblem, low=low, high=high, interior=interior, value=value, algorithm=algorithm
    )
    return op_of(pad_problem, "fwd", dtype, src=src, dst=dst)


@checked_call
def zeropad(
    problem: str | Shape | ZeroPadProblem,
    /,
    *,
    dtype: Types = f32,
    dst: LayoutSpec | None = None,
) -> LibraryOp:
    """What a blocked layout holds beside the elements, set to 0: ``zeropad("2x13", dst="aB16b")``.

    In place. Argument: ``dst``.

    Raises `ProblemError`, `LayoutError` or `UnsupportedError`.
    """
    return op_of(asked(problem, ZeroPadProblem), "fwd", dtype, dst=dst)
