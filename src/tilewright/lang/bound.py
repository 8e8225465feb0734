"""Repeated launches: the same range, the same numbers, the same arrays at the same places.

Checking arguments takes longer than a small kernel. Repeated launches are checked by identity: each
array is the same object, with its memory, shape and strides, and so is what the kernel takes from
outside.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.lang.exact import exact
from tilewright.newest import Newest

# numpy keeps the address of an array's data after the object header (see `runtime.arrays`).
_DATA_FIELD = object.__basicsize__
_word_at = ctypes.c_size_t.from_address
_MOST = 16


class _Array(NamedTuple):
    reference: weakref.ref[Any]
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def same(self, array: Any) -> bool:
        """Whether ``array`` is that one, with its memory where it was."""
        if id(self.reference()) != id(array):
            return False
        same_memory = _word_at(id(array) + _DATA_FIELD).value == self.address
        return bool(same_memory and (array.shape, array.strides) == (self.shape, self.strides))


def _array(array: Any) -> _Array:
    address = _word_at(id(array) + _DATA_FIELD).value
    return _Array(weakref.ref(array), address, array.shape, array.strides)


class _Bound(NamedTuple):
    call: Callable[[], None]
    arrays: list[tuple[int, _Array]]
    unchanged: Callable[[], bool] | None


class BoundLaunches:
    """The calls of the last launches, by their arguments."""

    def __init__(self) -> None:
        self._calls: Newest[Hashable, _Bound] = Newest(_MOST)
        self._seen: Newest[Hashable, None] = Newest(_MOST)

    def key(self, settings: tuple[Any, ...], arguments: Sequence[Any]) -> Hashable:
        """The identity of a launch; it has no hash where arguments have none."""
        identities = [
            id(argument) if argument.__class__ is np.ndarray else exact(argument)
            for argument in arguments
        ]
        return (settings, *identities)

    def find(self, key: Hashable, arguments: Sequence[Any]) -> Callable[[], None] | None:
        """The call, if the arrays are those that it is bound to."""
        try:
            bound = self._calls.get(key)
        except TypeError:  # without a hash
            return None
        if bound is None:
            return None
        for place, array in bound.arrays:
            if not array.same(arguments[place]):
                del self._calls[key]
                return None
        if bound.unchanged is not None and not bound.unchanged():
            del self._calls[key]
            return None
        return bound.call

    def comes_again(self, key: Hashable) -> bool:
        """Whether this launch is repeated, and worth binding."""
        try:
            seen = key in self._seen
        except TypeError:  # without a hash
            return False
        if seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        return False

    def keep(
        self,
        key: Hashable,
        call: Callable[[], None],
        arguments: Sequence[Any],
        unchanged: Callable[[], bool] | None,
    ) -> None:
        """Keeps ``call`` for repeated launches, while what is outside of the kernel is
        ``unchanged`` (None: it takes nothing from there)."""
        arrays = [
            (place, _array(argument))
            for place, argument in enumerate(arguments)
            if argument.__class__ is np.ndarray
        ]
        self._calls[key] = _Bound(call, arrays, unchanged)
