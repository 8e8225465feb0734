"""An array as memory: pointer, type, shape, strides; and what must hold of any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.dtypes import ALL, DType, dtype
from tilewright.errors import ArgumentError, UnsupportedError

_ADDRESSES = 2**64
# numpy and torch have no more dims; a count beyond comes from a damaged capsule.
MOST_DIMS = 64


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An array as memory. Strides are in elements; ``owner`` keeps the memory alive.

    ``writable`` is None where nothing says whether it may be written.
    """

    pointer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writable: bool | None
    owner: Any

    @property
    def span(self) -> tuple[int, int]:
        """First address that the elements take, and the one after the last."""
        if 0 in self.shape:
            return self.pointer, self.pointer
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = sum(r for r in reach if r < 0)
        high = sum(r for r in reach if r > 0) + 1
        return self.pointer + low * self.dtype.bytes, self.pointer + high * self.dtype.bytes

    def checked(self, name: str) -> ArrayInfo:
        """Itself. Raises `ArgumentError`, which calls it ``name``, if no array can be like that, or
        if it has elements but no memory."""
        if len(self.strides) != len(self.shape):
            raise _impossible(name, f"{len(self.shape)} dims, but {len(self.strides)} strides")
        if any(size < 0 for size in self.shape):
            raise _impossible(name, f"the shape {self.shape}")
        if 0 in self.shape:
            return self
        if not self.pointer:
            raise no_memory(name, "its data is a null pointer", "pass an array that has data")
        first, end = self.span
        if first < 0 or end > _ADDRESSES:
            raise _impossible(name, f"elements from address {first:#x} to {end:#x}")
        return self


def _impossible(name: str, what: str) -> ArgumentError:
    why = "whoever made it says what cannot be"
    return ArgumentError(f"{name} has {what}", where=name, why=why, cure=f"pass {name}.copy()")


def no_memory(name: str, why: str, cure: str) -> ArgumentError:
    """The error for an array whose elements are nowhere."""
    return ArgumentError(f"{name} has no memory", where=name, why=why, cure=cure)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array in C order, in elements."""
    strides: list[int] = []
    stride = 1
    for extent in reversed(shape):
        strides.insert(0, stride)
        stride *= extent
    return tuple(strides)


def element_type(given: np.dtype[Any], name: str, called: str | None = None) -> DType:
    """The type in `dtypes` of elements of the numpy type ``given``, wherever they are.

    Raises `ArgumentError` for another byte order, and for an unknown type, which it calls
    ``called`` (None: after numpy).
    """
    if not given.isnative:
        raise ArgumentError(
            f"{name} has elements in the other byte order, {given.str!r}",
            where=name,
            cure=f"pass {name}.astype({name}.dtype.newbyteorder('='))",
        )
    try:
        return dtype(given)
    except UnsupportedError as error:
        raise odd_elements(name, called or f"numpy type {given.name!r}") from error


def odd_elements(name: str, given: str) -> ArgumentError:
    """The error for elements of a type that `dtypes` has not."""
    return ArgumentError(
        f"{name} has elements of an unknown type: {given}",
        where=name,
        cure="convert it to one of " + ", ".join(t.name for t in ALL),
    )


def said(error: BaseException) -> str:
    """What an error of another library says, in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
