"""An array as memory: pointer, type, shape, strides; and the checks common to all arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.dtypes import ALL, DType, dtype
from tilewright.errors import ArgumentError, UnsupportedError

_ADDRESSES = 2**64
# numpy and torch have no more dims; a greater count comes from a damaged capsule.
MOST_DIMS = 64


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An array as memory. Strides are in elements; ``owner`` keeps the memory alive.

    ``writable`` is None where the library does not say.
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
        """This array. Raises `ArgumentError`, which calls it ``name``, if no array can be like
        that, or if it has elements but no memory."""
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


def _impossible(name: str, fault: str) -> ArgumentError:
    why = "the library that describes it contradicts itself"
    return ArgumentError(f"{name} has {fault}", where=name, why=why, cure=f"pass {name}.copy()")


def no_memory(name: str, why: str, cure: str) -> ArgumentError:
    """The error for an array with elements but without memory."""
    return ArgumentError(f"{name} has no memory", where=name, why=why, cure=cure)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array in C order, in elements."""
    strides: list[int] = []
    stride = 1
    for extent in reversed(shape):
        strides.insert(0, stride)
        stride *= extent
    return tuple(strides)


def element_type(element: np.dtype[Any], name: str, called: str | None = None) -> DType:
    """The type in `dtypes` for elements of a numpy type.

    Raises `ArgumentError` for another byte order, and for an unknown type, which it calls
    ``called`` (by default its name in numpy).
    """
    if not element.isnative:
        raise ArgumentError(
            f"{name} has elements in the other byte order, {element.str!r}",
            where=name,
            cure=f"pass {name}.astype({name}.dtype.newbyteorder('='))",
        )
    try:
        return dtype(element)
    except UnsupportedError as error:
        raise unknown_elements(name, called or f"numpy type {element.name!r}") from error


def unknown_elements(name: str, called: str) -> ArgumentError:
    """The error for elements of a type that `dtypes` does not have."""
    return ArgumentError(
        f"{name} has elements of an unknown type: {called}",
        where=name,
        cure="convert it to one of " + ", ".join(t.name for t in ALL),
    )


def describe_error(error: BaseException) -> str:
    """An error of another library in one line: its type and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
