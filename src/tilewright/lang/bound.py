"""Launches that come again: the same range, the same numbers, the same arrays where they were.

Checking arguments takes longer than a small kernel. What was checked once is checked by identity
the next time: that an array is still there, with its memory, shape and strides.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.newest import Newest

# numpy keeps the address of an array's data behind the object header (see `runtime.arrays`).
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
        there = _word_at(id(array) + _DATA_FIELD).value == self.address
        return bool(there and (array.shape, array.strides) == (self.shape, self.strides))


def _array(array: Any) -> _Array:
    address = _word_at(id(array) + _DATA_FIELD).value
    return _Array(weakref.ref(array), address, array.shape, array.strides)


class BoundLaunches:
    """The calls of the last launches, by what they were given."""

    def __init__(self) -> None:
        self._calls: Newest[Hashable, tuple[Callable[[], None], list[tuple[int, _Array]]]]
        self._calls = Newest(_MOST)
        self._seen: Newest[Hashable, None] = Newest(_MOST)

    def key(self, settings: tuple[Any, ...], arguments: Sequence[Any]) -> Hashable:
        """What tells a launch from others; None where it cannot be told."""
        found = [
            id(each) if each.__class__ is np.ndarray else (each.__class__, each)
            for each in arguments
        ]
        key = (settings, *found)
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def find(self, key: Hashable, arguments: Sequence[Any]) -> Callable[[], None] | None:
        """The call, if the arrays are those that it was bound to."""
        found = self._calls.get(key)
        if found is None:
            return None
        for place, array in found[1]:
            if not array.same(arguments[place]):
                del self._calls[key]
                return None
        return found[0]

    def comes_again(self, key: Hashable) -> bool:
        """Whether this launch was there before, and is worth binding."""
        if key in self._seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        return False

    def keep(self, key: Hashable, call: Callable[[], None], arguments: Sequence[Any]) -> None:
        """Remembers ``call``."""
        arrays = [
            (
                place,
                _Array(
                    weakref.ref(each),
                    _word_at(id(each) + _DATA_FIELD).value,
                    each.shape,
                    each.strides,
                ),
            )
            for place, each in enumerate(arguments)
            if each.__class__ is np.ndarray
        ]
        self._calls[key] = call, arrays
