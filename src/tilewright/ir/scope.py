"""Names in scope, and what they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Scope(Generic[T]):
    """A mapping that remembers what definitions hid, and restores it when their block ends.

    Entering and leaving cost as much as there are definitions in between, however many names are
    in scope: ten thousand loops in a row stay linear.
    """

    def __init__(self, names: Mapping[str, T] | None = None) -> None:
        self._values: dict[str, T] = dict(names or {})
        self._hidden: list[tuple[str, T | None]] = []

    def get(self, name: str) -> T | None:
        """The value of ``name``; None when it is not in scope."""
        return self._values.get(name)

    def define(self, name: str, value: T) -> None:
        """Gives ``name`` a value until the innermost `nested` block ends."""
        self._hidden.append((name, self._values.get(name)))
        self._values[name] = value

    def names(self) -> Iterator[str]:
        """The names in scope, in order of definition."""
        return iter(self._values)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """A block: definitions inside end with it."""
        mark = len(self._hidden)
        try:
            yield
        finally:
            while len(self._hidden) > mark:
                name, value = self._hidden.pop()
                if value is None:
                    del self._values[name]
                else:
                    self._values[name] = value
