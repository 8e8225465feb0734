"""Interning (hash consing): equal nodes are one object, built once."""

from __future__ import annotations

import threading
import weakref
from typing import Any

Key = tuple[Any, ...]


class _Reference(weakref.ref[Any]):
    """A weak reference with its key, so that a dead node leaves the table."""

    __slots__ = ("key",)
    key: Key


interned: dict[Key, _Reference] = {}
# Held to change the table. Reentrant: freeing memory under it may call `_forget`.
_interning = threading.RLock()


def _forget(reference: weakref.ref[Any]) -> None:
    assert isinstance(reference, _Reference)
    with _interning:
        if interned.get(reference.key) is reference:
            del interned[reference.key]


def lookup(key: Key) -> Any:
    """The node with this key, or None."""
    reference = interned.get(key)
    return None if reference is None else reference()


def enter(key: Key, node: Any) -> Any:
    """Makes ``node`` the one with this key, and returns it; another thread's, if that was first."""
    reference = _Reference(node, _forget)
    reference.key = key
    with _interning:
        other = lookup(key)
        if other is not None:
            return other
        interned[key] = reference
    return node
