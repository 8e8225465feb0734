"""benchdnn's shape descriptors, ``8x16:16x32``: tensors between ``:``, sizes between ``x``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.errors import ProblemError, Span
from tilewright.problems.pieces import Piece, split_name
from tilewright.problems.problem import Shape

MAX_SIZE = 2**60


@dataclass(frozen=True, slots=True)
class TensorText:
    """One tensor of a descriptor: its sizes, and where each stands."""

    piece: Piece
    sizes: Shape
    places: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class ShapesText:
    """The tensors of a descriptor, and the problem's name (``""``: none)."""

    tensors: tuple[TensorText, ...]
    name: str


def parse_shapes(text: str, tensors: Sequence[str], optional: int = 0) -> ShapesText:
    """Cuts ``text`` into one shape for each of the named ``tensors``; the last may be optional.

    Raises `ProblemError` for a wrong number of tensors and for sizes that are no whole numbers
    from 1.
    """
    body, name = split_name(text)
    pieces = body.split(":")
    form = ":".join(tensors)
    if len(pieces) > len(tensors):
        raise ProblemError(
            "there are too many tensors",
            where=Span(text, pieces[len(tensors)].start, body.end),
            why=f"the form is {form}",
            cure="remove the rest",
        )
    if len(pieces) < len(tensors) - optional:
        raise ProblemError(
            f"the shape of {tensors[len(pieces)]} is missing",
            where=Span(text, body.end, body.end + 1),
            why=f"the form is {form}",
            cure="write sizes between x, and tensors between :, such as 2x3:2x1",
        )
    return ShapesText(tuple(_tensor(piece) for piece in pieces), name)


def join(*shapes: Shape) -> str:
    """The descriptor of ``shapes``."""
    return ":".join("x".join(map(str, shape)) for shape in shapes)


def check_same_dims(first: TensorText, second: TensorText) -> None:
    """Raises `ProblemError` unless both have the same number of dims."""
    if len(first.sizes) != len(second.sizes):
        raise ProblemError(
            f"the tensors have {len(first.sizes)} and {len(second.sizes)} dims",
            where=second.piece.span,
            cure="give each the same number of dims; a dim that is broadcast is 1",
        )


def _tensor(piece: Piece) -> TensorText:
    parts = piece.split("x")
    return TensorText(piece, tuple(map(_size, parts)), tuple(part.span for part in parts))


def _size(part: Piece) -> int:
    if not part.word:
        raise ProblemError(
            "a size is missing",
            where=part.span,
            cure="write sizes between x, and tensors between :, such as 2x3:2x1",
        )
    size = part.integer("a size")
    if not 1 <= size <= MAX_SIZE:
        raise ProblemError(
            "a size must be at least 1" if size < 1 else "a size is too large",
            where=part.span,
            why="there is nothing to compute"
            if size < 1
            else "offsets are 64-bit: a size is at most 2^60",
            cure="leave the problem out" if size < 1 else "split the problem",
        )
    return size
