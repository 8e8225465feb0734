"""Types of the parameters of kernels: arrays, numbers, types that a call decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tilewright.calls import checked_call
from tilewright.dtypes import ALL, DType, dtype
from tilewright.errors import ArgumentError, UnsupportedError, one_of, short

__all__ = ["Array", "ArrayType", "Constant", "ScalarType", "array", "constant", "scalar"]

_MOST_DIMS = 8
_NAMES = frozenset(name for dtype in ALL for name in (dtype.name, dtype.numpy_name))


@dataclass(frozen=True)
class ArrayType:
    """An array of ``rank`` dims. ``dtype`` is a type, or the name of one that a call decides;
    ``shape`` has a number, a name, or None for each dim."""

    dtype: DType | str
    rank: int
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class ScalarType:
    """A number whose type a call decides: that of arrays declared with the same ``name``."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A value that is known when the kernel is compiled: each value gives code of its own."""


constant = Constant()


@checked_call
def array(dtype: object, rank: int | Sequence[int | str | None]) -> ArrayType:
    """The annotation of an array: its element type, and its rank or its shape.

    A type that is no known name (``"T"``) is decided by each call. A shape has numbers, names that
    several arrays share, and None: ``tw.array("f32", ("n", 16))``. Arrays are row-major. Raises
    `ArgumentError`.
    """
    shape: object = rank
    if isinstance(rank, int) and not isinstance(rank, bool) and 1 <= rank <= _MOST_DIMS:
        shape = (None,) * rank
    if not isinstance(shape, tuple | list) or not 1 <= len(shape) <= _MOST_DIMS:
        raise ArgumentError(
            f"an array of rank {short(rank)}",
            where="tw.array",
            cure=f"give a whole number from 1 to {_MOST_DIMS}, or a tuple of as many sizes",
        )
    for size in shape:
        named = isinstance(size, str) and size.isidentifier()
        number = isinstance(size, int) and not isinstance(size, bool) and size >= 0
        if not (size is None or named or number):
            raise ArgumentError(
                f"an array with a dim of size {short(size)}",
                where="tw.array",
                cure="give a whole number, a name, or None for each dim",
            )
    return ArrayType(_element(dtype), len(shape), tuple(shape))


if TYPE_CHECKING:
    # To type checkers, an array is a value of its elements' type with metadata.
    from typing import Annotated as Array
else:

    class Array:
        """The annotation that `array` gives, in a form that type checkers take, which know no
        calls in annotations: ``x: tw.Array[tw.f32, 2]``.

        A ``TypeVar`` stands for a type that each call decides, here and as the annotation of a
        number. Raises `ArgumentError`.
        """

        def __class_getitem__(cls, arguments: object) -> ArrayType:
            if not isinstance(arguments, tuple) or len(arguments) != 2:
                raise ArgumentError(
                    "an annotation of an array without its type, or without its rank",
                    where="tw.Array",
                    cure='write both: tw.Array[tw.f32, 2], or tw.Array[tw.f32, ("n", 16)]',
                )
            return array(*arguments)


@checked_call
def scalar(dtype: object) -> ScalarType | DType:
    """The annotation of a number of the type ``dtype``; of one that calls decide (``"T"``), that of
    the arrays that are declared with it. Raises `ArgumentError`."""
    element = _element(dtype)
    return ScalarType(element) if isinstance(element, str) else element


def _element(element: object) -> DType | str:
    if isinstance(element, TypeVar):
        element = element.__name__
    if isinstance(element, str) and element not in _NAMES:
        if element.isidentifier() and element[:1].isupper():
            return element
        raise ArgumentError(
            f"{short(element)} is no element type",
            where="tw.array",
            why="a type that calls decide has a name with a capital letter, such as T",
            cure=one_of(element, [element.name for element in ALL]),
        )
    try:
        return dtype(element)
    except UnsupportedError as error:
        raise ArgumentError(error.what, where="tw.array", cure=error.cure) from None
