"""Nodes that are made once: whoever asks for the same node again gets the one that there is."""

from __future__ import annotations

import threading
import weakref
from typing import Any

Key = tuple[Any, ...]


class _Reference(weakref.ref[Any]):
    """A weak reference that knows its key, so that a dead node leaves the table."""

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


def known(key: Key) -> Any:
    """The node with this key, or None."""
    found = interned.get(key)
    return None if found is None else found()


def enter(key: Key, node: Any) -> Any:
    """``node``, which from now on is the one with this key; another thread's, if that was first."""
    reference = _Reference(node, _forget)
    reference.key = key
    with _interning:
        other = known(key)
        if other is not None:
            return other
        interned[key] = reference
    return node
