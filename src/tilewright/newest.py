"""A cache of the newest entries only."""

from __future__ import annotations

from threading import Lock
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Newest(dict[K, V]):
    """A dict of at most ``most`` entries: setting one more drops the one that was set first.

    Several threads may set entries by ``[]``; other changes of a dict drop nothing.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._setting = Lock()

    def __setitem__(self, key: K, value: V) -> None:
        with self._setting:
            super().__setitem__(key, value)
            while len(self) > self._most:
                # A copy: another thread may remove an entry meanwhile, which ends an iteration.
                for oldest in list(self)[:1]:
                    self.pop(oldest, None)
